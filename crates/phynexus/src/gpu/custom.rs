//! Custom kernels: their modules, and the step that launches one.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use smallvec::SmallVec;

use super::{
    Driver, NotCompiled, SourceArgument, SourceLaunch,
    compile::Kept,
    heap::Heap,
    spill::{GpuMemory, Pins, hold, pin},
    step::{GpuStep, Resources},
};
use crate::{
    DType, Error, Result, Scalar,
    device::{Binding, Buffer, Executable, Prepared},
    kernel::{
        fused::{FusedOp, Fusion, Parameter},
        step::{Library, Step},
    },
    op::Op,
    op::custom::{CustomCall, CustomKernel, ParameterKind, Source, diagnostics::annotate},
    shape::element_count,
};

/// The modules of custom kernels. Each stays until its kernel is dropped.
pub(super) struct CustomModules<D: Driver> {
    known: Mutex<Known<D::Module>>,
}

struct Known<M> {
    modules: HashMap<CustomKernel, Arc<M>>,
    /// At this many entries, those whose kernels are gone are removed.
    sweep_at: usize,
}

impl<D: Driver> CustomModules<D> {
    pub(super) fn new() -> CustomModules<D> {
        CustomModules { known: Mutex::new(Known { modules: HashMap::new(), sweep_at: 64 }) }
    }

    /// Returns the kernel's module, and compiles it if necessary.
    pub(super) fn get(&self, heap: &Heap<D>, kernel: &CustomKernel) -> Result<Arc<D::Module>> {
        let driver = &heap.driver;
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = lock().modules.get(kernel) {
            return Ok(module.clone());
        }
        let source = source_of(driver, kernel)?;
        let compiled = heap.compiled(|| driver.compile_source(kernel, source));
        let module = compiled.map_err(|reason| match reason {
            NotCompiled::Refused(messages) => Error::KernelSource {
                kernel: kernel.name().to_owned(),
                language: source.language.name,
                device: driver.name().to_owned(),
                message: annotate(source.text(), &messages),
            },
            NotCompiled::Failed(error) => error,
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

/// Returns the kernel's source in the first of the device's languages that the kernel has.
pub(super) fn source_of<'a, D: Driver>(driver: &D, kernel: &'a CustomKernel) -> Result<&'a Source> {
    let languages = driver.source_languages();
    languages.iter().find_map(|&language| kernel.source(language)).ok_or_else(|| {
        let names: Vec<&str> = languages.iter().map(|language| language.name).collect();
        let takes = if names.is_empty() { "no sources".to_owned() } else { names.join(" or ") };
        kernel.no_source_for(driver.name(), &takes)
    })
}

/// Checks that the device can launch this many groups of the kernel's size, with this many buffers.
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

/// A step that launches a custom kernel.
pub(super) struct CustomStep<D: Driver> {
    resources: Resources<D>,
    call: CustomCall,
    module: Arc<D::Module>,
    /// One per input or output, in the order of the parameters.
    tensors: Vec<TensorArgument<D>>,
}

struct TensorArgument<D: Driver> {
    /// The binding, and the byte offset of the tensor in it.
    binding: usize,
    start: usize,
    elements: usize,
    dtype: DType,
    written: bool,
    /// Fills the tensor with zeros, if required.
    zero: Option<GpuStep<D>>,
    /// The binding that the tensor starts as a copy of.
    begins: Option<usize>,
    /// Copies the tensor. Made when it starts as a copy, or when its address first turns out to be unusable as a
    /// binding.
    copy: Kept<GpuStep<D>>,
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
        let module = resources.custom.get(&resources.heap, call.kernel())?;
        let (starts, _) = call.packing()?;
        let mut outputs = starts.into_iter().zip(call.outputs());
        let mut inputs = library.operands.iter().enumerate();
        let read = call.kernel().parameters().iter().filter(|p| p.kind == ParameterKind::Input).count();
        // The operands that outputs start as copies of follow the inputs.
        let mut begun = read..library.operands.len();
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
            let (bytes, most) = (elements.saturating_mul(dtype.size()), driver.largest_binding());
            if bytes > most {
                let (most, given) =
                    (format!("at most {most} bytes on {}", driver.name()), format!("{bytes}"));
                return Err(call.kernel().misfit(&parameter.name, most, given));
            }
            let zero = match parameter.zeroed && elements > 0 {
                true => Some(GpuStep::new(resources.clone(), &Step::Fused(zeros(dtype, elements)), None)?),
                false => None,
            };
            let begins = match parameter.copied {
                true => Some(begun.next().ok_or_else(missing)?),
                false => None,
            };
            let written = parameter.kind == ParameterKind::Output;
            let copy = Kept::new();
            tensors.push(TensorArgument { binding, start, elements, dtype, written, zero, begins, copy });
        }
        Ok(CustomStep { resources, call: call.clone(), module, tensors })
    }
}

impl<D: Driver> TensorArgument<D> {
    fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// Returns the tensor's binding.
    fn binding(&self, bindings: &[Binding]) -> Result<Binding> {
        let binding =
            bindings.get(self.binding).ok_or_else(|| Error::internal("gpu", "a missing binding"))?;
        Ok(Binding { buffer: binding.buffer.clone(), offset: binding.offset + self.start })
    }

    /// Returns the source and destination of the copy. Results are copied from the kernel's buffer to their binding,
    /// inputs to the kernel's buffer.
    fn way(&self, own: &Binding, belongs: &Binding) -> [Binding; 2] {
        match self.written {
            true => [own.clone(), belongs.clone()],
            false => [belongs.clone(), own.clone()],
        }
    }

    /// Returns the step that copies the tensor.
    fn copy(&self, resources: &Resources<D>) -> Result<&GpuStep<D>> {
        self.copy.get(|| {
            GpuStep::new(resources.clone(), &Step::Fused(Fusion::copy(self.dtype, self.elements)), None)
        })
    }
}

/// The kernel's buffer for a tensor, and the resources to fill it.
struct PreparedTensor {
    own: Binding,
    /// The tensor's binding, if the kernel cannot use it directly, and the resources to copy.
    belongs: Option<(Binding, Prepared)>,
    zero: Prepared,
    /// The binding that the tensor starts as a copy of, and the resources to copy.
    begins: Option<(Binding, Prepared)>,
}

/// The tensors of one run.
struct Taken {
    placed: Vec<PreparedTensor>,
    /// Keeps them resident on the device.
    _held: Option<Box<dyn Any>>,
}

impl<D: Driver> CustomStep<D> {
    /// Submits the kernel with its tensors at their bindings.
    fn launch(&self, placed: &[PreparedTensor]) -> Result<()> {
        let heap = &self.resources.heap;
        let mut scalars = self.call.scalars().iter();
        let pins: Pins<'_, D> =
            placed.iter().map(|placed| pin(heap, &placed.own.buffer)).collect::<Result<_>>()?;
        let mut tensors = self.tensors.iter().zip(placed.iter().zip(&pins));
        let mut arguments: SmallVec<[SourceArgument<'_, D::Block>; 12]> = SmallVec::new();
        let missing = || Error::internal("gpu", "a custom kernel without an argument of its signature");
        for parameter in self.call.kernel().parameters() {
            arguments.push(match parameter.kind {
                ParameterKind::Scalar => SourceArgument::Scalar {
                    dtype: parameter.dtype,
                    value: *scalars.next().ok_or_else(missing)?,
                },
                ParameterKind::Input | ParameterKind::Output => {
                    let (tensor, (placed, pin)) = tensors.next().ok_or_else(missing)?;
                    let bytes = tensor.bytes();
                    let offset = if bytes == 0 { 0 } else { placed.own.offset };
                    let (block, start) = pin.slice(offset, bytes)?;
                    SourceArgument::Buffer { block, start, bytes, written: tensor.written }
                }
            });
        }
        let launch =
            SourceLaunch { kernel: self.call.kernel(), groups: self.call.groups(), arguments: &arguments };
        let kernel = self.call.kernel();
        let geometry = || (self.call.groups(), kernel.work_group_size(), 0);
        heap.watched(kernel.name(), geometry, || heap.driver.launch_source(&self.module, &launch))
    }
}

impl<D: Driver> Executable for CustomStep<D> {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        self.run_prepared(bindings, self.prepare(bindings)?)
    }

    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let heap = &self.resources.heap;
        if self.call.groups().contains(&0) {
            return Ok(None);
        }
        let alignment = heap.driver.binding_alignment().max(1);
        let mut placed = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let binding = tensor.binding(bindings)?;
            let (own, belongs) = if binding.offset % alignment == 0 || tensor.elements == 0 {
                (binding, None)
            } else {
                let own = Binding { buffer: Buffer(GpuMemory::new(heap, tensor.bytes())?), offset: 0 };
                let way = tensor.way(&own, &binding);
                let prepared = tensor.copy(&self.resources)?.prepare(&way)?;
                (own, Some((binding, prepared)))
            };
            let zero = match &tensor.zero {
                Some(zero) => zero.prepare(std::slice::from_ref(&own))?,
                None => None,
            };
            let begins = match tensor.begins.filter(|_| tensor.elements > 0) {
                Some(at) => {
                    let missing = || Error::internal("gpu", "a missing binding");
                    let from = bindings.get(at).cloned().ok_or_else(missing)?;
                    let way = [from.clone(), own.clone()];
                    Some((from, tensor.copy(&self.resources)?.prepare(&way)?))
                }
                None => None,
            };
            placed.push(PreparedTensor { own, belongs, zero, begins });
        }
        let held = hold(heap, &mut placed.iter().map(|placed| &placed.own.buffer))?;
        Ok(Some(Box::new(Taken { placed, _held: held })))
    }

    fn run_prepared(&self, _: &[Binding], prepared: Prepared) -> Result<()> {
        if self.call.groups().contains(&0) {
            return Ok(());
        }
        let mut taken = prepared
            .and_then(|taken| taken.downcast::<Taken>().ok())
            .ok_or_else(|| Error::internal("gpu", "the custom kernel was not prepared"))?;
        for (tensor, placed) in self.tensors.iter().zip(&mut taken.placed) {
            if let Some((binding, prepared)) = placed.belongs.as_mut().filter(|_| !tensor.written) {
                let way = tensor.way(&placed.own, binding);
                tensor.copy(&self.resources)?.run_prepared(&way, prepared.take())?;
            }
        }
        for (tensor, placed) in self.tensors.iter().zip(&mut taken.placed) {
            if let Some(zero) = &tensor.zero {
                zero.run_prepared(std::slice::from_ref(&placed.own), placed.zero.take())?;
            }
            if let Some((from, prepared)) = &mut placed.begins {
                let way = [from.clone(), placed.own.clone()];
                tensor.copy(&self.resources)?.run_prepared(&way, prepared.take())?;
            }
        }
        self.launch(&taken.placed)?;
        for (tensor, placed) in self.tensors.iter().zip(&mut taken.placed) {
            if let Some((binding, prepared)) = placed.belongs.as_mut().filter(|_| tensor.written) {
                let way = tensor.way(&placed.own, binding);
                tensor.copy(&self.resources)?.run_prepared(&way, prepared.take())?;
            }
        }
        Ok(())
    }
}

/// Returns the custom call of a step, if it is one.
pub(super) fn call(step: &Step) -> Option<(&Library, &CustomCall)> {
    match step {
        Step::Library(library) => match &library.node.op {
            Op::Custom(call) => Some((library, call)),
            _ => None,
        },
        Step::Fused(_) | Step::Batch(_) => None,
    }
}

/// Returns a kernel that stores this many zeros.
fn zeros(dtype: DType, elements: usize) -> Fusion {
    let zero = |_| FusedOp::Constant(Scalar::Int(0).cast(dtype));
    Fusion::each(elements, zero, vec![Parameter { dtype, written: true }])
}
