//! A GPU: its properties, its stream and its modules.

use std::{
    ffi::{CStr, CString, c_void},
    ops::Range,
    ptr,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use cudarc::driver::{
    DriverError,
    result::{self, event, module, stream},
    sys::{self, CUdevice_attribute as Attribute},
};
use phynexus::{Error, Result, gpu::NotCompiled, kernel::loops::Kernel};
use phynexus_nccl::Collectives;
use smallvec::SmallVec;

use crate::versions::Version;

/// A GPU with its primary context and one stream that runs everything in order.
pub(crate) struct Context {
    pub(crate) name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The driver's memory pool, which allocates and frees in stream order.
    pool: Option<sys::CUmemoryPool>,
    /// The names of the GPUs whose memory this one can read.
    reached: Mutex<Vec<String>>,
    pub(crate) collectives: Collectives<Event>,
}

// SAFETY: the driver's handles may be used from any thread; each call first makes the context current on its thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A kernel's machine code on the device, with its launch configuration.
pub(crate) struct Module {
    function: sys::CUfunction,
    module: sys::CUmodule,
    block: [u32; 3],
    shared_bytes: u32,
    /// Whether all groups must run at once.
    is_cooperative: bool,
    context: sys::CUcontext,
}

/// The buffer addresses of a launch.
pub(crate) type Addresses = SmallVec<[sys::CUdeviceptr; 8]>;

// SAFETY: as for the context.
unsafe impl Send for Module {}
// SAFETY: as for the context.
unsafe impl Sync for Module {}

/// A point in the stream's work, optionally with a timestamp.
pub(crate) struct Event(sys::CUevent);

// SAFETY: as for the context.
unsafe impl Send for Event {}
// SAFETY: as for the context.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event without a timestamp in the current context. It is not in a stream yet.
    pub(crate) fn new() -> Result<Event, DriverError> {
        event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map(Event)
    }

    pub(crate) fn handle(&self) -> sys::CUevent {
        self.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this is the only handle of the event; the driver keeps it until the stream has passed it.
        let _ = unsafe { event::destroy(self.0) };
    }
}

/// Initialises the driver. Returns its version and the number of GPUs that it reports.
pub(crate) fn start() -> Result<(Version, usize), String> {
    let words = |error: DriverError| format!("NVIDIA's driver does not start: {}", describe(error));
    result::init().map_err(words)?;
    let count = result::device::get_count().map_err(words)?;
    Ok((Version::of_driver().map_err(words)?, usize::try_from(count).unwrap_or(0)))
}

/// The compute capability of a GPU by its number, such as (9, 0) for Hopper. Does not open the GPU.
pub(crate) fn capability(number: usize) -> Result<(usize, usize), String> {
    let device = result::device::get(number as i32).map_err(describe)?;
    let part = |attribute| {
        // SAFETY: the device exists.
        let value = unsafe { result::device::get_attribute(device, attribute) }.map_err(describe)?;
        Ok::<_, String>(usize::try_from(value).unwrap_or(0))
    };
    Ok((
        part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// The text of a driver error.
fn describe(error: DriverError) -> String {
    let words =
        |text: Result<&CStr, DriverError>| text.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{} ({})", words(error.error_string()), words(error.error_name()))
}

/// Whether these bytes are pageable memory. The driver recognises page-locked and managed memory regardless of who
/// allocated it. A context must be current.
pub(crate) fn is_ordinary(bytes: &[u8]) -> bool {
    let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut kind = 0u32;
    let mut place: *mut c_void = ptr::from_mut(&mut kind).cast();
    let address = bytes.as_ptr().addr() as sys::CUdeviceptr;
    // SAFETY: the pointers are valid for the call, and the attribute's value is a 32-bit integer.
    let asked = unsafe { sys::cuPointerGetAttributes(1, &mut attribute, &mut place, address) };
    // This function reports 0 for unknown memory; the one for a single attribute would return an error.
    asked == sys::CUresult::CUDA_SUCCESS && kind == 0
}

/// A driver function that returns the milliseconds between two events.
type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Milliseconds between two events.
///
/// # Safety
/// The events must be valid.
unsafe fn elapsed(from: sys::CUevent, to: sys::CUevent) -> Result<f32, DriverError> {
    // cudarc calls only the first name, which drivers provide from CUDA 12.8 on, and panics if it is missing.
    static FUNCTION: OnceLock<Option<Elapsed>> = OnceLock::new();
    let find = |name: &str| {
        // SAFETY: the driver stays open, and the function has this type under both names.
        let found = unsafe { sys::culib().get::<Elapsed>(name) };
        found.ok().map(|function| *function)
    };
    let names = ["cuEventElapsedTime_v2", "cuEventElapsedTime"];
    let function = *FUNCTION.get_or_init(|| names.into_iter().find_map(find));
    let function = function.ok_or(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND))?;
    let mut milliseconds = 0.0;
    // SAFETY: the pointer is valid for the call, and the caller guarantees that the events are valid.
    unsafe { function(&mut milliseconds, from, to) }.result()?;
    Ok(milliseconds)
}

impl Context {
    /// Opens the GPU with this number.
    pub(crate) fn new(number: usize) -> Result<Context> {
        let name = format!("cuda:{number}");
        let error = |e: DriverError| Error::Device { device: name.clone(), message: describe(e) };
        let device = result::device::get(number as i32).map_err(error)?;
        // SAFETY: the device exists; the context lives as long as the process.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(error)?;
        // SAFETY: the context was just created.
        unsafe { result::ctx::set_current(context) }.map_err(error)?;
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(error)?;
        let (reached, collectives) = (Mutex::default(), Collectives::default());
        let mut made = Context { name, device, context, stream, pool: None, reached, collectives };
        // Drivers that do not know the attribute lack the function too.
        if made.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == Some(1) {
            let mut pool = ptr::null_mut();
            // SAFETY: the device exists, and the pointer is valid for the call.
            let found = unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) };
            made.pool = found.result().is_ok().then_some(pool);
        }
        Ok(made)
    }

    /// A driver error with a description of the operation.
    pub(crate) fn error(&self, doing: &str, error: DriverError) -> Error {
        Error::Device { device: self.name.clone(), message: format!("{doing}: {}", describe(error)) }
    }

    /// Makes the context current on this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| self.error("making the GPU current", e))
    }

    /// The context's handle.
    pub(crate) fn handle(&self) -> sys::CUcontext {
        self.context
    }

    /// The driver's handle of the device.
    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// The driver's memory pool, if supported.
    pub(crate) fn memory_pool(&self) -> Option<sys::CUmemoryPool> {
        self.pool
    }

    /// The names of the GPUs whose memory this one can read.
    pub(crate) fn reached(&self) -> MutexGuard<'_, Vec<String>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory, or returns `None` if it does not fit. Allocates in stream order if the driver supports it, to
    /// avoid synchronisation.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<sys::CUdeviceptr> {
        self.bind().ok()?;
        match self.pool {
            // SAFETY: the stream lives as long as the process.
            Some(_) => unsafe { result::malloc_async(self.stream, bytes) }.ok(),
            // SAFETY: the context is current.
            None => unsafe { result::malloc_sync(bytes) }.ok(),
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The range must begin at an address of [`Context::allocate`], be the only reference to the block, and be used only
    /// by work on this stream and by collectives.
    pub(crate) unsafe fn free(&self, range: Range<u64>) {
        let address = range.start;
        // A failure leaves the block allocated.
        if self.bind().is_ok() && self.before_write(range).is_ok() {
            let _ = match self.pool {
                // SAFETY: guaranteed by the caller; the pool reclaims the memory when the stream reaches this point.
                Some(_) => unsafe { result::free_async(address, self.stream) },
                None => {
                    // The driver waits, too, but not with the time limit of collectives. After a failure they have been
                    // aborted.
                    let _ = self.collectives.watch_all(self);
                    // SAFETY: guaranteed by the caller; the driver waits for kernels that still use the memory.
                    unsafe { result::free_sync(address) }
                }
            };
        }
    }

    /// Releases the pool's unused memory.
    pub(crate) fn trim(&self) {
        if let Some(pool) = self.pool
            && self.synchronize().is_ok()
        {
            // SAFETY: the pool is this device's. After a failure the memory stays in the pool for later allocations.
            let _ = unsafe { sys::cuMemPoolTrimTo(pool, 0) };
        }
    }

    /// The stream.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// An attribute of the device; `None` if the driver does not report it.
    pub(crate) fn attribute(&self, attribute: Attribute) -> Option<usize> {
        // SAFETY: the device exists.
        let value = unsafe { result::device::get_attribute(self.device, attribute) };
        value.ok().and_then(|v| usize::try_from(v).ok())
    }

    /// The compute capability, such as (9, 0) for Hopper.
    pub(crate) fn capability(&self) -> (usize, usize) {
        let part = |attribute| self.attribute(attribute).unwrap_or(0);
        (
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
    }

    /// NVIDIA's model name.
    pub(crate) fn model(&self) -> Option<String> {
        result::device::get_name(self.device).ok()
    }

    /// Total memory in bytes.
    pub(crate) fn total_memory(&self) -> Option<u64> {
        // SAFETY: the device exists.
        unsafe { result::device::total_mem(self.device) }.ok().map(|bytes| bytes as u64)
    }

    /// Waits until all submitted work has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.bind()?;
        self.collectives.watch_all(self)?;
        // SAFETY: the stream lives as long as the process.
        unsafe { stream::synchronize(self.stream) }.map_err(|e| self.error("waiting for kernels", e))
    }

    /// Records an event after everything submitted so far, optionally with a timestamp.
    pub(crate) fn record(&self, timed: bool) -> Result<Event> {
        // SAFETY: the stream lives as long as the process.
        unsafe { self.record_in(self.stream, timed) }
    }

    /// Like [`record`](Context::record), for an arbitrary stream.
    ///
    /// # Safety
    /// The stream must belong to this device.
    pub(crate) unsafe fn record_in(&self, stream: sys::CUstream, timed: bool) -> Result<Event> {
        self.bind()?;
        let error = |e: DriverError| self.error("recording an event", e);
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let event = Event(event::create(flags).map_err(error)?);
        // SAFETY: the event was just created, and the caller guarantees that the stream is valid.
        unsafe { event::record(event.0, stream) }.map_err(error)?;
        Ok(event)
    }

    /// Milliseconds between two events; waits for the second.
    pub(crate) fn elapsed(&self, from: &Event, to: &Event) -> Result<f32> {
        self.bind()?;
        self.collectives.watch(self, to)?;
        // SAFETY: both events are valid and were recorded in the same stream.
        unsafe { event::synchronize(to.0).and_then(|()| elapsed(from.0, to.0)) }
            .map_err(|e| self.error("reading the GPU's time", e))
    }

    /// Loads machine code and looks up its kernel.
    pub(crate) fn load(&self, code: &[u8], kernel: &Kernel) -> Result<Module, NotCompiled> {
        let mut loaded = self.load_named(code, &kernel.name, kernel.launched_block())?;
        let shared_bytes = kernel.shared_bytes();
        loaded.shared_bytes = shared_bytes as u32;
        loaded.is_cooperative = kernel.has_grid_barriers();
        if shared_bytes > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function was just looked up.
            unsafe { result::function::set_function_attribute(loaded.function, attribute, bytes) }
                .map_err(|e| self.not_loaded(&kernel.name, code.len(), e))?;
        }
        Ok(loaded)
    }

    /// Loads machine code and looks up the kernel with this name, to be launched with this block size.
    pub(crate) fn load_named(
        &self,
        code: &[u8],
        kernel: &str,
        block: [usize; 3],
    ) -> Result<Module, NotCompiled> {
        self.bind()?;
        let error = |e: DriverError| self.not_loaded(kernel, code.len(), e);
        let name = CString::new(kernel)
            .map_err(|_| Error::internal("phynexus_cuda", "a kernel's name has a zero"))?;
        // SAFETY: NVRTC compiled the code for this device; the driver copies it.
        let module = unsafe { module::load_data(code.as_ptr().cast()) }.map_err(error)?;
        // SAFETY: the module was just loaded.
        let function = unsafe { module::get_function(module, name) }.map_err(|e| {
            // SAFETY: the module is unused.
            let _ = unsafe { module::unload(module) };
            error(e)
        })?;
        Ok(Module {
            function,
            module,
            block: block.map(|extent| extent as u32),
            shared_bytes: 0,
            is_cooperative: false,
            context: self.context,
        })
    }

    /// Classifies a failure to load machine code: the driver refuses the code itself, memory is exhausted, or something
    /// else failed, possibly earlier work.
    fn not_loaded(&self, kernel: &str, bytes: usize, error: DriverError) -> NotCompiled {
        use sys::cudaError_enum as Code;
        match error.0 {
            Code::CUDA_ERROR_OUT_OF_MEMORY => NotCompiled::out_of_memory(&self.name, bytes),
            Code::CUDA_ERROR_INVALID_VALUE
            | Code::CUDA_ERROR_INVALID_IMAGE
            | Code::CUDA_ERROR_NO_BINARY_FOR_GPU
            | Code::CUDA_ERROR_INVALID_PTX
            | Code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | Code::CUDA_ERROR_INVALID_SOURCE
            | Code::CUDA_ERROR_NOT_FOUND => {
                NotCompiled::Refused(format!("loading kernel {kernel}: {}", describe(error)))
            }
            _ => NotCompiled::Failed(self.error(&format!("loading kernel {kernel}"), error)),
        }
    }

    /// Submits a kernel. The context must be current.
    ///
    /// # Safety
    /// The parameters must point to values of the kernel's, with buffers that are valid for its accesses.
    pub(crate) unsafe fn launch(
        &self,
        module: &Module,
        kernel: &Kernel,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let [grid, block] = [grid_of(kernel), module.block].map(|[x, y, z]| (x, y, z));
        let bytes = module.shared_bytes;
        let launch = match module.is_cooperative {
            true => result::launch_cooperative_kernel,
            false => result::launch_kernel,
        };
        // SAFETY: guaranteed by the caller; the driver copies the parameters.
        unsafe { launch(module.function, grid, block, bytes, self.stream, parameters) }
            .map_err(|e| self.error("launching a kernel", e))
    }

    /// Submits `groups` blocks of a kernel with these parameters. The context must be current.
    ///
    /// # Safety
    /// There must be as many parameters as the kernel has, each a pointer to a value of its type.
    pub(crate) unsafe fn launch_groups(
        &self,
        module: &Module,
        groups: [usize; 3],
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let [grid, block] = [groups.map(|n| n as u32), module.block].map(|[x, y, z]| (x, y, z));
        // SAFETY: guaranteed by the caller; the driver copies the parameters.
        unsafe { result::launch_kernel(module.function, grid, block, 0, self.stream, parameters) }
            .map_err(|e| self.error("launching a kernel", e))
    }
}

/// The number of groups. Kernels that share a module may have different ones.
fn grid_of(kernel: &Kernel) -> [u32; 3] {
    kernel.grid().map(|extent| extent as u32)
}

impl Module {
    /// What a graph node of this kernel has besides its parameters.
    pub(crate) fn attribute(&self) -> Option<(sys::CUlaunchAttributeID, sys::CUlaunchAttributeValue)> {
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        self.is_cooperative.then_some((id, sys::CUlaunchAttributeValue { cooperative: 1 }))
    }

    /// The launch as a graph node. The parameters must outlive its use.
    pub(crate) fn node(
        &self,
        kernel: &Kernel,
        parameters: &mut [*mut c_void],
    ) -> sys::CUDA_KERNEL_NODE_PARAMS {
        let [x, y, z] = grid_of(kernel);
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            kernelParams: parameters.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the context is the module's own and lives as long as the process. This is the only handle of the
        // module. The driver waits for a launch that is still running. After a failure the module stays loaded, which
        // is harmless.
        let _ = unsafe { result::ctx::set_current(self.context).and_then(|()| module::unload(self.module)) };
    }
}
