//! The end of the process on devices that a driver makes of the processor, such as lavapipe's. They compile a kernel when it
//! is launched first, in a thread of their own, while the end of the process takes their compiler down under it.

use std::{ffi::c_int, time::UNIX_EPOCH};

use phynexus::{device, gpu::NotCompiled};
use smallvec::SmallVec;
use wgpu::{
    BindGroupDescriptor, BindGroupEntry, BufferDescriptor, BufferUsages, ComputePipelineDescriptor,
    ShaderModuleDescriptor, ShaderSource,
};

use crate::connection::{Connection, Launch};

unsafe extern "C" {
    /// C's: calls the function when the process ends; of several, the last one first.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn wait() {
    device::finish();
}

/// Makes the end of the process wait for devices. What a compiler takes down then, much of it made by its first
/// compilation, is taken down in reverse order, so a kernel is compiled and run before: it is still there during the wait.
pub(crate) fn guard(connection: &Connection) {
    // Windows ends other threads before it takes libraries down.
    if cfg!(windows) {
        return;
    }
    // What fails here fails again where somebody is told.
    let _ = run(connection);
    // Without room for one more function the process ends as it would without this.
    let _ = atexit(wait);
}

/// Compiles a kernel and runs it to its end.
fn run(connection: &Connection) -> Result<(), NotCompiled> {
    /// Elements, each of one invocation.
    const COUNT: u64 = 4;
    // No driver has kept the machine code of another time.
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
