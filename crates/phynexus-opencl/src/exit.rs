//! Process exit on devices whose driver runs on the CPU, such as PoCL. Such drivers compile a kernel at its first
//! launch, in their own thread. At process exit, their compiler could be torn down during a compilation.

use std::{
    ffi::{c_int, c_void},
    ptr,
    time::UNIX_EPOCH,
};

use opencl3::{
    command_queue::enqueue_nd_range_kernel,
    kernel::{create_kernel, set_kernel_arg},
};
use phynexus::{Error, device, gpu::NotCompiled};

use crate::{
    compile::Compiler,
    object::{Code, Object},
    queue::Queue,
};

unsafe extern "C" {
    /// The C function: registers a function to call at process exit. The last one registered is called first.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn wait() {
    device::finish();
}

/// Makes process exit wait for devices. Exit handlers run in reverse order, and a compiler registers many of its own
/// during its first compilation. So a kernel is compiled and run first, to ensure that the compiler still exists during
/// the wait.
pub(crate) fn guard(compiler: &Compiler, context: &Object, queue: &Queue) {
    // Windows ends other threads before it unloads libraries.
    if cfg!(windows) {
        return;
    }
    // A failure here recurs in a later call that reports it.
    let _ = run(compiler, context, queue);
    // If registration fails, the process exits as it would without this.
    let _ = atexit(wait);
}

/// Compiles a kernel and runs it to completion.
fn run(compiler: &Compiler, context: &Object, queue: &Queue) -> Result<(), NotCompiled> {
    /// Number of elements, one per invocation.
    const COUNT: usize = 4;
    // Unique, so that no driver finds it in its cache.
    let now = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let source = format!(
        "__kernel void first(__global ulong* y) {{\n\
         __local float t[{COUNT}];\n\
         size_t i = get_local_id(0);\n\
         t[i] = (float)i;\n\
         barrier(CLK_LOCAL_MEM_FENCE);\n\
         float sum = 0.0f;\n\
         for (int k = 0; k < {COUNT}; k++) sum += sqrt(t[k]);\n\
         y[i] = (ulong)sum ^ {now}ul;\n\
         }}"
    );
    let failed = |code: Code| Error::Device { device: "OpenCL".to_owned(), message: code.to_string() };
    let failed_call = |code: c_int| failed(Code(code));
    let program = compiler.compile_anew(context, &source)?;
    let handle = create_kernel(program.handle(), c"first").map_err(failed_call)?;
    // SAFETY: the kernel was just created.
    let kernel = unsafe { Object::kernel(handle) };
    let block = Object::buffer(context, COUNT * size_of::<u64>()).map_err(failed)?;
    let argument: *mut c_void = block.handle();
    // SAFETY: the value is the buffer that the kernel expects here; it is copied.
    unsafe { set_kernel_arg(handle, 0, size_of::<*mut c_void>(), ptr::from_ref(&argument).cast()) }
        .map_err(failed_call)?;
    let size = [COUNT, 1, 1];
    // SAFETY: the kernel and sizes are valid, and each invocation writes its own element of the buffer.
    let event = unsafe {
        let (kernel, size) = (kernel.handle(), size.as_ptr());
        queue.put(|queue| enqueue_nd_range_kernel(queue, kernel, 3, ptr::null(), size, size, 0, ptr::null()))
    };
    Ok(queue.wait_for(&event.map_err(failed)?).map_err(failed)?)
}
