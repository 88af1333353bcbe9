//! Compiles a loop tree to a pipeline.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

use phynexus::{
    gpu::NotCompiled,
    kernel::{loops::Kernel, print::wgsl_workgroup_bytes},
};
use wgpu::{
    Backend, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipelineDescriptor, Device, Features, PassthroughShaderEntryPoint, PipelineCache,
    PipelineLayoutDescriptor, ShaderModule, ShaderModuleDescriptor, ShaderModuleDescriptorPassthrough,
    ShaderRuntimeChecks, ShaderSource, ShaderStages,
    naga::{back::spv, front::wgsl, proc::BoundsCheckPolicies, valid},
};

use crate::{
    adapter::Found,
    connection::Connection,
    pipelines::{Pipeline, Pipelines},
    spirv::exact,
};

/// Refuses a kernel whose memory the device cannot bind.
pub(crate) fn accept(found: &Found, connection: &Connection, kernel: &Kernel) -> Result<(), NotCompiled> {
    let has = found.target.limits.shared_bytes;
    let needs = wgsl_workgroup_bytes(kernel);
    if needs > has {
        let message = format!(
            "kernel {} needs {needs} bytes of workgroup memory, but the device has {has}",
            kernel.name
        );
        return Err(message.into());
    }
    for buffer in &kernel.buffers {
        // A binding starts at the device's alignment, possibly before the first element.
        let bytes = buffer.length.saturating_mul(buffer.dtype.size()).saturating_add(connection.alignment);
        if bytes as u64 > connection.largest_binding || buffer.length >= i32::MAX as usize {
            let most = connection.largest_binding;
            return Err(format!("a buffer has {bytes} bytes, but a kernel can bind at most {most}").into());
        }
    }
    Ok(())
}

/// The pipeline of a kernel.
pub(crate) fn compile(
    found: &Found,
    connection: &Connection,
    pipelines: &Pipelines,
    kernel: &Kernel,
    source: &str,
) -> Result<Pipeline, NotCompiled> {
    // A panic of the translator must only fail this kernel.
    let made = catch_unwind(AssertUnwindSafe(|| {
        pipelines.make(connection, source, |device, cache| {
            let module = module(found, device, source, kernel)?;
            Ok(pipeline(device, &module, kernel.buffers.len(), cache))
        })
    }));
    let made = made.unwrap_or_else(|_| Err("its translation panicked".to_owned().into()));
    made.map_err(|reason| reason.doing(&format!("compiling kernel {}", kernel.name)))
}

fn module(found: &Found, device: &Device, source: &str, kernel: &Kernel) -> Result<ShaderModule, String> {
    let passthrough = found.features.contains(Features::PASSTHROUGH_SHADERS);
    if passthrough && found.adapter.get_info().backend == Backend::Vulkan {
        let code = exact(&translate(source)?, &found.float_controls);
        let [x, y, z] = kernel.block().map(|extent| extent as u32);
        let entry = PassthroughShaderEntryPoint { name: "main".into(), workgroup_size: (x, y, z) };
        let descriptor = ShaderModuleDescriptorPassthrough {
            entry_points: Cow::Owned(vec![entry]),
            spirv: Some(Cow::Owned(code)),
            ..Default::default()
        };
        // SAFETY: the code is naga's translation of a validated module. The additions change neither types nor control
        // flow, and the driver supports them. The checker proved every access of the kernel in bounds, for the numbers
        // that a launch passes as arguments.
        return Ok(unsafe { device.create_shader_module_passthrough(descriptor) });
    }
    let descriptor =
        ShaderModuleDescriptor { label: None, source: ShaderSource::Wgsl(Cow::Borrowed(source)) };
    // SAFETY: the checker proved every access of the kernel in bounds, for the numbers that a launch passes as
    // arguments. Every loop has a fixed iteration count, or one of these, or terminates because integers decrease.
    Ok(unsafe { device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) })
}

/// Compiles user-written WGSL to SPIR-V, as little-endian words of four bytes.
///
/// # Errors
/// naga's message with the position and the reason. A module without a kernel is also an error.
pub fn compile_source(source: &str) -> Result<Vec<u8>, String> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    if module.entry_points.is_empty() {
        return Err("there is no kernel: declare one as @compute @workgroup_size(..) fn name(..)".to_owned());
    }
    let words = catch_unwind(AssertUnwindSafe(|| translate(source)));
    let words = words.unwrap_or_else(|_| Err("its translation panicked".to_owned()))?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// SPIR-V without run-time checks: kernels are checked before.
fn translate(source: &str) -> Result<Vec<u32>, String> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(source))?;
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies::default(),
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    spv::write_vec(&module, &info, &options, None).map_err(|error| error.to_string())
}

/// A pipeline with `buffers` buffers. Immediates hold the first element of each and a zero.
fn pipeline(
    device: &Device,
    module: &ShaderModule,
    buffers: usize,
    cache: Option<&PipelineCache>,
) -> Pipeline {
    let entry = |binding: usize| BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer {
            ty: BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<BindGroupLayoutEntry> = (0..buffers).map(entry).collect();
    let layout =
        device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
    let whole = device.create_pipeline_layout(&PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 4 * (buffers as u32 + 1),
    });
    let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: None,
        layout: Some(&whole),
        module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache,
    });
    Pipeline { pipeline, layout, bindings: Vec::new() }
}
