//! Kernels of a user's on every device of this machine that runs some: memory that they change in place, and groups.

use rnn::{
    GpuManager, Result,
    gpu::{GpuContext, GpuKernel, GpuKernelArg},
};

/// A kernel in the languages of devices.
struct Sources {
    name: &'static str,
    cuda: &'static str,
    opencl: &'static str,
    wgsl: &'static str,
}

/// Every number of `x` times `f`, for the first `n`.
const SCALE: Sources = Sources {
    name: "scale",
    cuda: r#"extern "C" __global__ void scale(float* x, float f, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] *= f;
    }"#,
    opencl: "__kernel void scale(__global float* x, float f, int n) {
        int i = get_global_id(0);
        if (i < n) x[i] *= f;
    }",
    wgsl: "struct Scalars { f: f32, n: i32 }
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @group(0) @binding(1) var<uniform> scalars: Scalars;
    @compute @workgroup_size(64)
    fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
        if (i32(id.x) < scalars.n) { x[id.x] = x[id.x] * scalars.f; }
    }",
};

/// The row of every place in a matrix that is 20 wide and high.
const ROWS: Sources = Sources {
    name: "rows",
    cuda: r#"extern "C" __global__ void rows(float* x) {
        int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
        if (row < 20 && column < 20) x[row * 20 + column] = row;
    }"#,
    opencl: "__kernel void rows(__global float* x) {
        int row = get_global_id(1), column = get_global_id(0);
        if (row < 20 && column < 20) x[row * 20 + column] = row;
    }",
    wgsl: "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(8, 8)
    fn rows(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < 20u && id.y < 20u) { x[id.y * 20u + id.x] = f32(id.y); }
    }",
};

/// Does so with the context of every GPU and what behaves like one, and the kernel in its language.
fn everywhere(
    sources: &Sources,
    work_group_size: (usize, usize, usize),
    test: impl Fn(&mut GpuContext, &GpuKernel) -> Result<()>,
) -> Result<()> {
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        let source = match device.engine_name.split(':').next().unwrap_or_default() {
            // These take no kernels.
            "cpu" | "directml" => continue,
            "cuda" | "hip" => sources.cuda,
            "opencl" => sources.opencl,
            _ => sources.wgsl,
        };
        let kernel = GpuKernel {
            name: sources.name.to_owned(),
            source: source.to_owned(),
            entry_point: sources.name.to_owned(),
            compiled_binary: None,
            work_group_size,
            backend_handle: None,
        };
        test(manager.create_context(device.id)?, &kernel)?;
    }
    Ok(())
}

#[test]
fn memory_is_changed_in_place() -> Result<()> {
    everywhere(&SCALE, (64, 1, 1), |context, kernel| {
        let memory = context.allocate(400)?;
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        context.copy_to_device(&values, &memory)?;
        let scale = |f: f32, n: i32| {
            [GpuKernelArg::Buffer(memory.clone()), GpuKernelArg::Scalar(f), GpuKernelArg::Int(n)]
        };
        context.execute_kernel(kernel, &scale(2.0, 100))?;
        // What is not written stays.
        context.execute_kernel(kernel, &scale(10.0, 10))?;
        let mut found = vec![0.0; 100];
        context.copy_to_host(&memory, &mut found)?;
        let expected: Vec<f32> = (0..100).map(|i| i as f32 * if i < 10 { 20.0 } else { 2.0 }).collect();
        assert_eq!(found, expected, "{}", context.device_name());
        Ok(())
    })
}

#[test]
fn groups_along_two_axes_are_said() -> Result<()> {
    everywhere(&ROWS, (8, 8, 1), |context, kernel| {
        let memory = context.allocate(1600)?;
        let arguments = [GpuKernelArg::Buffer(memory.clone())];
        let error = context.execute_kernel(kernel, &arguments).expect_err("it must be refused").to_string();
        assert!(error.contains("(8, 8, 1)") && error.contains("execute_kernel_on"), "{error}");
        context.execute_kernel_on(kernel, (3, 3, 1), &arguments)?;
        let mut found = vec![0.0; 400];
        context.copy_to_host(&memory, &mut found)?;
        let expected: Vec<f32> = (0..400).map(|i| (i / 20) as f32).collect();
        assert_eq!(found, expected, "{}", context.device_name());
        assert!(context.execute_kernel_on(kernel, (0, 3, 1), &arguments).is_err());
        Ok(())
    })
}

#[test]
fn a_kernel_that_changes_nothing_is_refused() -> Result<()> {
    const READS: Sources = Sources {
        name: "reads",
        cuda: r#"extern "C" __global__ void reads(const float* x) {}"#,
        opencl: "__kernel void reads(__global const float* x) {}",
        wgsl: "@group(0) @binding(0) var<storage, read> x: array<f32>;
        @compute @workgroup_size(64) fn reads() {}",
    };
    everywhere(&READS, (64, 1, 1), |context, kernel| {
        let memory = context.allocate(16)?;
        let error = context.execute_kernel(kernel, &[GpuKernelArg::Buffer(memory)]);
        assert!(error.expect_err("it must be refused").to_string().contains("without const"));
        Ok(())
    })
}
