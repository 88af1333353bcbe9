//! The kernel that computes an expression on a GPU, with f64 where the device supports it, else with f32.

use std::sync::{Mutex, OnceLock, PoisonError};

use neurenix::languages::{CUDA_C, HIP_C, OPENCL_C, WGSL};
use phynexus::{DType, Device, Tensor, custom::CustomKernel};

/// Computes numbers and gradients, in two rows.
pub(crate) fn launch(
    device: Device,
    code: &[i32],
    operands: &[i32],
    given: Vec<f64>,
) -> phynexus::Result<Vec<f64>> {
    let wide = is_wide(device)?;
    let code = Tensor::from_slice(code, &[code.len()], device)?;
    let operands = Tensor::from_slice(operands, &[operands.len()], device)?;
    let shape = [3, given.len() / 3];
    if wide {
        let given = Tensor::from_slice(&given, &shape, device)?;
        return kernel(true)?.call(&[&code, &operands, &given], &[])?.to_vec();
    }
    let given: Vec<f32> = given.into_iter().map(|number| number as f32).collect();
    let given = Tensor::from_slice(&given, &shape, device)?;
    let results = kernel(false)?.call(&[&code, &operands, &given], &[])?.to_vec::<f32>()?;
    Ok(results.into_iter().map(f64::from).collect())
}

/// Whether values on a device are f64.
pub(crate) fn is_wide(device: Device) -> phynexus::Result<bool> {
    static KNOWN: Mutex<Vec<(Device, bool)>> = Mutex::new(Vec::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, wide)) = known().iter().find(|(known, _)| *known == device) {
        return Ok(*wide);
    }
    // WGSL has no f64, and a compiler refuses it where the hardware has none.
    let wide = kernel(true)?.compile(device).is_ok();
    if !wide {
        kernel(false)?.compile(device)?;
    }
    known().push((device, wide));
    Ok(wide)
}

/// The kernel for f64 or f32.
fn kernel(wide: bool) -> phynexus::Result<&'static CustomKernel> {
    static KERNELS: [OnceLock<CustomKernel>; 2] = [OnceLock::new(), OnceLock::new()];
    let slot = &KERNELS[usize::from(wide)];
    if let Some(kernel) = slot.get() {
        return Ok(kernel);
    }
    let (dtype, real) = if wide { (DType::F64, "double") } else { (DType::F32, "float") };
    let body = include_str!("tape.c");
    let of_c =
        format!("#define REAL {real}\n#define GLOBAL\n#define KERNEL extern \"C\" __global__ void\n{body}");
    let fp64 = if wide { "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" } else { "" };
    let of_opencl =
        format!("{fp64}#define REAL {real}\n#define GLOBAL __global\n#define KERNEL __kernel void\n{body}");
    let mut builder = CustomKernel::builder("micrograd_tape")
        .input("code", DType::I32, "c")
        .input("operands", DType::I32, "o")
        .input("given", dtype, "3 n")
        .output("results", dtype, "2 n")
        .source(CUDA_C, &of_c)
        .source(HIP_C, &of_c)
        .source(OPENCL_C, &of_opencl)
        .work_group_size([1, 1, 1])
        .groups([1, 1, 1]);
    if !wide {
        builder = builder.source(WGSL, include_str!("tape.wgsl"));
    }
    let kernel = builder.build()?;
    Ok(slot.get_or_init(|| kernel))
}
