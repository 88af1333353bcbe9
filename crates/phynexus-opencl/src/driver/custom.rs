//! Kernels written by users.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::{Mutex, PoisonError},
};

use opencl3::{
    kernel::{
        CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
        CL_KERNEL_NUM_ARGS, create_kernel, get_kernel_arg_info, get_kernel_data, get_kernel_work_group_data,
        set_kernel_arg,
    },
    types::cl_uint,
};
use phynexus::{
    Result,
    custom::{CustomKernel, Parameter, ParameterKind},
    device::scalar_bytes,
    gpu::{NotCompiled, SourceArgument, SourceLaunch},
};
use smallvec::SmallVec;

use super::{Module, OpenCl};
use crate::object::{Code, Object};

/// The kernel in a compiled source, if it is what the signature says as far as the driver tells.
pub(super) fn compile(driver: &OpenCl, kernel: &CustomKernel, source: &str) -> Result<Module, NotCompiled> {
    let entry = kernel.entry_point();
    let program = driver.compiler.compile_source(&driver.context, source)?;
    let name = CString::new(entry).map_err(|_| "the entry point's name has a zero".to_owned())?;
    let handle = create_kernel(program.handle(), &name).map_err(Code).map_err(|code| {
        let words = format!("there is no kernel {entry}: declare it as __kernel void {entry}(..): {code}");
        code.reason(&driver.name, source.len(), words)
    })?;
    // SAFETY: the kernel was just made; it keeps its program.
    let object = unsafe { Object::kernel(handle) };
    let expected = kernel.parameters().len();
    if let Some(own) = number(get_kernel_data(handle, CL_KERNEL_NUM_ARGS)).filter(|&own| own != expected) {
        let words = format!("{entry} takes {own} parameters, the kernel's signature has {expected}");
        return Err(words.into());
    }
    for (at, parameter) in kernel.parameters().iter().enumerate() {
        check_parameter(handle, at, parameter, entry)?;
    }
    let local = kernel.work_group_size();
    let device = driver.figures.device;
    let required = get_kernel_work_group_data(handle, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
    let required: Vec<usize> =
        required.unwrap_or_default().as_chunks().0.iter().map(|bytes| usize::from_ne_bytes(*bytes)).collect();
    if required.iter().any(|&extent| extent != 0) && required != local {
        let words =
            format!("{entry} requires groups of {required:?} invocations, the kernel's are {local:?}");
        return Err(words.into());
    }
    driver.check_group(handle, local)?;
    Ok(Module { kernel: Mutex::new(object), global: local, local })
}

/// A number of 4 bytes.
fn number(bytes: Result<Vec<u8>, i32>) -> Option<usize> {
    Some(u32::from_ne_bytes(bytes.ok()?.try_into().ok()?) as usize)
}

/// Compares a parameter with the signature's; some drivers tell nothing of programs that were not compiled just now.
fn check_parameter(handle: *mut c_void, at: usize, parameter: &Parameter, entry: &str) -> Result<(), String> {
    let told = get_kernel_arg_info(handle, at as cl_uint, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
    let Ok(told) = told else { return Ok(()) };
    let is_scalar = told.to_uint() == CL_KERNEL_ARG_ADDRESS_PRIVATE;
    let name = &parameter.name;
    match (is_scalar, parameter.kind == ParameterKind::Scalar) {
        (true, false) => {
            Err(format!("the parameter {name} of {entry} is a number, the signature's a tensor"))
        }
        (false, true) => {
            Err(format!("the parameter {name} of {entry} is a pointer, the signature's a number"))
        }
        _ => Ok(()),
    }
}

/// Puts a launch into the queue.
pub(super) fn submit(driver: &OpenCl, module: &Module, launch: &SourceLaunch<'_, Object>) -> Result<()> {
    let kernel = module.kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let error = |code| driver.error("giving a kernel its arguments", code);
    // Parts of buffers, which the queue keeps as long as it needs them.
    let mut parts: SmallVec<[Object; 8]> = SmallVec::new();
    for (at, argument) in launch.arguments.iter().enumerate() {
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: the value has this many bytes and is copied; the driver compares them with the kernel's parameter.
            unsafe { set_kernel_arg(kernel.handle(), at as cl_uint, bytes, value) }.map_err(error)
        };
        match argument {
            SourceArgument::Scalar { dtype, value } => {
                let bytes = scalar_bytes(*value, *dtype);
                set(bytes.len(), bytes.as_ptr().cast())?;
            }
            SourceArgument::Buffer { block, start, bytes, .. } => {
                let mut handle = block.handle();
                if *start > 0 && *bytes > 0 {
                    let part = Object::part(block, *start, *bytes)
                        .map_err(|code| driver.error("taking a part of a buffer", code))?;
                    handle = part.handle();
                    parts.push(part);
                }
                set(size_of::<*mut c_void>(), ptr::from_ref(&handle).cast())?;
            }
        }
    }
    let global = [0, 1, 2].map(|axis| launch.groups[axis] * module.local[axis]);
    driver.enqueue(&kernel, global, module.local)
}
