//! Process exit on devices whose driver runs on the CPU, such as lavapipe. Such drivers compile a kernel at its first
//! launch, in their own thread. At process exit, their compiler could be torn down during a compilation.

use std::{ffi::c_int, time::UNIX_EPOCH};

use phynexus::{device, gpu::NotCompiled};
use smallvec::SmallVec;
use wgpu::{
    BindGroupDescriptor, BindGroupEntry, BufferDescriptor, BufferUsages, ComputePipelineDescriptor,
    ShaderModuleDescriptor, ShaderSource,
};

use crate::connection::{Connection, Launch};

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
pub(crate) fn guard(connection: &Connection) {
    // Windows ends other threads before it unloads libraries.
    if cfg!(windows) {
        return;
    }
    // A failure here recurs in a later call that reports it.
    let _ = run(connection);
    // If registration fails, the process exits as it would without this.
    let _ = atexit(wait);
}

/// Compiles a kernel and runs it to completion.
fn run(connection: &Connection) -> Result<(), NotCompiled> {
    /// Number of elements, one per invocation.
    const COUNT: u64 = 4;
    // Unique, so that no driver finds it in its cache.
    let now = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let (high, low) = ((now >> 32) as u32, now as u32);
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n\
         var<workgroup> t: array<f32, {COUNT}>;\n\
         @compute @workgroup_size({COUNT})\n\
         fn main(@builtin(local_invocation_index) i: u32) {{\n\
         t[i] = f32(i + y[i]);\n\
         workgroupBarrier();\n\
         var sum = 0.0f;\n\
         for (var k = 0u; k < {COUNT}u; k++) {{ sum += sqrt(t[k]); }}\n\
         y[i] = u32(sum) ^ {low}u ^ (i * {high}u);\n\
         }}"
    );
    let (pipeline, bindings) = connection.checked(|device| {
        let source = ShaderSource::Wgsl(source.into());
        let module = device.create_shader_module(ShaderModuleDescriptor { label: None, source });
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let (size, usage) = (COUNT * size_of::<u32>() as u64, BufferUsages::STORAGE);
        let buffer =
            device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        let bindings = device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
        });
        (pipeline, bindings)
    })?;
    connection.launch(Launch { pipeline, bindings, starts: SmallVec::new(), grid: [1, 1, 1] })?;
    connection.synchronize()?;
    Ok(())
}
