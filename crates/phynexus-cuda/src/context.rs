//! A GPU: its figures, its stream, the modules on it.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use cudarc::driver::{
    DriverError,
    result::{self, event, module, stream},
    sys::{self, CUdevice_attribute as Attribute},
};
use phynexus::{Error, Result, gpu::NotCompiled, kernel::loops::Kernel};
use smallvec::SmallVec;

use crate::versions::Version;

/// A GPU with its primary context and one stream, on which everything runs in order.
pub(crate) struct Context {
    pub(crate) name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The driver's pool, where memory can be taken and given back in the order of the stream.
    pool: Option<sys::CUmemoryPool>,
    /// The GPUs whose memory this one was let read, by name.
    reached: Mutex<Vec<String>>,
}

// SAFETY: handles of the driver may be used from any thread; each call makes the context current on its thread first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A kernel's machine code on the device, and how it is launched.
pub(crate) struct Module {
    function: sys::CUfunction,
    module: sys::CUmodule,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    context: sys::CUcontext,
}

/// The buffers of a launch.
pub(crate) type Addresses = SmallVec<[sys::CUdeviceptr; 8]>;

// SAFETY: as for the context.
unsafe impl Send for Module {}
// SAFETY: as for the context.
unsafe impl Sync for Module {}

/// A point in the stream's work, with its time.
pub(crate) struct Event(sys::CUevent);

// SAFETY: as for the context.
unsafe impl Send for Event {}

impl Event {
    /// One without a time, of the current context, that is in no stream yet.
    pub(crate) fn new() -> Result<Event, DriverError> {
        event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map(Event)
    }

    pub(crate) fn handle(&self) -> sys::CUevent {
        self.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has the event; the driver keeps it until the stream has passed it.
        let _ = unsafe { event::destroy(self.0) };
    }
}

/// Starts the driver: its version, and how many GPUs it shows.
pub(crate) fn start() -> Result<(Version, usize), String> {
    let words = |error: DriverError| format!("NVIDIA's driver does not start: {}", describe(error));
    result::init().map_err(words)?;
    let count = result::device::get_count().map_err(words)?;
    Ok((Version::of_driver().map_err(words)?, usize::try_from(count).unwrap_or(0)))
}

/// The compute capability of the GPU with this number, 9 and 0 for a Hopper. It need not be opened for that.
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

/// An error of the driver in words.
fn describe(error: DriverError) -> String {
    let words =
        |text: Result<&CStr, DriverError>| text.map(|t| t.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{} ({})", words(error.error_string()), words(error.error_name()))
}

/// Whether these bytes are ordinary memory. The driver knows page-locked and managed memory, whoever made it. A context
/// must be current.
pub(crate) fn is_ordinary(bytes: &[u8]) -> bool {
    let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut kind = 0u32;
    let mut place: *mut c_void = ptr::from_mut(&mut kind).cast();
    let address = bytes.as_ptr().addr() as sys::CUdeviceptr;
    // SAFETY: the pointers are valid for the call, and the attribute's value is a number of 32 bits.
    let asked = unsafe { sys::cuPointerGetAttributes(1, &mut attribute, &mut place, address) };
    // Of memory that it does not know, this function says 0; the one for a single attribute would make an error of it.
    asked == sys::CUresult::CUDA_SUCCESS && kind == 0
}

/// A function of the driver's for the milliseconds between two events.
type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Milliseconds between two events.
///
/// # Safety
/// The events are there.
unsafe fn elapsed(from: sys::CUevent, to: sys::CUevent) -> Result<f32, DriverError> {
    // cudarc calls the first name only, which drivers have from CUDA 12.8 on, and panics where it is missing.
    static FUNCTION: OnceLock<Option<Elapsed>> = OnceLock::new();
    let find = |name: &str| {
        // SAFETY: the driver stays open, and under both names the function has this type.
        let found = unsafe { sys::culib().get::<Elapsed>(name) };
        found.ok().map(|function| *function)
    };
    let names = ["cuEventElapsedTime_v2", "cuEventElapsedTime"];
    let function = *FUNCTION.get_or_init(|| names.into_iter().find_map(find));
    let function = function.ok_or(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND))?;
    let mut milliseconds = 0.0;
    // SAFETY: the pointer is valid for the call; the events are there by the caller's promise.
    unsafe { function(&mut milliseconds, from, to) }.result()?;
    Ok(milliseconds)
}

impl Context {
    /// The GPU with this number, made ready.
    pub(crate) fn new(number: usize) -> Result<Context> {
        let name = format!("cuda:{number}");
        let error = |e: DriverError| Error::Device { device: name.clone(), message: describe(e) };
        let device = result::device::get(number as i32).map_err(error)?;
        // SAFETY: the device exists; the context lives as long as the process.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(error)?;
        // SAFETY: the context was just made.
        unsafe { result::ctx::set_current(context) }.map_err(error)?;
        let stream = stream::create(stream::StreamKind::NonBlocking).map_err(error)?;
        let mut made = Context { name, device, context, stream, pool: None, reached: Mutex::default() };
        // Drivers that do not know the figure do not know the function either.
        if made.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == Some(1) {
            let mut pool = ptr::null_mut();
            // SAFETY: the device exists, and the pointer is valid for the call.
            let found = unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) };
            made.pool = found.result().is_ok().then_some(pool);
        }
        Ok(made)
    }

    /// An error of the driver, with what was done.
    pub(crate) fn error(&self, doing: &str, error: DriverError) -> Error {
        Error::Device { device: self.name.clone(), message: format!("{doing}: {}", describe(error)) }
    }

    /// Makes the context this thread's.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(self.context) }.map_err(|e| self.error("making the GPU current", e))
    }

    /// The context's own handle.
    pub(crate) fn handle(&self) -> sys::CUcontext {
        self.context
    }

    /// The device's number for the driver.
    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// The driver's pool, if it has one.
    pub(crate) fn memory_pool(&self) -> Option<sys::CUmemoryPool> {
        self.pool
    }

    /// The GPUs whose memory this one was let read.
    pub(crate) fn reached(&self) -> MutexGuard<'_, Vec<String>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes, if there is room: in the order of the stream where the driver can, so that nothing is waited for.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<sys::CUdeviceptr> {
        self.bind().ok()?;
        match self.pool {
            // SAFETY: the stream lives as long as the process.
            Some(_) => unsafe { result::malloc_async(self.stream, bytes) }.ok(),
            // SAFETY: the context is current.
            None => unsafe { result::malloc_sync(bytes) }.ok(),
        }
    }

    /// Gives back a block.
    ///
    /// # Safety
    /// The address came from [`Context::allocate`], nobody else has it, and only work of this stream uses it.
    pub(crate) unsafe fn free(&self, address: sys::CUdeviceptr) {
        // A failure leaves the block allocated.
        if self.bind().is_ok() {
            let _ = match self.pool {
                // SAFETY: the caller's promise; the pool takes it back when the stream has come so far.
                Some(_) => unsafe { result::free_async(address, self.stream) },
                // SAFETY: the caller's promise; the driver waits for kernels that still use it.
                None => unsafe { result::free_sync(address) },
            };
        }
    }

    /// Lets the driver's pool give back what nobody uses.
    pub(crate) fn trim(&self) {
        if let Some(pool) = self.pool
            && self.synchronize().is_ok()
        {
            // SAFETY: the pool is this device's. A failure leaves memory in it, where the next request finds it.
            let _ = unsafe { sys::cuMemPoolTrimTo(pool, 0) };
        }
    }

    /// The stream.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// A figure of the device; absent if the driver does not tell.
    pub(crate) fn attribute(&self, attribute: Attribute) -> Option<usize> {
        // SAFETY: the device exists.
        let value = unsafe { result::device::get_attribute(self.device, attribute) };
        value.ok().and_then(|v| usize::try_from(v).ok())
    }

    /// The compute capability: 9 and 0 for a Hopper.
    pub(crate) fn capability(&self) -> (usize, usize) {
        let part = |attribute| self.attribute(attribute).unwrap_or(0);
        (
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
    }

    /// The model as NVIDIA names it.
    pub(crate) fn model(&self) -> Option<String> {
        result::device::get_name(self.device).ok()
    }

    /// Bytes of memory.
    pub(crate) fn total_memory(&self) -> Option<u64> {
        // SAFETY: the device exists.
        unsafe { result::device::total_mem(self.device) }.ok().map(|bytes| bytes as u64)
    }

    /// Waits until everything submitted has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the stream lives as long as the process.
        unsafe { stream::synchronize(self.stream) }.map_err(|e| self.error("waiting for kernels", e))
    }

    /// An event behind everything submitted so far, with the time at which it happens or without.
    pub(crate) fn record(&self, timed: bool) -> Result<Event> {
        // SAFETY: the stream lives as long as the process.
        unsafe { self.record_in(self.stream, timed) }
    }

    /// As [`record`](Context::record), behind what was submitted to some stream.
    ///
    /// # Safety
    /// The stream is one of this device's.
    pub(crate) unsafe fn record_in(&self, stream: sys::CUstream, timed: bool) -> Result<Event> {
        self.bind()?;
        let error = |e: DriverError| self.error("recording an event", e);
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let event = Event(event::create(flags).map_err(error)?);
        // SAFETY: the event was just made; the stream is there by the caller's promise.
        unsafe { event::record(event.0, stream) }.map_err(error)?;
        Ok(event)
    }

    /// Milliseconds between two events; waits for the second.
    pub(crate) fn elapsed(&self, from: &Event, to: &Event) -> Result<f32> {
        self.bind()?;
        // SAFETY: both events are there and were recorded in the same stream.
        unsafe { event::synchronize(to.0).and_then(|()| elapsed(from.0, to.0)) }
            .map_err(|e| self.error("reading the GPU's time", e))
    }

    /// Loads machine code and finds its kernel.
    pub(crate) fn load(&self, code: &[u8], kernel: &Kernel) -> Result<Module, NotCompiled> {
        let mut loaded = self.load_named(code, &kernel.name, kernel.block())?;
        loaded.grid = kernel.grid().map(|extent| extent as u32);
        let shared_bytes = kernel.shared_bytes();
        loaded.shared_bytes = shared_bytes as u32;
        if shared_bytes > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function was just found.
            unsafe { result::function::set_function_attribute(loaded.function, attribute, bytes) }
                .map_err(|e| self.not_loaded(&kernel.name, code.len(), e))?;
        }
        Ok(loaded)
    }

    /// Loads machine code and finds the kernel of this name, which is launched with groups of this size.
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
        // SAFETY: the code is what NVRTC made for this device; the driver copies it.
        let module = unsafe { module::load_data(code.as_ptr().cast()) }.map_err(error)?;
        // SAFETY: the module was just loaded.
        let function = unsafe { module::get_function(module, name) }.map_err(|e| {
            // SAFETY: nobody has used the module.
            let _ = unsafe { module::unload(module) };
            error(e)
        })?;
        Ok(Module {
            function,
            module,
            grid: [1; 3],
            block: block.map(|extent| extent as u32),
            shared_bytes: 0,
            context: self.context,
        })
    }

    /// Why so many bytes of machine code are not loaded: the driver refuses the code itself, there is no room for it, or
    /// something failed, perhaps what was submitted before.
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
    /// The addresses are those of the kernel's buffer parameters, in order and valid for what it accesses.
    pub(crate) unsafe fn launch(&self, module: &Module, addresses: &mut Addresses) -> Result<()> {
        let mut parameters = parameters(addresses);
        let [grid, block] = [module.grid, module.block].map(|[x, y, z]| (x, y, z));
        let bytes = module.shared_bytes;
        // SAFETY: the caller's promise; the driver copies the parameters.
        unsafe { result::launch_kernel(module.function, grid, block, bytes, self.stream, &mut parameters) }
            .map_err(|e| self.error("launching a kernel", e))
    }

    /// Submits so many groups of a kernel with these parameters. The context must be current.
    ///
    /// # Safety
    /// There are as many parameters as the kernel has, each a pointer to a value of its type.
    pub(crate) unsafe fn launch_groups(
        &self,
        module: &Module,
        groups: [usize; 3],
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let [grid, block] = [groups.map(|n| n as u32), module.block].map(|[x, y, z]| (x, y, z));
        // SAFETY: the caller's promise; the driver copies the parameters.
        unsafe { result::launch_kernel(module.function, grid, block, 0, self.stream, parameters) }
            .map_err(|e| self.error("launching a kernel", e))
    }
}

/// What the driver reads the addresses through.
pub(crate) fn parameters(addresses: &mut Addresses) -> SmallVec<[*mut c_void; 8]> {
    addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast()).collect()
}

impl Module {
    /// A launch as a node of a graph; the parameters must outlive its use.
    pub(crate) fn node(&self, parameters: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
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
        // SAFETY: the context, which must be the module's own, lives as long as the process. Nobody else has the module. Its
        // last launch may still run: the driver waits for it. A failure leaves the module loaded, which harms nobody.
        let _ = unsafe { result::ctx::set_current(self.context).and_then(|()| module::unload(self.module)) };
    }
}
