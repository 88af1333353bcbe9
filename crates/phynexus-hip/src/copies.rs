//! Copies: through pinned memory of the host, and from one GPU to another.

use std::ptr;

use phynexus::{Result, gpu::Medium};

use crate::{
    context::{Context, Event},
    library::{Handle, Hip},
};

/// Every GPU reads and writes it.
const PORTABLE: u32 = 1;
/// What is answered where access was allowed before.
const ALREADY_ENABLED: i32 = 704;

/// Memory of the host that GPUs read and write by themselves.
pub(crate) struct Pinned {
    hip: &'static Hip,
    address: Handle,
    bytes: usize,
}

// SAFETY: it is memory that nobody else has.
unsafe impl Send for Pinned {}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: so many bytes were allocated, and set when they were.
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
        // SAFETY: nobody else has the memory. A failure leaves it pinned.
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
        // SAFETY: so many bytes were just allocated.
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
    /// Lets this GPU, which is current, read the other's memory where the two can; else the runtime copies through the
    /// host.
    fn reach(&self, other: &Context) -> Result<()> {
        let (runtime, mut can) = (&self.hip.runtime, 0);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (runtime.hipDeviceCanAccessPeer)(&mut can, self.device(), other.device()) };
        self.check("asking for a way between GPUs", code)?;
        if can == 0 {
            return Ok(());
        }
        // SAFETY: it takes numbers.
        match unsafe { (runtime.hipDeviceEnablePeerAccess)(other.device(), 0) } {
            ALREADY_ENABLED => Ok(()),
            code => self.check("opening a way between GPUs", code),
        }
    }

    /// Copies from another GPU, after what was submitted there before and before what is submitted there later.
    ///
    /// # Safety
    /// Both addresses are memory of their GPUs with so many bytes.
    pub(crate) unsafe fn copy_from(
        &self,
        target: Handle,
        other: &Context,
        source: Handle,
        bytes: usize,
    ) -> Result<()> {
        let runtime = &self.hip.runtime;
        let doing = format!("copying from {}", other.name);
        let made = other.record(false)?;
        self.bind()?;
        self.reach(other)?;
        // Made before the copy, behind which nothing but the driver itself should be able to fail.
        let done = self.new_event(false)?;
        let submit = || {
            // SAFETY: stream and event are valid.
            self.check(&doing, unsafe { (runtime.hipStreamWaitEvent)(self.stream(), made.handle(), 0) })?;
            // SAFETY: the caller's promise.
            let code = unsafe {
                let (to, from) = (self.device(), other.device());
                (runtime.hipMemcpyPeerAsync)(target, to, source, from, bytes, self.stream())
            };
            self.check(&doing, code)?;
            self.record_as(&done)?;
            other.bind()?;
            // SAFETY: as above. The source may be given back and overwritten as soon as its own stream goes on.
            self.check(&doing, unsafe { (runtime.hipStreamWaitEvent)(other.stream(), done.handle(), 0) })
        };
        // Where the source's stream does not wait for the copy, the host does: the source may be given back next.
        submit().inspect_err(|_| drop(self.synchronize()))
    }
}
