//! User-written kernels: checked, compiled and launched.
//!
//! Tensors are in `@group(0)` with the bindings 0, 1, .. in order. Scalars are the members of a uniform structure at
//! the binding after them. The declarations of a WGSL or SPIR-V shader are compared with the signature. naga reads both
//! and translates them for the API with WebGPU's run-time checks, so the API's driver only sees checked code. MSL is
//! passed to Metal unchanged.

mod signature;

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

use phynexus::{
    Error, Result,
    custom::{CustomKernel, Parameter, ParameterKind, Source, SourceLanguage},
    dtype::scalar_bytes,
    gpu::{NotCompiled, SourceArgument, SourceLaunch},
};
use smallvec::SmallVec;
use wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingResource,
    BindingType, Buffer, BufferBinding, BufferBindingType, BufferDescriptor, BufferSize, BufferUsages,
    ComputePipelineDescriptor, Device, PassthroughShaderEntryPoint, PipelineCache, PipelineLayoutDescriptor,
    ShaderModule, ShaderModuleDescriptor, ShaderModuleDescriptorPassthrough, ShaderSource, ShaderStages,
    naga::{
        AddressSpace, GlobalVariable, Module, ShaderStage, StorageAccess,
        front::{spv, wgsl},
        valid::{self, GlobalUse, ModuleInfo},
    },
};

use crate::{
    connection::{Connection, Launch},
    language::{MSL, SPIR_V},
    pipelines::{Pipeline, Pipelines},
};

/// The first word of a SPIR-V module.
const SPIRV_MAGIC: u32 = 0x0723_0203;

/// The bindings of a shader and their types.
type Bindings = Vec<(u32, BufferBindingType)>;

/// All tensors are bound as writable: one buffer may hold several of them, and within a launch a buffer is either
/// read-only or writable.
const TENSOR: BufferBindingType = BufferBindingType::Storage { read_only: false };

/// The pipeline of a source.
pub(crate) fn compile(
    connection: &Connection,
    pipelines: &Pipelines,
    kernel: &CustomKernel,
    source: &Source,
) -> Result<Pipeline, NotCompiled> {
    let made = catch_unwind(AssertUnwindSafe(|| {
        if source.language == MSL {
            return metal(connection, kernel, source.text());
        }
        let (module, info) = read(source)?;
        let (module, bindings) = declared(kernel, module, &info, source.language)?;
        pipelines.make(connection, &key(kernel, source), |device, cache| {
            let source = ShaderSource::Naga(Cow::Owned(module.clone()));
            let shader = device.create_shader_module(ShaderModuleDescriptor { label: None, source });
            Ok(pipeline(device, kernel, &shader, &bindings, cache))
        })
    }));
    made.unwrap_or_else(|_| Err("its translation panicked".to_owned().into()))
}

/// The pipeline of an MSL source: every tensor and the scalars are bound, whether the source declares them or not.
fn metal(connection: &Connection, kernel: &CustomKernel, source: &str) -> Result<Pipeline, NotCompiled> {
    let count = tensors(kernel).len();
    let mut bindings: Bindings = (0..count as u32).map(|binding| (binding, TENSOR)).collect();
    if count < kernel.parameters().len() {
        bindings.push((count as u32, BufferBindingType::Uniform));
    }
    let [x, y, z] = kernel.work_group_size().map(|extent| extent as u32);
    let entry = PassthroughShaderEntryPoint { name: kernel.entry_point().into(), workgroup_size: (x, y, z) };
    connection.checked(|device| {
        let descriptor = ShaderModuleDescriptorPassthrough {
            entry_points: Cow::Owned(vec![entry]),
            msl: Some(source.into()),
            ..Default::default()
        };
        // SAFETY: Metal's compiler accepts any text. The author is responsible for what the kernel does, as in CUDA C.
        let shader = unsafe { device.create_shader_module_passthrough(descriptor) };
        pipeline(device, kernel, &shader, &bindings, None)
    })
}

/// The cache key of a source.
fn key(kernel: &CustomKernel, source: &Source) -> String {
    let code = match source.language.is_binary {
        true => Cow::Owned(format!("{:x?}", source.bytes())),
        false => Cow::Borrowed(source.text()),
    };
    format!("{} {}\n{code}", source.language, kernel.entry_point())
}

fn pipeline(
    device: &Device,
    kernel: &CustomKernel,
    module: &ShaderModule,
    bindings: &[(u32, BufferBindingType)],
    cache: Option<&PipelineCache>,
) -> Pipeline {
    let entry = |&(binding, ty): &(u32, BufferBindingType)| BindGroupLayoutEntry {
        binding,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    };
    let entries: Vec<BindGroupLayoutEntry> = bindings.iter().map(entry).collect();
    let layout =
        device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
    let whole = device.create_pipeline_layout(&PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: None,
        layout: Some(&whole),
        module,
        entry_point: Some(kernel.entry_point()),
        compilation_options: Default::default(),
        cache,
    });
    Pipeline { pipeline, layout, bindings: bindings.iter().map(|(at, _)| *at).collect() }
}

fn tensors(kernel: &CustomKernel) -> Vec<&Parameter> {
    kernel.parameters().iter().filter(|p| p.kind != ParameterKind::Scalar).collect()
}

/// The module of a source, if it is valid.
fn read(source: &Source) -> Result<(Module, ModuleInfo), String> {
    let text = source.text();
    let module = match source.language {
        SPIR_V => read_spirv(source.bytes())?,
        _ => wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?,
    };
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::all());
    let info = validator.validate(&module).map_err(|error| error.emit_to_string(text))?;
    Ok((module, info))
}

/// Reads SPIR-V as little-endian words of four bytes.
fn read_spirv(bytes: &[u8]) -> Result<Module, String> {
    let Some(first) = bytes.first_chunk().filter(|_| bytes.len().is_multiple_of(4)) else {
        return Err(format!("expected words of four bytes, got {} bytes", bytes.len()));
    };
    match u32::from_le_bytes(*first) {
        SPIRV_MAGIC => {}
        swapped if swapped == SPIRV_MAGIC.swap_bytes() => {
            return Err("the words are big-endian; expected little-endian".to_owned());
        }
        other => {
            return Err(format!(
                "it begins with {other:#010x}; a SPIR-V module begins with {SPIRV_MAGIC:#010x}"
            ));
        }
    }
    let options = spv::Options { adjust_coordinate_space: false, ..spv::Options::default() };
    spv::parse_u8_slice(bytes, &options).map_err(|error| format!("naga cannot read the module: {error}"))
}

/// The module with all tensors as they are bound, and its bindings, if they match the signature.
fn declared(
    kernel: &CustomKernel,
    mut module: Module,
    info: &ModuleInfo,
    language: SourceLanguage,
) -> Result<(Module, Bindings), String> {
    let entry = entry(&module, kernel, language)?;
    let uses = info.get_entry_point(entry);
    let tensors = tensors(kernel);
    let scalars = kernel.parameters().len() - tensors.len();
    let mut bindings = Vec::new();
    let mut bound = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let at = binding.binding as usize;
        let called = || name(variable, at);
        match (variable.space, tensors.get(at)) {
            (AddressSpace::Storage { access }, Some(tensor)) if binding.group == 0 => {
                let declared = access.contains(StorageAccess::STORE);
                // Compilers to SPIR-V may omit that a buffer is read-only.
                let writes = match language {
                    SPIR_V => declared && uses[handle].contains(GlobalUse::WRITE),
                    _ => declared,
                };
                let is_output = tensor.kind == ParameterKind::Output;
                let wrong = if is_output { !declared } else { writes };
                if wrong {
                    let (kind, own) = (tensor.kind, &tensor.name);
                    let should = match (language, is_output) {
                        (SPIR_V, true) => "it must not be NonWritable",
                        (SPIR_V, false) => "it must not be written",
                        (_, true) => "declare it as var<storage, read_write>",
                        (_, false) => "declare it as var<storage, read>",
                    };
                    return Err(format!("{} is the {kind:?} {own}: {should}", called()));
                }
                signature::check_elements(&module, variable.ty, &called(), tensor, language)?;
                bindings.push((binding.binding, TENSOR));
                bound.push(handle);
            }
            (AddressSpace::Uniform, None) if binding.group == 0 && at == tensors.len() && scalars > 0 => {
                let own = module.types[variable.ty].inner.size(module.to_ctx()) as usize;
                let expected = 4 * scalars;
                // Compilers to SPIR-V may round up the size of a structure.
                if own != expected && own != expected.next_multiple_of(16) {
                    let called = called();
                    return Err(format!(
                        "{called} has {own} bytes, but the signature's scalars have {expected}"
                    ));
                }
                signature::check_scalars(&module, variable.ty, &called(), kernel)?;
                bindings.push((binding.binding, BufferBindingType::Uniform));
            }
            _ => {
                let (called, group) = (called(), binding.group);
                return Err(format!(
                    "the signature has no parameter for {called} at group {group}, binding {at}"
                ));
            }
        }
    }
    let places: Vec<u32> = bindings.iter().map(|(at, _)| *at).collect();
    signature::check_outputs(&tensors, &places, language)?;
    for handle in bound {
        let access = StorageAccess::LOAD | StorageAccess::STORE;
        module.global_variables[handle].space = AddressSpace::Storage { access };
    }
    Ok((module, bindings))
}

/// A variable's name, if the module has names.
fn name(variable: &GlobalVariable, binding: usize) -> String {
    let known = variable.name.clone().filter(|name| !name.is_empty());
    known.unwrap_or_else(|| format!("the variable at binding {binding}"))
}

/// The index of the kernel's entry point in the module.
fn entry(module: &Module, kernel: &CustomKernel, language: SourceLanguage) -> Result<usize, String> {
    let name = kernel.entry_point();
    let mut entries = module.entry_points.iter();
    let is_own = |stage: ShaderStage, own: &str| own == name && stage == ShaderStage::Compute;
    let Some(at) = entries.position(|entry| is_own(entry.stage, &entry.name)) else {
        let how = match language {
            SPIR_V => format!("it needs an OpEntryPoint GLCompute {name:?}"),
            _ => format!("declare it as @compute @workgroup_size(..) fn {name}(..)"),
        };
        return Err(format!("there is no kernel {name}: {how}"));
    };
    let own = module.entry_points[at].workgroup_size;
    let size = kernel.work_group_size();
    if own.map(|extent| extent as usize) != size {
        let word = if language == SPIR_V { "LocalSize" } else { "@workgroup_size" };
        return Err(format!("the {word} of {name} is {own:?}, but the kernel's work group size is {size:?}"));
    }
    Ok(at)
}

/// Queues a launch; it may be submitted later.
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
            (None, None) => return Err(Error::internal("phynexus_wgpu", "an empty binding")),
        };
        let resource = BindingResource::Buffer(BufferBinding { buffer, offset, size: BufferSize::new(size) });
        entries.push(BindGroupEntry { binding, resource });
    }
    let descriptor = BindGroupDescriptor { label: None, layout: &module.layout, entries: &entries };
    let made = connection.checked(|device| device.create_bind_group(&descriptor));
    let bindings = made.map_err(|reason| connection.error("binding a custom kernel's tensors", reason))?;
    let grid = launch.groups.map(|groups| groups as u32);
    connection.launch(Launch { pipeline: module.pipeline.clone(), bindings, starts: SmallVec::new(), grid })
}

/// A uniform buffer with the scalars.
fn uniform(connection: &Connection, scalars: &[u8]) -> Result<Buffer> {
    let mut bytes: SmallVec<[u8; 64]> = scalars.into();
    bytes.resize(scalars.len().next_multiple_of(16), 0);
    let (size, usage) = (bytes.len() as u64, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
    let descriptor = BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let made = connection.checked(|device| device.create_buffer(&descriptor));
    let buffer = made.map_err(|reason| connection.error("allocating a kernel's scalars", reason))?;
    connection.write(&buffer, 0, &bytes)?;
    Ok(buffer)
}
