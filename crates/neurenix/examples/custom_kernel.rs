//! A custom activation, `x^2 + offset`: a kernel in each GPU language, a function for the CPU, and the gradient as
//! another kernel. The gradient is compared with finite differences.
//!
//! `cargo run --release --example custom_kernel [device]`

use neurenix::{
    languages,
    phynexus::{
        DType, Device, Result, Scalar, Tensor,
        custom::{CustomKernel, CustomKernelBuilder},
    },
};

/// This source is valid CUDA C and HIP C.
const CUDA: &str = r#"
extern "C" __global__ void custom_activation(const float* x, float* y, int n, float offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + offset;
}
extern "C" __global__ void custom_activation_gradient(
    const float* x, const float* y, const float* gy, float* gx, int n, float offset
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) gx[i] = 2.0f * x[i] * gy[i];
}"#;

const OPENCL: &str = r#"
__kernel void custom_activation(__global const float* x, __global float* y, int n, float offset) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i] * x[i] + offset;
}
__kernel void custom_activation_gradient(
    __global const float* x, __global const float* y, __global const float* gy, __global float* gx, int n, float offset
) {
    int i = get_global_id(0);
    if (i < n) gx[i] = 2.0f * x[i] * gy[i];
}"#;

/// Tensors are bound in the order of the parameters; scalars follow as one uniform structure.
const WGSL_FORWARD: &str = r#"
struct Scalars { n: i32, offset: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(256)
fn custom_activation(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < scalars.n) { y[i] = x[i] * x[i] + scalars.offset; }
}"#;

const WGSL_GRADIENT: &str = r#"
struct Scalars { n: i32, offset: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> gy: array<f32>;
@group(0) @binding(3) var<storage, read_write> gx: array<f32>;
@group(0) @binding(4) var<uniform> scalars: Scalars;
@compute @workgroup_size(256)
fn custom_activation_gradient(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < scalars.n) { gx[i] = 2.0 * x[i] * gy[i]; }
}"#;

fn sources(builder: CustomKernelBuilder, wgsl: &str) -> CustomKernelBuilder {
    builder
        .source(languages::CUDA_C, CUDA)
        .source(languages::HIP_C, CUDA)
        .source(languages::OPENCL_C, OPENCL)
        .source(languages::WGSL, wgsl)
}

fn activation() -> Result<CustomKernel> {
    // The gradient's inputs: the kernel's inputs, its outputs, and the gradients of the outputs.
    let gradient = CustomKernel::builder("custom_activation_gradient")
        .input("x", DType::F32, "shape..")
        .input("y", DType::F32, "shape..")
        .input("gy", DType::F32, "shape..")
        .output("gx", DType::F32, "shape..")
        .scalar("n", DType::I32)
        .scalar("offset", DType::F32)
        .cpu(|mut call| {
            let (x, gy) = (call.inputs[0].values::<f32>()?, call.inputs[2].values::<f32>()?);
            let gx = call.outputs[0].values::<f32>()?;
            gx.iter_mut().zip(x.iter().zip(gy)).for_each(|(gx, (x, gy))| *gx = 2.0 * x * gy);
            Ok(())
        });
    let kernel = CustomKernel::builder("custom_activation")
        .input("x", DType::F32, "shape..")
        .output("y", DType::F32, "shape..")
        .scalar("n", DType::I32)
        .scalar("offset", DType::F32)
        .cpu(|mut call| {
            let offset = call.scalars[1].as_f64() as f32;
            let x = call.inputs[0].values::<f32>()?;
            let y = call.outputs[0].values::<f32>()?;
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x + offset);
            Ok(())
        })
        .gradient_kernel(sources(gradient, WGSL_GRADIENT).build()?);
    sources(kernel, WGSL_FORWARD).build()
}

fn main() -> Result<()> {
    neurenix::register_all();
    let device = match std::env::args().nth(1) {
        Some(name) => Device::find(&name)?,
        None => Device::default_device()?,
    };
    let kernel = activation()?;
    // Errors in the source are reported here, with line numbers.
    kernel.compile(device)?;

    let values: Vec<f32> = (0..600).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    let weights = Tensor::from_slice(&values, &[600], device)?.cos()?.evaluated()?;
    let loss = |x: &Tensor| -> Result<Tensor> {
        let scalars = [Scalar::Int(x.len() as i64), Scalar::Float(1.0)];
        kernel.call(&[x], &scalars)?.mul(&weights)?.sum(&[], false)
    };
    let x = Tensor::from_slice(&values, &[600], device)?.with_grad()?;
    let result = loss(&x)?;
    if let Some(plan) = result.explain()? {
        print!("{plan}");
    }
    let gradient = result.gradients(&[&x])?.remove(0).to_vec::<f32>()?;

    // The central differences of a parabola are exact up to rounding, for any step.
    let mut worst = 0f32;
    for at in (0..values.len()).step_by(97) {
        let moved = |by: f32| -> Result<f32> {
            let mut values = values.clone();
            values[at] += by;
            loss(&Tensor::from_slice(&values, &[600], device)?)?.item()
        };
        let expected = (moved(0.5)? - moved(-0.5)?) / 1.0;
        worst = worst.max((gradient[at] - expected).abs());
    }
    println!("on {device}: the gradient differs from finite differences by {worst:.1e} at most");
    assert!(worst < 2e-3);
    Ok(())
}
