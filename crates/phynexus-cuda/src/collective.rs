//! Collectives by NCCL.

use std::{ffi::c_void, ops::Range};

use cudarc::driver::{
    DriverError,
    result::{self, event, stream},
    sys,
};
use phynexus::{
    Error, Result,
    gpu::{Medium, Submission},
};
use phynexus_nccl::{Endpoint, Library, Routine, Streams, Touched, Vendor};

use crate::{
    context::{Context, Event},
    gpu::Cuda,
    library,
    parameters::addresses,
};

/// Memory that a launch may touch.
pub(crate) fn touched(submission: &Submission<'_, Cuda>) -> Vec<Touched> {
    Touched::by(submission.kernel, &addresses(submission))
}

impl Context {
    /// Call this before submitting something that reads this memory.
    pub(crate) fn before_read(&self, range: Range<u64>) -> Result<()> {
        self.collectives.before_read(self, range)
    }

    /// Call this before submitting something that writes this memory.
    pub(crate) fn before_write(&self, range: Range<u64>) -> Result<()> {
        self.collectives.before_write(self, range)
    }
}

impl Streams for Context {
    type Event = Event;

    fn bind(&self) -> Result<()> {
        self.bind()
    }

    fn first(&self) -> *mut c_void {
        self.stream().cast()
    }

    fn create(&self) -> Result<*mut c_void> {
        let made = stream::create(stream::StreamKind::NonBlocking);
        made.map(|made| made.cast()).map_err(|e| self.error("making a stream for collectives", e))
    }

    fn event(&self) -> Result<Event> {
        Event::new().map_err(|e| self.error("making an event", e))
    }

    unsafe fn record(&self, event: &Event, stream: *mut c_void) -> Result<()> {
        // SAFETY: the event is valid, and the caller guarantees that the stream is.
        unsafe { event::record(event.handle(), stream.cast()) }
            .map_err(|e| self.error("recording an event", e))
    }

    unsafe fn follow(&self, event: &Event, stream: *mut c_void) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event is valid, and the caller guarantees that the stream is.
        unsafe { stream::wait_event(stream.cast(), event.handle(), flags) }
            .map_err(|e| self.error("waiting for an event", e))
    }

    fn has_happened(&self, event: &Event) -> bool {
        Medium::has_happened(self, event)
    }
}

impl Cuda {
    /// Submits a collective.
    pub(crate) fn launch_collective(
        &self,
        routine: &Routine,
        submission: &Submission<'_, Cuda>,
    ) -> Result<()> {
        let &[operand, result] = &addresses(submission)[..] else {
            return Err(Error::internal("phynexus_cuda", "a collective has an operand and a result"));
        };
        let context = &*self.context;
        // SAFETY: the plan binds memory of the operand and of the result, which do not overlap. Copies, launches and the
        // end of blocks ask for collectives first.
        unsafe { context.collectives.submit(context, self, routine, [operand, result]) }
    }
}

impl Endpoint for Cuda {
    fn name(&self) -> &str {
        &self.context.name
    }

    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }

    fn library(&self) -> Result<&'static Library, String> {
        library::nccl()
    }

    fn unique_number(&self) -> Result<[u8; 16]> {
        let number = result::device::get_uuid(self.context.device());
        let number = number.map_err(|e| self.context.error("reading the GPU's number", e))?;
        Ok(number.bytes.map(|byte| byte as u8))
    }

    fn ordinal(&self) -> u32 {
        self.context.device() as u32
    }

    fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    fn share(&self, ordinals: &[u32]) -> Result<()> {
        let context = &self.context;
        let error = |e: DriverError| context.error("sharing memory with another GPU", e);
        // NCCL shares other memory itself.
        let Some(pool) = context.memory_pool() else { return Ok(()) };
        for &ordinal in ordinals {
            let other = result::device::get(ordinal as i32).map_err(error)?;
            let mut can = 0;
            // SAFETY: both devices exist, and the pointer is valid for the call.
            unsafe { sys::cuDeviceCanAccessPeer(&mut can, other, context.device()) }
                .result()
                .map_err(error)?;
            if can != 0 {
                // SAFETY: the pool is this GPU's.
                unsafe { grant(pool, other) }.map_err(error)?;
            }
        }
        Ok(())
    }

    unsafe fn zero(&self, address: u64, bytes: usize, stream: *mut c_void) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { result::memset_d8_async(address, 0, bytes, stream.cast()) }
            .map_err(|e| self.context.error("filling memory with zeros", e))
    }
}

/// Lets a device read and write a pool's memory.
///
/// # Safety
/// The pool must be valid, and the device able to reach its device.
pub(crate) unsafe fn grant(pool: sys::CUmemoryPool, device: sys::CUdevice) -> Result<(), DriverError> {
    let location =
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access = sys::CUmemAccessDesc { location, flags };
    // SAFETY: guaranteed by the caller; the description is read during the call.
    unsafe { sys::cuMemPoolSetAccess(pool, &access, 1) }.result()
}
