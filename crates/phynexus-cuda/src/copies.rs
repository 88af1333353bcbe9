//! Copies through pinned host memory, and between GPUs.

use std::ffi::c_void;

use cudarc::driver::{
    DriverError,
    result::{self, event, stream},
    sys::{self, CUdeviceptr},
};
use phynexus::{
    Result,
    gpu::{Handles, Medium},
};

use crate::{
    collective::grant,
    context::{Context, Event},
    gpu::{Block, Cuda},
};

/// Host memory that GPUs access directly.
pub(crate) struct Pinned {
    address: *mut c_void,
    bytes: usize,
    context: sys::CUcontext,
}

// SAFETY: the memory is owned exclusively.
unsafe impl Send for Pinned {}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes were allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.bytes) }
    }
}

impl AsMut<[u8]> for Pinned {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the context lives as long as the process, and the memory is owned exclusively. After a failure it
        // stays pinned.
        let _ =
            unsafe { result::ctx::set_current(self.context).and_then(|()| result::free_host(self.address)) };
    }
}

impl Medium for Context {
    type Pinned = Pinned;
    type Event = Event;

    fn pin(&self, bytes: usize) -> Option<Pinned> {
        self.bind().ok()?;
        // SAFETY: the context is current; the memory is accessed only through this value.
        let address = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }.ok()?;
        // SAFETY: `bytes` bytes were just allocated.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Some(Pinned { address, bytes, context: self.handle() })
    }

    fn event(&self) -> Result<Event> {
        self.record(false)
    }

    fn has_happened(&self, event: &Event) -> bool {
        // SAFETY: the event is valid.
        let state = unsafe { sys::cuEventQuery(event.handle()) };
        state != sys::cudaError_enum::CUDA_ERROR_NOT_READY
    }

    fn wait(&self, event: &Event) -> Result<()> {
        self.bind()?;
        self.collectives.watch(self, event)?;
        // SAFETY: the event is valid.
        unsafe { event::synchronize(event.handle()) }.map_err(|e| self.error("waiting for a copy", e))
    }
}

impl Context {
    /// Enables peer access to the other GPU's memory if supported; otherwise the driver copies through the host.
    fn reach(&self, other: &Context) -> Result<(), DriverError> {
        let mut reached = self.reached();
        if reached.contains(&other.name) {
            return Ok(());
        }
        let mut can = 0;
        // SAFETY: both devices exist, and the pointer is valid for the call.
        unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device(), other.device()) }.result()?;
        if can != 0 {
            // SAFETY: this context is current, and the other one lives as long as the process.
            let enabled = unsafe { sys::cuCtxEnablePeerAccess(other.handle(), 0) };
            if enabled != sys::cudaError_enum::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
                enabled.result()?;
            }
            if let Some(pool) = other.memory_pool() {
                // SAFETY: the pool is the other device's, which this one can reach.
                unsafe { grant(pool, self.device()) }?;
            }
        }
        reached.push(other.name.clone());
        Ok(())
    }

    /// Copies from another GPU: after the work submitted there so far, and before later work there.
    ///
    /// # Safety
    /// Both addresses must be memory of their GPUs with at least `bytes` bytes.
    pub(crate) unsafe fn copy_from(
        &self,
        target: CUdeviceptr,
        other: &Context,
        source: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        let error = |e: DriverError| self.error(&format!("copying from {}", other.name), e);
        other.before_read(source..source + bytes as u64)?;
        let made = other.record(false)?;
        self.before_write(target..target + bytes as u64)?;
        self.bind()?;
        self.reach(other).map_err(error)?;
        // Created before the copy: after it, only the driver itself should be able to fail.
        let done = Event::new().map_err(error)?;
        // SAFETY: guaranteed by the caller.
        let submitted = unsafe { self.submit_copy(target, other, source, bytes, [&made, &done]) };
        // If the source's stream does not wait for the copy, the host does, because the source may be freed next.
        submitted.inspect_err(|_| drop(self.synchronize()))
    }

    /// Submits the copy between two events: `made` of the source's stream, and `done`, which is recorded on this stream
    /// after the copy. The context must be current.
    ///
    /// # Safety
    /// Both addresses must be memory of their GPUs with at least `bytes` bytes.
    unsafe fn submit_copy(
        &self,
        target: CUdeviceptr,
        other: &Context,
        source: CUdeviceptr,
        bytes: usize,
        [made, done]: [&Event; 2],
    ) -> Result<()> {
        let error = |e: DriverError| self.error(&format!("copying from {}", other.name), e);
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event are valid.
        unsafe { stream::wait_event(self.stream(), made.handle(), flags) }.map_err(error)?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            sys::cuMemcpyPeerAsync(target, self.handle(), source, other.handle(), bytes, self.stream())
        }
        .result()
        .map_err(error)?;
        // SAFETY: as above.
        unsafe { event::record(done.handle(), self.stream()) }.map_err(error)?;
        other.bind()?;
        // SAFETY: as above. The source may be freed and overwritten as soon as its own stream continues.
        unsafe { stream::wait_event(other.stream(), done.handle(), flags) }.map_err(error)
    }
}

impl Handles<Block> for Cuda {
    fn address(&self, block: &Block) -> u64 {
        block.address()
    }

    fn queue(&self) -> u64 {
        self.context.stream().addr() as u64
    }

    unsafe fn precede(&self, queue: u64) -> Result<()> {
        let context = &self.context;
        context.collectives.join_all(&**context)?;
        let made = context.record(false)?;
        // SAFETY: the event is valid, and the caller guarantees that the stream is.
        unsafe { stream::wait_event(handle(queue), made.handle(), EVENT_WAIT) }
            .map_err(|e| context.error("letting another stream wait", e))
    }

    unsafe fn follow(&self, queue: u64) -> Result<()> {
        let context = &self.context;
        // SAFETY: guaranteed by the caller.
        let made = unsafe { context.record_in(handle(queue), false) }?;
        // SAFETY: the stream and the event are valid.
        unsafe { stream::wait_event(context.stream(), made.handle(), EVENT_WAIT) }
            .map_err(|e| context.error("waiting for another stream", e))
    }

    fn settle(&self) -> Result<()> {
        self.context.bind()?;
        self.context.collectives.watch_all(&*self.context)?;
        result::ctx::synchronize().map_err(|e| self.context.error("waiting for all streams", e))
    }

    unsafe fn take(&self, target: &Block, address: u64, bytes: usize) -> Result<()> {
        self.context.bind()?;
        self.context.before_write(target.range(0, bytes))?;
        // SAFETY: the target has room, and the caller guarantees that the source is valid.
        unsafe { result::memcpy_dtod_async(target.address(), address, bytes, self.context.stream()) }
            .map_err(|e| self.context.error("copying another library's memory", e))
    }
}

const EVENT_WAIT: sys::CUevent_wait_flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;

/// A stream by its number in other libraries: 1 is the legacy default stream, 2 the per-thread default stream.
fn handle(queue: u64) -> sys::CUstream {
    std::ptr::without_provenance_mut(queue as usize)
}
