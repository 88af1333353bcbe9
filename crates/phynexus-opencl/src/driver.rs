//! OpenCL devices as drivers of the engine's GPU layer.

mod custom;
mod reading;
mod signature;

use std::{
    collections::VecDeque,
    ffi::{CString, c_void},
    ptr,
    sync::{Mutex, Once, PoisonError},
};

use opencl3::{
    command_queue::{
        enqueue_migrate_mem_object, enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_write_buffer,
    },
    event::{CL_COMPLETE, CL_PROFILING_COMMAND_END, get_event_profiling_data},
    kernel::{CL_KERNEL_WORK_GROUP_SIZE, create_kernel, get_kernel_work_group_data, set_kernel_arg},
    memory::{CL_FALSE, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED},
};
use phynexus::{
    Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::{DeviceInfo, HostRead, register_missing},
    gpu::{Driver, Gpu, NotCompiled, Progress, SourceLaunch, Submission},
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, print, print_variable},
    },
};

use crate::{
    compile::Compiler,
    exit,
    figures::Figures,
    language::{OPENCL, OPENCL_C},
    object::{Code, Object},
    platforms::platforms,
    queue::{self, Queue},
};

/// Registers every device of every platform, or the reason why there is none.
pub(crate) fn register() {
    let mut found = match platforms() {
        Ok(found) => found,
        Err(reason) => return register_missing("opencl", reason),
    };
    found.sort_by_key(Figures::is_processor);
    for (number, figures) in found.into_iter().enumerate() {
        let name = format!("opencl:{number}");
        let made = match figures.unusable() {
            Some(reason) => Err(reason),
            None => OpenCl::new(name.clone(), figures).map_err(|error| error.to_string()),
        };
        match made {
            Ok(driver) => drop(phynexus::device::register(Box::new(Gpu::new(driver)))),
            Err(reason) => register_missing(name, reason),
        }
    }
}

/// A device.
pub(crate) struct OpenCl {
    name: String,
    figures: Figures,
    target: Target,
    compiler: Compiler,
    context: Object,
    queue: Queue,
    /// Staged copies of small writes that may still be read, with their events. Declared after the queue, which is
    /// dropped first.
    staged: Mutex<VecDeque<(Object, Box<[u8]>)>>,
    /// Completed once process exit waits for the driver's compiler.
    guarded: Once,
}

/// Writes up to this size are staged, to avoid waiting for the queue.
const STAGED_BYTES: usize = 64 << 10;

/// A kernel with its program. OpenCL stores a launch's arguments in the kernel, so only one thread at a time may use
/// it.
pub(crate) struct Module {
    kernel: Mutex<Object>,
    local: [usize; 3],
}

impl OpenCl {
    fn new(name: String, figures: Figures) -> Result<OpenCl> {
        let error =
            |code| Error::Device { device: name.clone(), message: format!("opening the device: {code}") };
        let context = Object::context(figures.device).map_err(error)?;
        let queue = Queue::new(&context, figures.device).map_err(error)?;
        let (target, compiler) = (figures.target(&name), Compiler::new(&name, figures.clone()));
        let staged = Mutex::new(VecDeque::new());
        Ok(OpenCl { name, figures, target, compiler, context, queue, staged, guarded: Once::new() })
    }

    fn error(&self, doing: &str, code: impl Into<Code>) -> Error {
        Error::Device { device: self.name.clone(), message: format!("{doing}: {}", code.into()) }
    }

    /// Like `error`, for a command on `bytes` bytes for which the driver may have needed memory.
    fn refused(&self, doing: &str, code: impl Into<Code>, bytes: usize) -> Error {
        let code: Code = code.into();
        if !code.is_no_room() {
            return self.error(doing, code);
        }
        // The engine adds the current use and the limit.
        Error::OutOfMemory {
            device: self.name.clone(),
            requested: bytes,
            in_use: 0,
            limit: usize::MAX,
            hint: format!("{doing}: {code}: use a smaller batch, or drop tensors that are no longer needed"),
        }
    }

    /// The compiler. On first use, registers a wait at process exit for kernels that the device's driver still compiles
    /// in its own thread.
    fn compiler(&self) -> &Compiler {
        self.guarded.call_once(|| {
            if self.figures.is_processor() {
                exit::guard(&self.compiler, &self.context, &self.queue);
            }
        });
        &self.compiler
    }

    /// Enqueues a launch.
    fn enqueue_launch(&self, submission: &Submission<'_, OpenCl>) -> Result<()> {
        let module = submission.module;
        let kernel = module.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = submission.arguments.iter().zip(&submission.kernel.buffers);
        for (at, ((block, offset), buffer)) in pairs.enumerate() {
            let begin: i64 = offset / buffer.dtype.size() as i64;
            let handle = block.handle();
            let both: [(usize, *const c_void); 2] = [
                (size_of::<*mut c_void>(), ptr::from_ref(&handle).cast()),
                (size_of::<i64>(), ptr::from_ref(&begin).cast()),
            ];
            for (number, (bytes, value)) in both.into_iter().enumerate() {
                // SAFETY: the value has this many bytes and the type that the printed kernel expects here; it is
                // copied.
                unsafe { set_kernel_arg(kernel.handle(), (2 * at + number) as u32, bytes, value) }
                    .map_err(|code| self.error("setting a kernel argument", code))?;
            }
        }
        let bytes = submission.kernel.buffers.iter().map(|buffer| buffer.length * buffer.dtype.size()).sum();
        let grid = submission.kernel.grid();
        self.enqueue(&kernel, grid, module.local, bytes)
    }

    /// Enqueues `grid` groups of a kernel whose arguments have `bytes` bytes in total.
    fn enqueue(&self, kernel: &Object, grid: [usize; 3], local: [usize; 3], bytes: usize) -> Result<()> {
        let global = [0, 1, 2].map(|d| grid[d] * local[d]);
        // SAFETY: the queue, kernel and sizes are valid. For a printed kernel, the checker proved every access in
        // bounds of its parameters' lengths, and the plan binds memory of these lengths with the requested alignment.
        let event = unsafe {
            let (kernel, global, local) = (kernel.handle(), global.as_ptr(), local.as_ptr());
            self.queue.put(|queue| {
                enqueue_nd_range_kernel(queue, kernel, 3, ptr::null(), global, local, 0, ptr::null())
            })
        };
        event.map(drop).map_err(|code| self.refused("launching a kernel", code, bytes))
    }

    /// Creates a printed kernel from its program. `bytes` is the length of its source.
    fn module(&self, kernel: &Kernel, program: &Object, bytes: usize) -> Result<Module, NotCompiled> {
        let name = CString::new(kernel.name.as_str())
            .map_err(|_| Error::internal("phynexus_opencl", "a kernel's name has a zero"))?;
        let handle = create_kernel(program.handle(), &name)
            .map_err(|code| Code(code).reason(&self.name, bytes, Code(code).to_string()))?;
        // SAFETY: the kernel was just created; it keeps its program alive.
        let object = unsafe { Object::kernel(handle) };
        let local = kernel.block();
        self.check_group(handle, local)?;
        Ok(Module { kernel: Mutex::new(object), local })
    }

    /// Returns an error if a kernel cannot be launched with groups of this size: registers and local memory may limit a
    /// kernel to smaller groups than the device supports.
    fn check_group(&self, kernel: *mut c_void, local: [usize; 3]) -> Result<(), String> {
        let most = get_kernel_work_group_data(kernel, self.figures.device, CL_KERNEL_WORK_GROUP_SIZE)
            .ok()
            .and_then(|bytes| Some(usize::from_ne_bytes(bytes.try_into().ok()?)));
        let size: usize = local.iter().product();
        match most.filter(|&most| most < size) {
            Some(most) => Err(format!(
                "its groups have {size} invocations, but the device supports at most {most} for it"
            )),
            None => Ok(()),
        }
    }

    fn flush(&self) -> Result<()> {
        self.queue.flush().map_err(|code| self.error("submitting kernels", code))
    }

    /// Frees the staged copies of completed writes.
    fn sweep(staged: &mut VecDeque<(Object, Box<[u8]>)>) {
        // After an error nothing reads them either.
        let done = |event: &Object| event.status().is_some_and(|status| status <= CL_COMPLETE);
        while staged.front().is_some_and(|(event, _)| done(event)) {
            staged.pop_front();
        }
    }
}

impl Driver for OpenCl {
    type Block = Object;
    type Module = Module;
    type Recording = ();
    type Mark = Object;

    /// The size of the longest vector type. All buffer addresses are multiples of it.
    const ALIGNMENT: usize = 128;

    fn name(&self) -> &str {
        &self.name
    }

    fn info(&self) -> DeviceInfo {
        self.figures.info(&self.name)
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn allocate(&self, bytes: usize) -> Option<Object> {
        if bytes > self.figures.greatest_block() {
            return None;
        }
        let block = Object::buffer(&self.context, bytes).ok()?;
        // A driver may allocate the memory only on first use, when the pool can no longer make room. Migrating the
        // buffer forces the allocation now.
        let (handle, flags) = (block.handle(), CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
        // SAFETY: the buffer is valid, and its handle is read during the call.
        let event = unsafe {
            self.queue.put(|queue| enqueue_migrate_mem_object(queue, 1, &handle, flags, 0, ptr::null()))
        };
        match event {
            Err(code) if code.is_no_room() => None,
            // After any other failure the buffer still exists.
            Ok(_) | Err(_) => Some(block),
        }
    }

    fn write(&self, block: &Object, offset: usize, bytes: &[u8]) -> Result<()> {
        let refused = |code| self.refused("copying to the device", code, bytes.len());
        let write = |bytes: &[u8]| {
            let (handle, count, source) = (block.handle(), bytes.len(), bytes.as_ptr().cast());
            // SAFETY: the part lies within the block. The bytes stay valid until the copy is done: it is waited for, or
            // they are kept with its event.
            unsafe {
                self.queue.put(|queue| {
                    enqueue_write_buffer(queue, handle, CL_FALSE, offset, count, source, 0, ptr::null())
                })
            }
        };
        if self.write_waits(bytes.len()) {
            return write(bytes).and_then(|event| self.queue.wait_for(&event)).map_err(refused);
        }
        let copy: Box<[u8]> = bytes.into();
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        OpenCl::sweep(&mut staged);
        let event = write(&copy).map_err(refused)?;
        staged.push_back((event, copy));
        Ok(())
    }

    fn write_waits(&self, bytes: usize) -> bool {
        bytes > STAGED_BYTES
    }

    fn read(&self, block: &Object, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (handle, count, target) = (block.handle(), bytes.len(), bytes.as_mut_ptr().cast());
        // SAFETY: the part lies within the block, and the copy is waited for.
        let event = unsafe {
            self.queue.put(|queue| {
                enqueue_read_buffer(queue, handle, CL_FALSE, offset, count, target, 0, ptr::null())
            })
        };
        let done = event.and_then(|event| self.queue.wait_for(&event));
        done.map_err(|code| self.error("copying from the device", code))
    }

    fn begin_read(&self, block: &Object, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        reading::begin(self, block, offset, bytes).map(Some)
    }

    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        Ok(print(kernel, &OPENCL)?)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_variable(kernel, &OPENCL).ok()
    }

    fn compile(&self, kernel: &Kernel, source: &str) -> Result<Module, NotCompiled> {
        let compiling = |reason: NotCompiled| reason.doing(&format!("compiling kernel {}", kernel.name));
        let finish = |program: &Object| self.module(kernel, program, source.len());
        self.compiler().compile(&self.context, source, finish).map_err(compiling)
    }

    fn launch(&self, submission: &Submission<'_, OpenCl>) -> Result<()> {
        self.enqueue_launch(submission)?;
        self.flush()
    }

    fn launch_all(&self, submissions: &[Submission<'_, OpenCl>], (): &()) -> Result<()> {
        submissions.iter().try_for_each(|submission| self.enqueue_launch(submission))?;
        self.flush()
    }

    fn mark(&self) -> Result<Option<Object>> {
        self.queue.mark().map(Some).map_err(|code| self.error("enqueuing a time marker", code))
    }

    fn submit(&self) -> Result<()> {
        self.flush()
    }

    fn elapsed(&self, from: &Object, to: &Object) -> Result<f64> {
        let error = |code: Code| self.error("reading the time of a marker", code);
        queue::wait(from).and_then(|()| queue::wait(to)).map_err(error)?;
        let time = |event: &Object| {
            let bytes = get_event_profiling_data(event.handle(), CL_PROFILING_COMMAND_END);
            let bytes = bytes.map_err(|code| error(Code(code)))?;
            let bytes = bytes.try_into().map_err(|_| Error::internal("phynexus_opencl", "a time's size"))?;
            Ok::<_, Error>(u64::from_ne_bytes(bytes))
        };
        Ok(time(to)?.saturating_sub(time(from)?) as f64)
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[OPENCL_C]
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Module, NotCompiled> {
        custom::compile(self, kernel, source.text())
    }

    fn launch_source(&self, module: &Module, launch: &SourceLaunch<'_, Object>) -> Result<()> {
        custom::submit(self, module, launch)?;
        self.flush()
    }

    fn binding_alignment(&self) -> usize {
        self.figures.part_alignment()
    }

    fn progress(&self) -> Result<Option<Progress<'_>>> {
        let Some(marker) = self.mark()? else { return Ok(None) };
        self.flush()?;
        // The next thread that waits gets the error.
        Ok(Some(Box::new(move || marker.status().is_none_or(|status| status <= CL_COMPLETE))))
    }

    fn synchronize(&self) -> Result<()> {
        self.queue.wait().map_err(|code| self.error("waiting for kernels", code))
    }
}
