//! Kernels written by users, in WGSL: checked, compiled and launched.
//!
//! Tensors are `@group(0)` with the bindings 0, 1, .. in their order, and scalars are the members of a uniform structure at
//! the binding after them. What a shader declares is compared with the signature.

use std::panic::{AssertUnwindSafe, catch_unwind};

use phynexus::{
    Error, Result,
    custom::{CustomKernel, ParameterKind},
    device::scalar_bytes,
    gpu::{SourceArgument, SourceLaunch},
};
use smallvec::SmallVec;
use wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingResource,
    BindingType, Buffer, BufferBinding, BufferBindingType, BufferDescriptor, BufferSize, BufferUsages,
    ComputePipelineDescriptor, PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderSource, ShaderStages,
    naga::{AddressSpace, Module, ShaderStage, StorageAccess, front::wgsl, valid},
};

use crate::{
    compile::Pipeline,
    connection::{Connection, Launch},
};

/// What a shader declares.
struct Declared {
    /// The source, in which all tensors may be written: one buffer may hold several of them, and a buffer is either read
    /// or written by a launch.
    source: String,
    bindings: Vec<(u32, BufferBindingType)>,
}

/// The pipeline of a source.
pub(crate) fn compile(
    connection: &Connection,
    kernel: &CustomKernel,
    source: &str,
) -> Result<Pipeline, String> {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let declared = declared(kernel, source)?;
        connection.checked(|device| {
            let entry = |&(binding, ty): &(u32, BufferBindingType)| BindGroupLayoutEntry {
                binding,
                visibility: ShaderStages::COMPUTE,
                ty: BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
                count: None,
            };
            let entries: Vec<BindGroupLayoutEntry> = declared.bindings.iter().map(entry).collect();
            let layout = device
                .create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
            let whole = device.create_pipeline_layout(&PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            // With the checks at run time that WebGPU asks for: an access beyond a tensor does nothing.
            let module = device.create_shader_module(ShaderModuleDescriptor {
                label: None,
                source: ShaderSource::Wgsl(declared.source.into()),
            });
            let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
                label: None,
                layout: Some(&whole),
                module: &module,
                entry_point: Some(kernel.entry_point()),
                compilation_options: Default::default(),
                cache: None,
            });
            Pipeline { pipeline, layout, bindings: declared.bindings.iter().map(|(at, _)| *at).collect() }
        })
    }));
    made.unwrap_or_else(|_| Err("its translation panicked".to_owned()))
}

/// What the shader declares, if it is what the signature says.
fn declared(kernel: &CustomKernel, source: &str) -> Result<Declared, String> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    check_entry(&module, kernel)?;
    let parameters = kernel.parameters();
    let tensors: Vec<_> = parameters.iter().filter(|p| p.kind != ParameterKind::Scalar).collect();
    let has_scalars = tensors.len() < parameters.len();
    let mut bindings = Vec::new();
    let mut to_replace = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let name = variable.name.as_deref().unwrap_or_default();
        let at = binding.binding as usize;
        match (variable.space, tensors.get(at)) {
            (AddressSpace::Storage { access }, Some(tensor)) if binding.group == 0 => {
                let writes = access.contains(StorageAccess::STORE);
                if writes != (tensor.kind == ParameterKind::Output) {
                    let should = if writes { "read" } else { "read_write" };
                    return Err(format!(
                        "{name} is the {:?} {}: declare it as var<storage, {should}>",
                        tensor.kind, tensor.name
                    ));
                }
                if !writes {
                    to_replace.push(module.global_variables.get_span(handle).to_range());
                }
                bindings.push((binding.binding, BufferBindingType::Storage { read_only: false }));
            }
            (AddressSpace::Uniform, None) if binding.group == 0 && at == tensors.len() && has_scalars => {
                let own = module.types[variable.ty].inner.size(module.to_ctx()) as usize;
                let expected = 4 * (parameters.len() - tensors.len());
                if own != expected {
                    return Err(format!("{name} has {own} bytes, the signature's scalars have {expected}"));
                }
                bindings.push((binding.binding, BufferBindingType::Uniform));
            }
            _ => {
                let group = binding.group;
                return Err(format!("the signature has nothing for {name} at group {group}, binding {at}"));
            }
        }
    }
    let mut text = source.to_owned();
    to_replace.sort_by_key(|range| range.as_ref().map_or(0, |range| range.start));
    for range in to_replace.into_iter().rev() {
        let space = range.and_then(|range| {
            let start = range.start + source.get(range.clone())?.find('<')?;
            Some(start..start + source.get(start..range.end)?.find('>')? + 1)
        });
        text.replace_range(space.ok_or("a variable's declaration is not found")?, "<storage, read_write>");
    }
    Ok(Declared { source: text, bindings })
}

fn check_entry(module: &Module, kernel: &CustomKernel) -> Result<(), String> {
    let name = kernel.entry_point();
    let mut entries = module.entry_points.iter();
    let Some(entry) = entries.find(|entry| entry.name == name && entry.stage == ShaderStage::Compute) else {
        return Err(format!(
            "there is no kernel {name}: declare it as @compute @workgroup_size(..) fn {name}(..)"
        ));
    };
    let size = kernel.work_group_size();
    if entry.workgroup_size.map(|extent| extent as usize) != size {
        let own = entry.workgroup_size;
        return Err(format!(
            "the @workgroup_size of {name} is {own:?}, the kernel's work group size is {size:?}"
        ));
    }
    Ok(())
}

/// Submits a launch, sooner or later.
pub(crate) fn launch(
    connection: &Connection,
    module: &Pipeline,
    launch: &SourceLaunch<'_, Buffer>,
) -> Result<()> {
    let mut scalars: SmallVec<[u8; 64]> = SmallVec::new();
    let mut tensors: SmallVec<[(&Buffer, u64, u64); 8]> = SmallVec::new();
    for argument in launch.arguments {
        match argument {
            SourceArgument::Scalar { dtype, value } => scalars.extend(scalar_bytes(*value, *dtype)),
            // Bindings are whole words, and not empty.
            SourceArgument::Buffer { block, start, bytes, .. } => {
                tensors.push((block, *start as u64, bytes.next_multiple_of(4).max(4) as u64));
            }
        }
    }
    let uniform = if scalars.is_empty() { None } else { Some(uniform(connection, &scalars)?) };
    let mut entries: SmallVec<[BindGroupEntry<'_>; 8]> = SmallVec::new();
    for &binding in &module.bindings {
        let (buffer, offset, size) = match (tensors.get(binding as usize), &uniform) {
            (Some(&tensor), _) => tensor,
            (None, Some(uniform)) => (uniform, 0, uniform.size()),
            (None, None) => return Err(Error::internal("phynexus_wgpu", "a binding of nothing")),
        };
        let resource = BindingResource::Buffer(BufferBinding { buffer, offset, size: BufferSize::new(size) });
        entries.push(BindGroupEntry { binding, resource });
    }
    let bindings = connection.device().create_bind_group(&BindGroupDescriptor {
        label: None,
        layout: &module.layout,
        entries: &entries,
    });
    let grid = launch.groups.map(|groups| groups as u32);
    connection.launch(Launch { pipeline: module.pipeline.clone(), bindings, starts: SmallVec::new(), grid })
}

/// A buffer of the scalars.
fn uniform(connection: &Connection, scalars: &[u8]) -> Result<Buffer> {
    let mut bytes: SmallVec<[u8; 64]> = scalars.into();
    bytes.resize(scalars.len().next_multiple_of(16), 0);
    let (size, usage) = (bytes.len() as u64, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
    let descriptor = BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let buffer = connection.device().create_buffer(&descriptor);
    connection.write(&buffer, 0, &bytes)?;
    Ok(buffer)
}
