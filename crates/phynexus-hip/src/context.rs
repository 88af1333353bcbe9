//! A GPU: its properties, its stream and its modules.

use std::{
    ffi::{CString, c_int, c_uint, c_void},
    ptr,
};

use phynexus::{Error, Result, gpu::NotCompiled, kernel::loops::Kernel};
use phynexus_nccl::Collectives;

use crate::{
    library::{Handle, Hip, KernelNode},
    parameters::{Packed, parameters},
};

/// The device attributes in use, with HIP's numbers.
#[derive(Clone, Copy)]
pub(crate) enum Attribute {
    MaxBlockX = 26,
    MaxBlockY = 27,
    MaxBlockZ = 28,
    MaxGridX = 29,
    MaxGridY = 30,
    MaxGridZ = 31,
    MaxThreadsPerBlock = 56,
    MultiprocessorCount = 63,
    MaxSharedMemoryPerBlock = 74,
    WarpSize = 87,
}

/// Flags: a stream that does not wait for the default stream; an event without a timestamp.
const NON_BLOCKING: c_uint = 1;
const WITHOUT_TIME: c_uint = 2;
/// The result for an event that has not happened yet.
const NOT_READY: c_int = 600;
/// The result when memory is exhausted.
const OUT_OF_MEMORY: c_int = 2;
/// The results for code that does not fit the device: invalid value, invalid image, no binary for the GPU, invalid
/// kernel file, kernel or symbol not found.
const REFUSALS: [c_int; 5] = [1, 200, 209, 218, 500];

/// A GPU with one stream that runs everything in order.
pub(crate) struct Context {
    pub(crate) hip: &'static Hip,
    pub(crate) name: String,
    device: c_int,
    stream: Handle,
    pub(crate) collectives: Collectives<Event>,
}

// SAFETY: the runtime's handles may be used from any thread; each call first makes the device current on its thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A kernel's machine code on the device, with its launch configuration.
pub(crate) struct Module {
    hip: &'static Hip,
    device: c_int,
    function: Handle,
    module: Handle,
    block: [u32; 3],
    shared_bytes: u32,
}

// SAFETY: as for the context.
unsafe impl Send for Module {}
// SAFETY: as for the context.
unsafe impl Sync for Module {}

/// A point in the stream's work.
pub(crate) struct Event {
    hip: &'static Hip,
    handle: Handle,
}

// SAFETY: as for the context.
unsafe impl Send for Event {}
// SAFETY: as for the context.
unsafe impl Sync for Event {}

/// The number of GPUs that the runtime reports.
pub(crate) fn count(hip: &Hip) -> Result<usize, String> {
    let mut count = 0;
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (hip.runtime.hipGetDeviceCount)(&mut count) };
    let words = |error| format!("AMD's HIP runtime is installed, but it reports no GPU: {error}");
    hip.check(code).map_err(words)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

impl Context {
    /// Opens the GPU with this number.
    pub(crate) fn new(hip: &'static Hip, number: usize) -> Result<Context> {
        let device = c_int::try_from(number).unwrap_or(c_int::MAX);
        let (name, stream) = (format!("hip:{number}"), ptr::null_mut());
        let mut context = Context { hip, name, device, stream, collectives: Collectives::default() };
        context.bind()?;
        context.stream = context.new_stream()?;
        Ok(context)
    }

    /// Creates a stream. The device must be current.
    pub(crate) fn new_stream(&self) -> Result<Handle> {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipStreamCreateWithFlags)(&mut stream, NON_BLOCKING) };
        self.check("creating a stream", code)?;
        Ok(stream)
    }

    /// Converts a result of the runtime; an error includes a description of the operation.
    pub(crate) fn check(&self, doing: &str, code: c_int) -> Result<()> {
        let error =
            |message| Error::Device { device: self.name.clone(), message: format!("{doing}: {message}") };
        self.hip.check(code).map_err(error)
    }

    /// Makes the device current on this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the function takes a number.
        self.check("making the GPU current", unsafe { (self.hip.runtime.hipSetDevice)(self.device) })
    }

    /// An attribute of the device; `None` if the runtime does not report it.
    pub(crate) fn attribute(&self, attribute: Attribute) -> Option<usize> {
        let (mut value, number) = (0, attribute as c_int);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipDeviceGetAttribute)(&mut value, number, self.device) };
        (code == 0).then(|| usize::try_from(value).ok()).flatten()
    }

    /// AMD's model name.
    pub(crate) fn model(&self) -> Option<String> {
        let mut name = [0u8; 256];
        // SAFETY: the buffer has the size that is passed.
        let code = unsafe {
            (self.hip.runtime.hipDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, self.device)
        };
        let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
        (code == 0 && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// AMD's name of the architecture with its features: `gfx90a:sramecc+:xnack-`.
    pub(crate) fn architecture(&self) -> Option<String> {
        /// Larger than the structure in any release.
        const BYTES: usize = 8192;
        let mut properties = vec![0u64; BYTES / size_of::<u64>()];
        // SAFETY: the buffer is larger than the structure, and aligned like its members.
        let code = unsafe { (self.hip.properties)(properties.as_mut_ptr().cast(), self.device) };
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
        (code == 0).then(|| architecture_in(&bytes)).flatten()
    }

    /// Total memory in bytes.
    pub(crate) fn total_memory(&self) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipDeviceTotalMem)(&mut bytes, self.device) };
        (code == 0).then_some(bytes as u64)
    }

    /// Free memory in bytes.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.bind().ok()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are valid for the call.
        let code = unsafe { (self.hip.runtime.hipMemGetInfo)(&mut free, &mut total) };
        (code == 0).then_some(free as u64)
    }

    /// Allocates memory; `None` if it does not fit.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Handle> {
        self.bind().ok()?;
        let mut address = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipMalloc)(&mut address, bytes) };
        (code == 0 && !address.is_null()).then_some(address)
    }

    /// Frees a block. The runtime waits for kernels that still use it.
    ///
    /// # Safety
    /// The address must come from [`Context::allocate`] and be the only reference to the block.
    pub(crate) unsafe fn free(&self, address: Handle) {
        if self.bind().is_ok() {
            // SAFETY: guaranteed by the caller. After a failure the block stays allocated.
            unsafe { (self.hip.runtime.hipFree)(address) };
        }
    }

    /// Copies to the GPU in stream order.
    ///
    /// # Safety
    /// The target must be memory of this GPU with room for the bytes, and the bytes must stay valid until the copy is
    /// done.
    pub(crate) unsafe fn copy_to(&self, target: Handle, bytes: &[u8]) -> Result<()> {
        self.bind()?;
        let source = bytes.as_ptr().cast();
        // SAFETY: guaranteed by the caller.
        let code = unsafe { (self.hip.runtime.hipMemcpyHtoDAsync)(target, source, bytes.len(), self.stream) };
        self.check("copying to the GPU", code)
    }

    /// Copies from the GPU, after everything submitted before.
    ///
    /// # Safety
    /// The source must be memory of this GPU with at least this many bytes, and the bytes must stay valid until the
    /// copy is done.
    pub(crate) unsafe fn copy_to_host(&self, source: Handle, bytes: &mut [u8]) -> Result<()> {
        self.bind()?;
        let target = bytes.as_mut_ptr().cast();
        // SAFETY: guaranteed by the caller.
        let code = unsafe { (self.hip.runtime.hipMemcpyDtoHAsync)(target, source, bytes.len(), self.stream) };
        self.check("copying from the GPU", code)
    }

    /// The device's number.
    pub(crate) fn device(&self) -> c_int {
        self.device
    }

    /// The stream.
    pub(crate) fn stream(&self) -> Handle {
        self.stream
    }

    /// Waits until all submitted work has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.bind()?;
        self.collectives.watch_all(self)?;
        // SAFETY: the stream lives as long as the process.
        self.check("waiting for kernels", unsafe { (self.hip.runtime.hipStreamSynchronize)(self.stream) })
    }

    /// Records an event after everything submitted so far, optionally with a timestamp.
    pub(crate) fn record(&self, timed: bool) -> Result<Event> {
        let event = self.new_event(timed)?;
        self.record_as(&event)?;
        Ok(event)
    }

    /// Creates an event that is not in the stream yet.
    pub(crate) fn new_event(&self, timed: bool) -> Result<Event> {
        self.bind()?;
        let mut event = Event { hip: self.hip, handle: ptr::null_mut() };
        let flags = if timed { 0 } else { WITHOUT_TIME };
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.hip.runtime.hipEventCreateWithFlags)(&mut event.handle, flags) };
        self.check("creating an event", code)?;
        Ok(event)
    }

    /// Records an event of this device after everything submitted so far.
    pub(crate) fn record_as(&self, event: &Event) -> Result<()> {
        // SAFETY: event and stream are valid.
        let code = unsafe { (self.hip.runtime.hipEventRecord)(event.handle, self.stream) };
        self.check("recording an event", code)
    }

    /// Waits until an event has happened.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<()> {
        self.collectives.watch(self, event)?;
        // SAFETY: the event is valid.
        self.check("waiting for an event", unsafe { (self.hip.runtime.hipEventSynchronize)(event.handle) })
    }

    /// The time between two events with timestamps, in nanoseconds. Waits for the second.
    pub(crate) fn elapsed(&self, from: &Event, to: &Event) -> Result<f64> {
        let mut milliseconds = 0f32;
        self.wait_for(to)?;
        // SAFETY: the events are valid, and the pointer is valid for the call.
        let code =
            unsafe { (self.hip.runtime.hipEventElapsedTime)(&mut milliseconds, from.handle, to.handle) };
        self.check("reading the time of an event", code)?;
        Ok(f64::from(milliseconds) * 1e6)
    }

    /// Loads machine code and looks up its kernel.
    pub(crate) fn load(&self, code: &[u8], kernel: &Kernel) -> Result<Module, NotCompiled> {
        let mut loaded = self.load_named(code, &kernel.name, kernel.block())?;
        loaded.shared_bytes = kernel.shared_bytes() as u32;
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
        let check = |result: c_int| self.check_loaded(kernel, code.len(), result);
        let name = CString::new(kernel)
            .map_err(|_| Error::internal("phynexus_hip", "a kernel's name has a zero"))?;
        let (function, module, block) = (ptr::null_mut(), ptr::null_mut(), block.map(|extent| extent as u32));
        let (hip, device) = (self.hip, self.device);
        let mut loaded = Module { hip, device, function, module, block, shared_bytes: 0 };
        let runtime = &self.hip.runtime;
        // SAFETY: hipRTC compiled the code for this device; the runtime copies it.
        let result = unsafe { (runtime.hipModuleLoadData)(&mut loaded.module, code.as_ptr().cast()) };
        check(result)?;
        // SAFETY: the module was just loaded; if the function is missing, dropping `loaded` unloads it.
        let result =
            unsafe { (runtime.hipModuleGetFunction)(&mut loaded.function, loaded.module, name.as_ptr()) };
        check(result)?;
        Ok(loaded)
    }

    /// Classifies a failure to load machine code: the runtime refuses the code itself, memory is exhausted, or
    /// something else failed, possibly earlier work.
    fn check_loaded(&self, kernel: &str, bytes: usize, result: c_int) -> Result<(), NotCompiled> {
        let doing = format!("loading kernel {kernel}");
        match result {
            OUT_OF_MEMORY => Err(NotCompiled::out_of_memory(&self.name, bytes)),
            code if REFUSALS.contains(&code) => {
                self.hip.check(code).map_err(|message| format!("{doing}: {message}").into())
            }
            code => Ok(self.check(&doing, code)?),
        }
    }

    /// Submits a kernel. The device must be current.
    ///
    /// # Safety
    /// The addresses must be those of the kernel's buffer parameters, in order, and valid for its accesses.
    pub(crate) unsafe fn launch(
        &self,
        module: &Module,
        kernel: &Kernel,
        addresses: &mut [u64],
    ) -> Result<()> {
        let mut parameters = parameters(addresses);
        let ([gx, gy, gz], [bx, by, bz]) = (grid_of(kernel), module.block);
        let (bytes, none) = (module.shared_bytes, ptr::null_mut());
        // SAFETY: guaranteed by the caller; the runtime copies the parameters.
        let code = unsafe {
            (self.hip.runtime.hipModuleLaunchKernel)(
                module.function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                bytes,
                self.stream,
                parameters.as_mut_ptr(),
                none,
            )
        };
        self.check("launching a kernel", code)
    }

    /// Submits `groups` blocks of a kernel with its parameters as laid out in memory. The device must be current.
    pub(crate) fn launch_packed(
        &self,
        module: &Module,
        groups: [usize; 3],
        parameters: &mut Packed,
    ) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (groups.map(|n| n as u32), module.block);
        let mut bytes = size_of_val(&parameters.bytes);
        // HIP's markers for the pointer to the parameters, their size, and the end of the list.
        let [pointer, size, end] = [1, 2, 3].map(ptr::without_provenance_mut::<c_void>);
        let mut list =
            [pointer, parameters.bytes.as_mut_ptr().cast(), size, ptr::from_mut(&mut bytes).cast(), end];
        // SAFETY: the list follows HIP's layout. The runtime copies at most the 4 KiB of parameters that a kernel can
        // have, all of which are allocated.
        let code = unsafe {
            (self.hip.runtime.hipModuleLaunchKernel)(
                module.function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                0,
                self.stream,
                ptr::null_mut(),
                list.as_mut_ptr(),
            )
        };
        self.check("launching a kernel", code)
    }
}

/// The number of groups. Kernels that share a module may have different ones.
fn grid_of(kernel: &Kernel) -> [u32; 3] {
    kernel.grid().map(|extent| extent as u32)
}

impl Module {
    /// The launch as a graph node. The parameters must outlive its use.
    pub(crate) fn node(&self, kernel: &Kernel, parameters: &mut [*mut c_void]) -> KernelNode {
        KernelNode {
            block: self.block,
            extra: ptr::null_mut(),
            function: self.function,
            grid: grid_of(kernel),
            parameters: parameters.as_mut_ptr(),
            shared_bytes: self.shared_bytes,
        }
    }
}

/// The architecture name in the device properties structure. Its offset depends on the release; it is the only text
/// after the model name that starts like an architecture.
fn architecture_in(properties: &[u8]) -> Option<String> {
    /// The model name comes first.
    const NAME: usize = 256;
    let rest = properties.get(NAME..)?;
    let start = rest.windows(4).position(|w| w[..3] == *b"gfx" && w[3].is_ascii_digit())?;
    let text = rest[start..].split(|&byte| byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

impl Event {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Whether the preceding work has finished or failed.
    pub(crate) fn has_happened(&self) -> bool {
        // SAFETY: the event is valid.
        unsafe { (self.hip.runtime.hipEventQuery)(self.handle) != NOT_READY }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: this is the only handle of the event. After a failure the event leaks, which is harmless.
            unsafe { (self.hip.runtime.hipEventDestroy)(self.handle) };
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: the module's device is made current on this thread, and this is the only handle of the module.
            // The runtime waits for a launch that is still running. After a failure the module stays loaded, which is
            // harmless.
            unsafe {
                (self.hip.runtime.hipSetDevice)(self.device);
                (self.hip.runtime.hipModuleUnload)(self.module);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_is_found_wherever_it_lies() {
        for place in [396, 1160, 2000] {
            let mut properties = vec![0u8; 4096];
            let name = b"AMD Radeon gfx1100 graphics";
            properties[..name.len()].copy_from_slice(name);
            let text = b"gfx90a:sramecc+:xnack-";
            properties[place..place + text.len()].copy_from_slice(text);
            assert_eq!(architecture_in(&properties).as_deref(), Some("gfx90a:sramecc+:xnack-"));
        }
        assert_eq!(architecture_in(&[0; 4096]), None);
        assert_eq!(architecture_in(b"gfx1030"), None);
    }
}
