//! A kernel of one's own on every device that runs one, in the device's language.
//! `cargo run --release -p rnn --example gpu_kernel`

use rnn::{
    GpuManager, NetworkError,
    gpu::{GpuDeviceType, GpuKernel, GpuKernelArg, KernelManager},
};

const CUDA: &str = r#"
extern "C" __global__ void square_plus_one(const float* input, float* output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = input[i] * input[i] + 1.0f;
}"#;

const OPENCL: &str = r#"
__kernel void square_plus_one(__global const float* input, __global float* output, int n) {
    int i = get_global_id(0);
    if (i < n) output[i] = input[i] * input[i] + 1.0f;
}"#;

const WGSL: &str = r#"
struct Scalars { n: i32 }
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn square_plus_one(@builtin(global_invocation_id) id: vec3<u32>) {
    if (i32(id.x) < scalars.n) { output[id.x] = input[id.x] * input[id.x] + 1.0; }
}"#;

fn main() -> rnn::Result<()> {
    let mut compiler = KernelManager::new();
    for (backend, source) in [("cuda", CUDA), ("opencl", OPENCL), ("wgsl", WGSL)] {
        match compiler.compile_kernel("square_plus_one", source, backend) {
            Ok(binary) => println!("{backend}: {} bytes of machine code", binary.len()),
            Err(NetworkError::CompilerMissing { install, .. }) => println!("{backend}: {install}"),
            Err(error) => return Err(error),
        }
    }
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        let source = match device.device_type {
            GpuDeviceType::Generic => continue,
            GpuDeviceType::Cuda | GpuDeviceType::ROCm => CUDA,
            GpuDeviceType::OpenCL => OPENCL,
            _ => WGSL,
        };
        let kernel = GpuKernel {
            name: "square_plus_one".to_owned(),
            source: source.to_owned(),
            entry_point: "square_plus_one".to_owned(),
            compiled_binary: None,
            work_group_size: (64, 1, 1),
            backend_handle: None,
        };
        let context = manager.create_context(device.id)?;
        let (input, output) = (context.allocate(16)?, context.allocate(16)?);
        context.copy_to_device(&[1.0, 2.0, 3.0, 4.0], &input)?;
        let arguments =
            [GpuKernelArg::Buffer(input), GpuKernelArg::Buffer(output.clone()), GpuKernelArg::Int(4)];
        context.execute_kernel(&kernel, &arguments)?;
        let mut values = [0.0; 4];
        context.copy_to_host(&output, &mut values)?;
        println!("{}: {values:?}", device.name);
        assert_eq!(values, [2.0, 5.0, 10.0, 17.0]);
    }
    Ok(())
}
