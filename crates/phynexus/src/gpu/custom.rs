//! Custom kernels: their modules, and the step that launches one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use smallvec::SmallVec;

use super::{
    Driver, SourceArgument, SourceLaunch,
    spill::{GpuMemory, Pins, pin},
    step::{GpuStep, Resources},
};
use crate::{
    DType, Error, Result, Scalar,
    custom::{CustomCall, CustomKernel, ParameterKind, Source, diagnostics::annotate},
    device::{Binding, Buffer, Executable},
    graph::op::Op,
    kernel::{
        Index, Ranges,
        fused::{Fused, Instruction, Operation, Parameter, Store},
    },
    schedule::step::{Library, Step},
    shape::element_count,
};

/// The modules of custom kernels. They stay while somebody has the kernel.
pub(super) struct CustomModules<D: Driver> {
    known: Mutex<Known<D::Module>>,
}

struct Known<M> {
    modules: HashMap<CustomKernel, Arc<M>>,
    /// Entries whose kernels nobody else has are removed when there are so many.
    sweep_at: usize,
}

impl<D: Driver> CustomModules<D> {
    pub(super) fn new() -> CustomModules<D> {
        CustomModules { known: Mutex::new(Known { modules: HashMap::new(), sweep_at: 64 }) }
    }

    /// The kernel's module, compiled if it is not known.
    pub(super) fn get(&self, driver: &D, kernel: &CustomKernel) -> Result<Arc<D::Module>> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = lock().modules.get(kernel) {
            return Ok(module.clone());
        }
        let source = source_of(driver, kernel)?;
        let module = driver.compile_source(kernel, source).map_err(|messages| Error::KernelSource {
            kernel: kernel.name().to_owned(),
            language: source.language.name(),
            device: driver.name().to_owned(),
            message: annotate(source.text(), &messages),
        })?;
        let module = Arc::new(module);
        let mut dropped = Vec::new();
        let mut known = lock();
        if known.modules.len() >= known.sweep_at {
            dropped.extend(known.modules.extract_if(|kernel, _| kernel.is_last_handle()));
            known.sweep_at = 2 * known.modules.len() + 64;
        }
        known.modules.insert(kernel.clone(), module.clone());
        drop(known);
        drop(dropped);
        Ok(module)
    }
}

/// The kernel's source in the first of the device's languages that it has.
pub(super) fn source_of<'a, D: Driver>(driver: &D, kernel: &'a CustomKernel) -> Result<&'a Source> {
    let languages = driver.source_languages();
    languages.iter().find_map(|&language| kernel.source(language)).ok_or_else(|| {
        let names: Vec<&str> = languages.iter().map(|language| language.name()).collect();
        let takes = if names.is_empty() { "no sources".to_owned() } else { names.join(" or ") };
        kernel.no_source_for(driver.name(), &takes)
    })
}

/// Whether the device can launch so many groups of the kernel's size, on so many buffers.
pub(super) fn check_launch<D: Driver>(driver: &D, kernel: &CustomKernel, groups: [usize; 3]) -> Result<()> {
    let limits = &driver.target().limits;
    let over = |what: &str, most: String, given: String| {
        Err(kernel.misfit(what, format!("at most {most} on {}", driver.name()), given))
    };
    let size = kernel.work_group_size();
    if (0..3).any(|axis| size[axis] > limits.block[axis]) {
        return over("work group size", format!("{:?}", limits.block), format!("{size:?}"));
    }
    let invocations: usize = size.iter().product();
    if invocations > limits.block_size {
        return over(
            "work group size",
            format!("{} invocations", limits.block_size),
            invocations.to_string(),
        );
    }
    if (0..3).any(|axis| groups[axis] > limits.grid[axis]) {
        return over("groups", format!("{:?}", limits.grid), format!("{groups:?}"));
    }
    let buffers = kernel.parameters().iter().filter(|p| p.kind != ParameterKind::Scalar).count();
    if buffers > limits.bindings {
        return over("tensors", limits.bindings.to_string(), buffers.to_string());
    }
    Ok(())
}

/// A launch of a custom kernel as a step.
pub(super) struct CustomStep<D: Driver> {
    resources: Resources<D>,
    call: CustomCall,
    module: Arc<D::Module>,
    /// One an input or output, in the order of the parameters.
    tensors: Vec<TensorArgument<D>>,
}

struct TensorArgument<D: Driver> {
    /// The binding, and where in it the tensor begins, in bytes.
    binding: usize,
    start: usize,
    elements: usize,
    dtype: DType,
    written: bool,
    /// Makes it zeros, where it must be.
    zero: Option<GpuStep<D>>,
    /// Copies it, made when it first lies at an address that cannot be bound.
    copy: OnceLock<Result<GpuStep<D>>>,
}

impl<D: Driver> CustomStep<D> {
    pub(super) fn new(
        resources: Resources<D>,
        library: &Library,
        call: &CustomCall,
    ) -> Result<CustomStep<D>> {
        if library.epilogue.is_some() {
            return Err(Error::internal("gpu", "a custom kernel with an epilogue"));
        }
        let driver = &resources.heap.driver;
        check_launch(driver, call.kernel(), call.groups())?;
        let module = resources.custom.get(driver, call.kernel())?;
        let (starts, _) = call.packing()?;
        let mut outputs = starts.into_iter().zip(call.outputs());
        let mut inputs = library.operands.iter().enumerate();
        let mut tensors = Vec::new();
        let missing = || Error::internal("gpu", "a custom kernel without a tensor of its signature");
        for parameter in call.kernel().parameters() {
            let dtype = parameter.dtype;
            let (binding, start, elements) = match parameter.kind {
                ParameterKind::Scalar => continue,
                ParameterKind::Input => {
                    let (binding, operand) = inputs.next().ok_or_else(missing)?;
                    (binding, 0, operand.layout.len())
                }
                ParameterKind::Output => {
                    let (start, shape) = outputs.next().ok_or_else(missing)?;
                    (library.operands.len(), start * dtype.size(), element_count(shape))
                }
            };
            let zero = match parameter.zeroed && elements > 0 {
                true => Some(GpuStep::new(resources.clone(), &Step::Fused(zeros(dtype, elements)))?),
                false => None,
            };
            let written = parameter.kind == ParameterKind::Output;
            tensors.push(TensorArgument {
                binding,
                start,
                elements,
                dtype,
                written,
                zero,
                copy: OnceLock::new(),
            });
        }
        Ok(CustomStep { resources, call: call.clone(), module, tensors })
    }
}

impl<D: Driver> TensorArgument<D> {
    fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// Where the tensor lies.
    fn place(&self, bindings: &[Binding]) -> Result<Binding> {
        let binding =
            bindings.get(self.binding).ok_or_else(|| Error::internal("gpu", "a missing binding"))?;
        Ok(Binding { buffer: binding.buffer.clone(), offset: binding.offset + self.start })
    }

    fn copy(&self, resources: &Resources<D>, from: &Binding, to: &Binding) -> Result<()> {
        let make = || GpuStep::new(resources.clone(), &Step::Fused(copy(self.dtype, self.elements)));
        self.copy.get_or_init(make).as_ref().map_err(Clone::clone)?.run(&[from.clone(), to.clone()])
    }
}

impl<D: Driver> Executable for CustomStep<D> {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let Resources { heap, .. } = &self.resources;
        let driver = &heap.driver;
        if self.call.groups().contains(&0) {
            return Ok(());
        }
        let alignment = driver.binding_alignment().max(1);
        // Where each tensor lies for the kernel, and, for those copied, where it belongs.
        let mut places: SmallVec<[(Binding, Option<Binding>); 8]> = SmallVec::new();
        for tensor in &self.tensors {
            let place = tensor.place(bindings)?;
            if place.offset % alignment == 0 || tensor.elements == 0 {
                places.push((place, None));
                continue;
            }
            let buffer = Buffer(GpuMemory::new(heap, tensor.bytes())?);
            let aligned = Binding { buffer, offset: 0 };
            if !tensor.written {
                tensor.copy(&self.resources, &place, &aligned)?;
            }
            places.push((aligned, Some(place)));
        }
        for (tensor, (place, _)) in self.tensors.iter().zip(&places) {
            if let Some(zero) = &tensor.zero {
                zero.run(std::slice::from_ref(place))?;
            }
        }
        let mut scalars = self.call.scalars().iter();
        let pins: Pins<'_, D> =
            places.iter().map(|(place, _)| pin(heap, &place.buffer)).collect::<Result<_>>()?;
        let mut tensors = self.tensors.iter().zip(places.iter().zip(&pins));
        let mut arguments: SmallVec<[SourceArgument<'_, D::Block>; 12]> = SmallVec::new();
        let missing = || Error::internal("gpu", "a custom kernel without an argument of its signature");
        for parameter in self.call.kernel().parameters() {
            arguments.push(match parameter.kind {
                ParameterKind::Scalar => SourceArgument::Scalar {
                    dtype: parameter.dtype,
                    value: *scalars.next().ok_or_else(missing)?,
                },
                ParameterKind::Input | ParameterKind::Output => {
                    let (tensor, ((place, _), pin)) = tensors.next().ok_or_else(missing)?;
                    let bytes = tensor.bytes();
                    let offset = if bytes == 0 { 0 } else { place.offset };
                    let (block, start) = pin.place(offset, bytes)?;
                    SourceArgument::Buffer { block, start, bytes, written: tensor.written }
                }
            });
        }
        let launch =
            SourceLaunch { kernel: self.call.kernel(), groups: self.call.groups(), arguments: &arguments };
        let kernel = self.call.kernel();
        let geometry = || (self.call.groups(), kernel.work_group_size(), 0);
        heap.watched(kernel.name(), geometry, || driver.launch_source(&self.module, &launch))?;
        for (tensor, (own, belongs)) in self.tensors.iter().zip(&places) {
            if let Some(place) = belongs.as_ref().filter(|_| tensor.written) {
                tensor.copy(&self.resources, own, place)?;
            }
        }
        Ok(())
    }
}

/// The step of a custom kernel, if it is one.
pub(super) fn call(step: &Step) -> Option<(&Library, &CustomCall)> {
    match step {
        Step::Library(library) => match &library.node.op {
            Op::Custom(call) => Some((library, call)),
            _ => None,
        },
        Step::Fused(_) | Step::Batch(_) => None,
    }
}

fn each(elements: usize, operation: impl FnOnce(Index) -> Operation, parameters: Vec<Parameter>) -> Fused {
    let dtype = parameters[0].dtype;
    let index = Index::range(0, &Ranges::of(&[elements]));
    let parameter = (parameters.len() - 1) as u16;
    Fused {
        rows: [elements].as_slice().into(),
        instructions: vec![Instruction { operation: operation(index.clone()), dtype, per_column: false }],
        stores: vec![Store { parameter, value: 0, index }],
        parameters,
        ..Fused::default()
    }
}

/// A kernel that copies so many elements.
fn copy(dtype: DType, elements: usize) -> Fused {
    let load = |index| Operation::Load { parameter: 0, index, mask: None, fill: Scalar::Int(0).cast(dtype) };
    let parameters = [false, true].map(|written| Parameter { dtype, written });
    each(elements, load, parameters.to_vec())
}

/// A kernel that stores so many zeros.
fn zeros(dtype: DType, elements: usize) -> Fused {
    let zero = |_| Operation::Constant(Scalar::Int(0).cast(dtype));
    each(elements, zero, vec![Parameter { dtype, written: true }])
}
