//! User-written kernels.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::{Mutex, PoisonError},
};

use opencl3::{
    kernel::{
        CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_ADDRESS_PRIVATE,
        CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_CONST, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_NUM_ARGS, create_kernel,
        get_kernel_arg_info, get_kernel_data, get_kernel_work_group_data, set_kernel_arg,
    },
    types::cl_uint,
};
use phynexus::{
    Result,
    custom::{CustomKernel, Parameter, ParameterKind},
    dtype::scalar_bytes,
    gpu::{NotCompiled, SourceArgument, SourceLaunch},
};
use smallvec::SmallVec;

use super::{
    Module, OpenCl,
    signature::{check_type, declaration},
};
use crate::{
    figures::text,
    object::{Code, Object},
};

/// Compiles the kernel in a source, and checks it against the signature as far as the driver reports its parameters.
pub(super) fn compile(driver: &OpenCl, kernel: &CustomKernel, source: &str) -> Result<Module, NotCompiled> {
    let finish = |program: &Object| module(driver, kernel, program, source.len());
    driver.compiler().compile_source(&driver.context, &signature(kernel), source, finish)
}

/// The part of a signature that is compared with the source.
fn signature(kernel: &CustomKernel) -> String {
    let parameters =
        kernel.parameters().iter().map(|parameter| format!("{:?} {}", parameter.kind, parameter.dtype));
    format!("{}({})", kernel.entry_point(), parameters.collect::<Vec<_>>().join(", "))
}

/// Creates the kernel from a program. `bytes` is the length of its source.
fn module(
    driver: &OpenCl,
    kernel: &CustomKernel,
    program: &Object,
    bytes: usize,
) -> Result<Module, NotCompiled> {
    let entry = kernel.entry_point();
    let name = CString::new(entry).map_err(|_| "the entry point's name has a zero".to_owned())?;
    let handle = create_kernel(program.handle(), &name).map_err(Code).map_err(|code| {
        let words = format!("there is no kernel {entry}: declare it as __kernel void {entry}(..): {code}");
        code.reason(&driver.name, bytes, words)
    })?;
    // SAFETY: the kernel was just created; it keeps its program alive.
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
    Ok(Module { kernel: Mutex::new(object), local })
}

/// A 4-byte number.
fn number(bytes: Result<Vec<u8>, i32>) -> Option<usize> {
    Some(u32::from_ne_bytes(bytes.ok()?.try_into().ok()?) as usize)
}

/// Compares a parameter with the signature's. Some drivers report no parameters of cached programs.
fn check_parameter(handle: *mut c_void, at: usize, parameter: &Parameter, entry: &str) -> Result<(), String> {
    let told = get_kernel_arg_info(handle, at as cl_uint, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
    let Ok(told) = told else { return Ok(()) };
    let address = told.to_uint();
    let (name, right) = (&parameter.name, declaration(parameter));
    match (address == CL_KERNEL_ARG_ADDRESS_PRIVATE, parameter.kind == ParameterKind::Scalar) {
        (true, false) => {
            return Err(format!(
                "the parameter {name} of {entry} is a number, but a tensor in the signature: declare it as {right}"
            ));
        }
        (false, true) => {
            return Err(format!(
                "the parameter {name} of {entry} is a pointer, but a number in the signature: declare it as {right}"
            ));
        }
        _ => {}
    }
    if address == CL_KERNEL_ARG_ADDRESS_LOCAL {
        return Err(format!(
            "the parameter {name} of {entry} is local memory, but a tensor in the signature: declare it as {right}"
        ));
    }
    let told = |what| get_kernel_arg_info(handle, at as cl_uint, what).ok();
    let qualifiers = told(CL_KERNEL_ARG_TYPE_QUALIFIER).map_or(0, |told| told.to_ulong());
    let is_const = qualifiers & u64::from(CL_KERNEL_ARG_TYPE_CONST) != 0;
    let is_read_only = is_const || address == CL_KERNEL_ARG_ADDRESS_CONSTANT;
    if is_read_only && parameter.kind == ParameterKind::Output {
        return Err(format!(
            "the parameter {name} of {entry} is constant, but written according to the signature: declare it as {right}"
        ));
    }
    match told(CL_KERNEL_ARG_TYPE_NAME) {
        Some(told) => check_type(&text(&told.to_vec_uchar()), parameter, entry),
        None => Ok(()),
    }
}

/// Enqueues a launch.
pub(super) fn submit(driver: &OpenCl, module: &Module, launch: &SourceLaunch<'_, Object>) -> Result<()> {
    let kernel = module.kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let error = |code| driver.error("setting a kernel argument", code);
    // Sub-buffers; the queue keeps them as long as it needs them.
    let mut parts: SmallVec<[Object; 8]> = SmallVec::new();
    for (at, argument) in launch.arguments.iter().enumerate() {
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: the value has this many bytes and is copied; the driver compares the size with the kernel's
            // parameter.
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
                        .map_err(|code| driver.refused("creating a sub-buffer", code, *bytes))?;
                    handle = part.handle();
                    parts.push(part);
                }
                set(size_of::<*mut c_void>(), ptr::from_ref(&handle).cast())?;
            }
        }
    }
    let bytes = |argument: &SourceArgument<'_, Object>| match argument {
        SourceArgument::Buffer { bytes, .. } => *bytes,
        SourceArgument::Scalar { .. } => 0,
    };
    driver.enqueue(&kernel, launch.groups, module.local, launch.arguments.iter().map(bytes).sum())
}
