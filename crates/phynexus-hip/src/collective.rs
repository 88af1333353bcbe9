//! Collectives by RCCL. Untested on hardware.

use std::{ffi::c_void, ops::Range};

use phynexus::{Error, Result, gpu::Submission};
use phynexus_nccl::{Endpoint, Library, Routine, Streams, Touched, Vendor};

use crate::{
    context::{Context, Event},
    gpu::{HipGpu, addresses},
    library,
};

/// Memory that a launch may touch.
pub(crate) fn touched(submission: &Submission<'_, HipGpu>) -> Vec<Touched> {
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
        self.stream()
    }

    fn create(&self) -> Result<*mut c_void> {
        self.new_stream()
    }

    fn event(&self) -> Result<Event> {
        self.new_event(false)
    }

    unsafe fn record(&self, event: &Event, stream: *mut c_void) -> Result<()> {
        // SAFETY: the event is valid, and the caller guarantees that the stream is.
        self.check("recording an event", unsafe { (self.hip.runtime.hipEventRecord)(event.handle(), stream) })
    }

    unsafe fn follow(&self, event: &Event, stream: *mut c_void) -> Result<()> {
        // SAFETY: the event is valid, and the caller guarantees that the stream is.
        self.check("waiting for an event", unsafe {
            (self.hip.runtime.hipStreamWaitEvent)(stream, event.handle(), 0)
        })
    }

    fn has_happened(&self, event: &Event) -> bool {
        event.has_happened()
    }
}

impl HipGpu {
    /// Submits a collective.
    pub(crate) fn launch_collective(
        &self,
        routine: &Routine,
        submission: &Submission<'_, HipGpu>,
    ) -> Result<()> {
        let &[operand, result] = &addresses(submission)[..] else {
            return Err(Error::internal("phynexus_hip", "a collective has an operand and a result"));
        };
        let context = &*self.context;
        // SAFETY: the plan binds memory of the operand and of the result, which do not overlap. Copies, launches and the
        // end of blocks ask for collectives first.
        unsafe { context.collectives.submit(context, self, routine, [operand, result]) }
    }
}

impl Endpoint for HipGpu {
    fn name(&self) -> &str {
        &self.context.name
    }

    fn vendor(&self) -> Vendor {
        Vendor::Amd
    }

    fn library(&self) -> Result<&'static Library, String> {
        library::rccl()
    }

    fn unique_number(&self) -> Result<[u8; 16]> {
        let context = &self.context;
        let missing = || {
            let message = "the runtime lacks hipDeviceGetUuid: a newer ROCm is required".to_owned();
            Error::Device { device: context.name.clone(), message }
        };
        let function = context.hip.unique_number.ok_or_else(missing)?;
        let mut number = [0; 16];
        // SAFETY: the number has 16 bytes.
        context.check("reading the GPU's number", unsafe {
            function(number.as_mut_ptr().cast(), context.device())
        })?;
        Ok(number)
    }

    fn ordinal(&self) -> u32 {
        self.context.device() as u32
    }

    fn bind(&self) -> Result<()> {
        self.context.bind()
    }

    /// RCCL shares memory of `hipMalloc` itself.
    fn share(&self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    unsafe fn zero(&self, address: u64, bytes: usize, stream: *mut c_void) -> Result<()> {
        let address = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: guaranteed by the caller.
        self.context.check("filling memory with zeros", unsafe {
            (self.context.hip.runtime.hipMemsetAsync)(address, 0, bytes, stream)
        })
    }
}
