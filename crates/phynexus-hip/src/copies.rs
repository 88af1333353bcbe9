//! Copies through pinned host memory, and between GPUs.

use std::ptr;

use phynexus::{Result, gpu::Medium};

use crate::{
    context::{Context, Event},
    library::{Handle, Hip},
};

/// Every GPU can access the memory.
const PORTABLE: u32 = 1;
/// The result if peer access was already enabled.
const ALREADY_ENABLED: i32 = 704;

/// Host memory that GPUs access directly.
pub(crate) struct Pinned {
    hip: &'static Hip,
    address: Handle,
    bytes: usize,
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
        // SAFETY: the memory is owned exclusively. After a failure it stays pinned.
        unsafe { (self.hip.runtime.hipHostFree)(self.address) };
    }
}

impl Medium for Context {
    type Pinned = Pinned;
    type Event = Event;

    fn pin(&self, bytes: usize) -> Option<Pinned> {
        self.bind().ok()?;
        let mut address = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipHostMalloc)(&mut address, bytes, PORTABLE) };
        if code != 0 || address.is_null() {
            return None;
        }
        // SAFETY: `bytes` bytes were just allocated.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Some(Pinned { hip: self.hip, address, bytes })
    }

    fn event(&self) -> Result<Event> {
        self.record(false)
    }

    fn has_happened(&self, event: &Event) -> bool {
        event.has_happened()
    }

    fn wait(&self, event: &Event) -> Result<()> {
        self.wait_for(event)
    }
}

impl Context {
    /// Enables access from this GPU, which must be current, to the other's memory, if supported; otherwise the runtime
    /// copies through the host.
    fn reach(&self, other: &Context) -> Result<()> {
        let (runtime, mut can) = (&self.hip.runtime, 0);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (runtime.hipDeviceCanAccessPeer)(&mut can, self.device(), other.device()) };
        self.check("querying peer access between GPUs", code)?;
        if can == 0 {
            return Ok(());
        }
        // SAFETY: the function takes numbers.
        match unsafe { (runtime.hipDeviceEnablePeerAccess)(other.device(), 0) } {
            ALREADY_ENABLED => Ok(()),
            code => self.check("enabling peer access between GPUs", code),
        }
    }

    /// Copies from another GPU: after the work submitted there so far, and before later work there.
    ///
    /// # Safety
    /// Both addresses must be memory of their GPUs with at least `bytes` bytes.
    pub(crate) unsafe fn copy_from(
        &self,
        target: Handle,
        other: &Context,
        source: Handle,
        bytes: usize,
    ) -> Result<()> {
        let runtime = &self.hip.runtime;
        let doing = format!("copying from {}", other.name);
        let range = |address: Handle| address.addr() as u64..(address.addr() + bytes) as u64;
        other.before_read(range(source))?;
        let made = other.record(false)?;
        self.before_write(range(target))?;
        self.bind()?;
        self.reach(other)?;
        // Created before the copy: after it, only the driver itself should be able to fail.
        let done = self.new_event(false)?;
        let submit = || {
            // SAFETY: the stream and the event are valid.
            self.check(&doing, unsafe { (runtime.hipStreamWaitEvent)(self.stream(), made.handle(), 0) })?;
            // SAFETY: guaranteed by the caller.
            let code = unsafe {
                let (to, from) = (self.device(), other.device());
                (runtime.hipMemcpyPeerAsync)(target, to, source, from, bytes, self.stream())
            };
            self.check(&doing, code)?;
            self.record_as(&done)?;
            other.bind()?;
            // SAFETY: as above. The source may be freed and overwritten as soon as its own stream continues.
            self.check(&doing, unsafe { (runtime.hipStreamWaitEvent)(other.stream(), done.handle(), 0) })
        };
        // If the source's stream does not wait for the copy, the host does, because the source may be freed next.
        submit().inspect_err(|_| drop(self.synchronize()))
    }
}
