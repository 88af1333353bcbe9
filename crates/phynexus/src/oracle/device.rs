//! The oracle as the device `reference`: slow and simple, and based on the same code as the definitions of the ops. It
//! tests the scheduler without any other device.

use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    kernel::{self, Bytes, computed, to_scalar},
    lowered::LoweredStep,
};
use crate::dtype::read_scalars;
use crate::{
    Error, Result,
    device::{
        Backend, Binding, Buffer, Device, DeviceInfo, DeviceNature, Executable, Memory, MemoryStatistics,
        Support,
    },
    dtype::scalar_bytes,
    kernel::{
        lower::Target,
        step::{Library, Operand, Step},
    },
    op::{
        Op, TensorType,
        ir::IrNode,
        reference::{OracleArray, every_coordinate, from_scalar},
    },
};

/// Returns the reference device, which is not registered.
pub fn reference_device() -> Device {
    static REFERENCE: Reference =
        Reference { name: String::new(), target: None, allocations: AtomicU64::new(0) };
    Device(&REFERENCE)
}

/// A device that lowers its steps for `target` and interprets the resulting loop trees, which tests GPU kernels without
/// a GPU. It is never freed and is not registered.
pub fn lowered_device(name: &str, target: Target) -> Device {
    let (name, allocations) = (name.to_owned(), AtomicU64::new(0));
    Device(Box::leak(Box::new(Reference { name, target: Some(target), allocations })))
}

struct Reference {
    name: String,
    /// The target for which steps are lowered; without one, the oracle runs them.
    target: Option<Target>,
    allocations: AtomicU64,
}

pub(super) struct HostBytes(Mutex<Vec<u8>>);

impl HostBytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for HostBytes {
    fn size(&self) -> usize {
        self.lock().len()
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn bytes_of(buffer: &Buffer) -> Result<MutexGuard<'_, Vec<u8>>> {
    let foreign = || Error::internal("reference", "the buffer belongs to another device");
    buffer.0.as_any().downcast_ref::<HostBytes>().map(HostBytes::lock).ok_or_else(foreign)
}

fn outside(start: usize, length: usize, size: usize) -> Error {
    Error::internal(
        "reference",
        format!("bytes {start} to {} of a buffer of {size}", start.saturating_add(length)),
    )
}

pub(super) fn read(buffer: &Buffer, start: usize, out: &mut [u8]) -> Result<()> {
    let bytes = bytes_of(buffer)?;
    let range = start..start.saturating_add(out.len());
    out.copy_from_slice(bytes.get(range).ok_or_else(|| outside(start, out.len(), bytes.len()))?);
    Ok(())
}

pub(super) fn write(buffer: &Buffer, start: usize, source: &[u8]) -> Result<()> {
    let mut bytes = bytes_of(buffer)?;
    let size = bytes.len();
    let range = start..start.saturating_add(source.len());
    bytes.get_mut(range).ok_or_else(|| outside(start, source.len(), size))?.copy_from_slice(source);
    Ok(())
}

struct Bound<'a>(&'a [Binding]);

impl Bound<'_> {
    fn binding(&self, parameter: usize) -> Result<&Binding> {
        self.0
            .get(parameter)
            .ok_or_else(|| Error::internal("reference", format!("parameter {parameter} is not bound")))
    }
}

impl Bytes for Bound<'_> {
    fn read(&self, parameter: usize, start: i64, bytes: &mut [u8]) -> Result<()> {
        let binding = self.binding(parameter)?;
        read(&binding.buffer, address(binding, start)?, bytes)
    }
    fn write(&self, parameter: usize, start: i64, bytes: &[u8]) -> Result<()> {
        let binding = self.binding(parameter)?;
        write(&binding.buffer, address(binding, start)?, bytes)
    }
}

pub(super) fn address(binding: &Binding, start: i64) -> Result<usize> {
    let before = || Error::internal("reference", format!("byte {start} is before the buffer"));
    binding.offset.checked_add_signed(start as isize).ok_or_else(before)
}

impl Executable for Step {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        match self {
            Step::Fused(kernel) => kernel::run(kernel, &Bound(bindings)),
            Step::Batch(kernels) => {
                let mut rest = bindings;
                kernels.iter().try_for_each(|kernel| {
                    let (own, others) = rest.split_at(kernel.parameters.len().min(rest.len()));
                    rest = others;
                    kernel::run(kernel, &Bound(own))
                })
            }
            Step::Library(library) => run_library(library, &Bound(bindings)),
        }
    }
}

fn run_library(library: &Library, bound: &Bound) -> Result<()> {
    let operands: Vec<OracleArray> = library
        .operands
        .iter()
        .enumerate()
        .map(|(i, operand)| load(bound, i, operand))
        .collect::<Result<_>>()?;
    let node = &library.node;
    let dtype = node.dtype;
    let numbers = node.op.operation().reference(node, &operands.iter().collect::<Vec<_>>())?;
    let bytes: Vec<u8> =
        numbers.into_iter().flat_map(|n| scalar_bytes(to_scalar(computed(n), dtype), dtype)).collect();
    match &library.epilogue {
        None => bound.write(operands.len(), 0, &bytes),
        Some(epilogue) => {
            let result = Binding { buffer: Buffer(Arc::new(HostBytes(Mutex::new(bytes)))), offset: 0 };
            let others = bound.0[operands.len()..].iter().cloned();
            kernel::run(epilogue, &Bound(&std::iter::once(result).chain(others).collect::<Vec<_>>()))
        }
    }
}

fn load(bound: &Bound, parameter: usize, operand: &Operand) -> Result<OracleArray> {
    let layout = &operand.layout;
    let size = operand.dtype.size();
    let mut bytes = vec![0; layout.len() * size];
    for (at, out) in every_coordinate(&layout.shape).zip(bytes.chunks_mut(size)) {
        let steps: isize = at.iter().zip(&layout.strides).map(|(&c, s)| c as isize * s).sum();
        bound.read(parameter, (layout.offset as i64 + steps as i64) * size as i64, out)?;
    }
    let elements = read_scalars(&bytes, operand.dtype).into_iter().map(from_scalar).collect();
    Ok(OracleArray { dtype: operand.dtype, shape: layout.shape.clone(), elements })
}

impl Backend for Reference {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name().to_owned(),
            model: match &self.target {
                None => "the oracle's interpreter".to_owned(),
                Some(target) => format!("the interpreter of loop trees, as {}", target.limits.device),
            },
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: None,
            features: Vec::new(),
        }
    }
    fn name(&self) -> &str {
        if self.target.is_none() { "reference" } else { &self.name }
    }
    fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }
    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support {
        let is_lowered = |target: &Target| target.lowers_composite(&node.op, operands);
        match self.target.as_ref().is_some_and(is_lowered) {
            true => Support::Routine,
            false => Support::usual(&node.op),
        }
    }
    /// Accepts every epilogue, so that the scheduler's fusion is tested.
    fn epilogue(&self, _: &IrNode) -> bool {
        true
    }
    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        match &self.target {
            // Here a custom kernel runs its CPU function.
            Some(_) if matches!(step.routine(), Some(Op::Custom(_))) => Ok(Arc::new(step.clone())),
            None => Ok(Arc::new(step.clone())),
            Some(target) => Ok(Arc::new(LoweredStep::new(self.name(), step, target)?)),
        }
    }
    /// New memory is filled with a pattern, so that reads of unwritten memory show up.
    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        Ok(Buffer(Arc::new(HostBytes(Mutex::new(vec![0xA5; bytes])))))
    }
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        write(target, offset, bytes)
    }
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        read(source, offset, bytes)
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> MemoryStatistics {
        MemoryStatistics { allocations: self.allocations.load(Ordering::Relaxed), ..Default::default() }
    }
    fn reset_peak_memory(&self) {}
    fn set_memory_limit(&self, _: Option<usize>) {}
    fn empty_cache(&self) {}
}
