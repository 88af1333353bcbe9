//! The end of the process on devices that a driver makes of the processor, such as PoCL's. They compile a kernel when it is
//! launched first, in a thread of their own, while the end of the process takes their compiler down under it.

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
    /// C's: calls the function when the process ends; of several, the last one first.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn wait() {
    device::finish();
}

/// Makes the end of the process wait for devices. What a compiler takes down then, much of it made by its first
/// compilation, is taken down in reverse order, so a kernel is compiled and run before: it is still there during the wait.
pub(crate) fn guard(compiler: &Compiler, context: &Object, queue: &Queue) {
    // Windows ends other threads before it takes libraries down.
    if cfg!(windows) {
        return;
    }
    // What fails here fails again where somebody is told.
    let _ = run(compiler, context, queue);
    // Without room for one more function the process ends as it would without this.
    let _ = atexit(wait);
}

/// Compiles a kernel and runs it to its end.
fn run(compiler: &Compiler, context: &Object, queue: &Queue) -> Result<(), NotCompiled> {
    /// Elements, each of one invocation.
    const COUNT: usize = 4;
    // No driver has kept the machine code of another time.
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
    // SAFETY: the kernel was just made.
    let kernel = unsafe { Object::kernel(handle) };
    let block = Object::buffer(context, COUNT * size_of::<u64>()).map_err(failed)?;
    let argument: *mut c_void = block.handle();
    // SAFETY: the value is the buffer that the kernel takes here; it is copied.
    unsafe { set_kernel_arg(handle, 0, size_of::<*mut c_void>(), ptr::from_ref(&argument).cast()) }
        .map_err(failed_call)?;
    let size = [COUNT, 1, 1];
    // SAFETY: kernel and sizes are valid, and each invocation writes its own element of the buffer.
    let event = unsafe {
        let (kernel, size) = (kernel.handle(), size.as_ptr());
        queue.put(|queue| enqueue_nd_range_kernel(queue, kernel, 3, ptr::null(), size, size, 0, ptr::null()))
    };
    Ok(queue.wait_for(&event.map_err(failed)?).map_err(failed)?)
}
