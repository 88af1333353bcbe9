//! The allocators of sessions' tensors on the CPU.

use std::{
    ffi::CString,
    ptr,
    sync::{MutexGuard, PoisonError},
};

use ort::{
    AsPointer,
    memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType},
    session::Session,
};

use super::environment::Environment;

/// An allocator of the environment with a limit, for the sessions that are created while this lives. Their tensors stay
/// limited afterwards: each session keeps the allocator that it found.
pub(super) struct Limit<'e> {
    environment: &'e Environment,
    memory: *mut ort::sys::OrtMemoryInfo,
    _only: MutexGuard<'e, ()>,
}

impl<'e> Limit<'e> {
    /// Limits tensors to so many bytes, or not; in either case, memory is allocated as requested.
    pub(super) fn new(environment: &'e Environment, bytes: Option<u64>) -> ort::Result<Limit<'e>> {
        let only = environment.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let api = ort::api();
        let keys = ["max_mem", "arena_extend_strategy"].map(CString::new);
        let [Ok(most), Ok(strategy)] = keys else { return Err(ort::Error::new("an invalid key")) };
        let keys = [most.as_ptr(), strategy.as_ptr()];
        // Strategy 1 allocates what is requested, not the next power of two.
        // A limit of 0 is none.
        let values = [bytes.map_or(0, |bytes| usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)), 1];
        let (mut arena, mut memory) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: keys, values and the result are valid for the call.
        check(unsafe { (api.CreateArenaCfgV2)(keys.as_ptr(), values.as_ptr(), keys.len(), &mut arena) })?;
        let kind = ort::sys::OrtAllocatorType::OrtArenaAllocator;
        let made =
            // SAFETY: the result is valid for writing.
            check(unsafe { (api.CreateCpuMemoryInfo)(kind, ort::sys::OrtMemType::OrtMemTypeDefault, &mut memory) });
        let registered = made.and_then(|()| {
            // SAFETY: all three were created by the library and live; the call copies what it keeps.
            check(unsafe {
                (api.CreateAndRegisterAllocator)(environment.ort.ptr().cast_mut(), memory, arena)
            })
        });
        // SAFETY: the configuration came from the matching function and is not used again.
        unsafe { (api.ReleaseArenaCfg)(arena) };
        if let Err(error) = registered {
            // SAFETY: null, or from the matching function and not used again.
            unsafe { (api.ReleaseMemoryInfo)(memory) };
            return Err(error);
        }
        Ok(Limit { environment, memory, _only: only })
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        let api = ort::api();
        let environment = self.environment.ort.ptr().cast_mut();
        // SAFETY: the allocator was registered for this memory, and sessions hold it themselves.
        let _ = check(unsafe { (api.UnregisterAllocator)(environment, self.memory) });
        // SAFETY: it came from the matching function and is not used again.
        unsafe { (api.ReleaseMemoryInfo)(self.memory) };
    }
}

/// The bytes that the arena of a session's tensors on the CPU holds, if the library says.
pub(super) fn allocated(session: &Session) -> Option<u64> {
    let memory = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Arena, MemoryType::Default).ok()?;
    let allocator = Allocator::new(session, memory).ok()?;
    let mut pairs = ptr::null_mut();
    // SAFETY: the allocator lives, and the result is valid for writing.
    check(unsafe { (ort::api().AllocatorGetStats)(allocator.ptr(), &mut pairs) }).ok()?;
    let bytes = super::provider::value(pairs, c"TotalAllocated").and_then(|bytes| bytes.parse().ok());
    // SAFETY: the pairs came from the matching function and are not used again.
    unsafe { (ort::api().ReleaseKeyValuePairs)(pairs) };
    bytes
}

fn check(status: ort::sys::OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: each status comes from the library and is checked once.
    unsafe { ort::Error::result_from_status(status) }
}
