//! Library steps: matrix products, convolutions and other separate routines, with their epilogues.

mod attention;
mod class_index;
mod collective;
mod convolution;
mod custom;
mod dot;
mod epilogue;
mod indexing;
mod pooling;
mod recurrent;

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use phynexus::{
    DType, Error, Result,
    device::{Binding, Executable, Support},
    kernel::step::{Library, Operand},
    op::{
        Composite, Conv, ConvKind, Op, Pool,
        composite::{AttentionGradient, ClassIndex},
        ir::IrNode,
    },
    shape::Layout,
};
use smallvec::SmallVec;

use crate::{
    device::{NAME, part},
    fused::AlignedMemory,
};
use epilogue::Epilogue;

/// A routine for fixed shapes.
trait Routine: Send + Sync {
    /// Computes the result, row-major. Operands are row-major too, unless [`reads_strides`] allows other layouts.
    ///
    /// # Safety
    /// Operands must be the addresses of their first elements and readable according to their layouts; the result must
    /// have room for its elements and not overlap an operand.
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()>;

    /// The routine's block interface, if it has one and the blocks are large enough to be useful.
    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        None
    }
}

/// The callback for blocks of a result viewed as a matrix: rows, columns, and the address of element (0, 0), which exists
/// if the result is stored.
type Finished<'a> = &'a (dyn Fn(Range<usize>, Range<usize>, *mut u8) + Sync);

/// A routine that computes its result in blocks.
trait InBlocks {
    /// The number of leading axes of the result that index the rows of blocks, row-major; the other axes index the
    /// columns.
    fn row_axes(&self) -> usize;

    /// If the routine need not store its result, the elements between rows of the blocks that it then reports.
    fn pitch(&self) -> Option<usize> {
        None
    }

    /// Computes the result like [`Routine::run`]. Calls `finished` exactly once for every element, in blocks. Each call
    /// comes from any thread, after the block's values are stored and while they are likely in cache. If `result` is
    /// null, the result is not stored, and a block only exists during the call.
    ///
    /// # Safety
    /// Same as [`Routine::run`]; the result may only be null if there is a pitch.
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8, finished: Finished<'_>) -> Result<()>;
}

/// Whether the CPU has a routine for this node.
pub(crate) fn support(node: &IrNode, operands: &[DType]) -> Support {
    match &node.op {
        Op::Dot => dot::support(node.dtype, operands),
        Op::Conv(Conv(_, geometry)) => convolution::support(geometry, node.dtype, operands),
        Op::Pool(Pool(kind, geometry)) => pooling::support(*kind, geometry, operands),
        Op::Composite(composite) => composite_support(composite, operands),
        Op::Custom(call) if call.kernel().has_cpu_function() => Support::Routine,
        Op::Collective(_) => Support::Routine,
        Op::Custom(call) => {
            let refusal = call.kernel().no_source_for(NAME, "a function for the CPU");
            Support::Unsupported(refusal.to_string())
        }
        _ => indexing::support(node, operands),
    }
}

/// Whether the operation's routine supports this operand layout, which is not row-major.
pub(crate) fn reads_strides(node: &IrNode, operand: usize, layout: &Layout) -> bool {
    match &node.op {
        // The summation order of a product depends on its shapes and on which axis of a matrix has the smaller stride.
        // A repeated element has stride 0 only as long as the repetition has not been stored.
        Op::Dot => {
            let matrix = layout.shape.len() - 2..;
            layout.shape[matrix.clone()].iter().zip(&layout.strides[matrix]).all(|(&d, &s)| d == 1 || s != 0)
        }
        Op::Composite(Composite::Attention(_)) => true,
        Op::Composite(Composite::AttentionGradient(gradient)) => {
            attention::reads(&gradient.0, operand, layout)
        }
        Op::Composite(Composite::Recurrent(_)) => operand == 0,
        _ => false,
    }
}

/// Composites with routines, most of them for `float32` if they compute; other composites consist of operations that have kernels.
fn composite_support(composite: &Composite, operands: &[DType]) -> Support {
    let fits = match composite {
        Composite::Recurrent(_) | Composite::RecurrentGradient(_) => {
            operands.iter().all(|o| *o == DType::F32)
        }
        Composite::Attention(attention) | Composite::AttentionGradient(AttentionGradient(attention)) => {
            let is_mask = |at: usize| attention.mask && at == 3;
            let fits = |(at, o): (usize, &DType)| *o == DType::F32 || is_mask(at) && *o == DType::Bool;
            attention.dropout == 0 && operands.iter().enumerate().all(fits)
        }
        Composite::ClassIndex(_) => operands == [DType::I64],
        Composite::MaxPoolGradient(gradient) => pooling::supports_gradient(gradient),
        _ => false,
    };
    if fits { Support::Routine } else { Support::Body }
}

/// Whether an epilogue can run on the blocks of this operation's result.
pub(crate) fn epilogue(node: &IrNode) -> bool {
    match &node.op {
        Op::Dot => true,
        Op::Conv(Conv(kind, _)) => *kind != ConvKind::FilterGradient,
        _ => false,
    }
}

/// Compiles a library step.
pub(crate) fn compile(step: &Library) -> Result<Arc<dyn Executable>> {
    let readable = |(at, operand): (usize, &Operand)| {
        operand.layout.is_contiguous() || reads_strides(&step.node, at, &operand.layout)
    };
    if !step.operands.iter().enumerate().all(readable) {
        return Err(misfit(step.node.op.name(), &step.operands));
    }
    let routine: Box<dyn Routine> = match &step.node.op {
        Op::Dot => Box::new(dot::Dot::new(&step.node, &step.operands)?),
        Op::Conv(Conv(kind, geometry)) => {
            Box::new(convolution::Convolution::new(*kind, geometry, &step.node, &step.operands)?)
        }
        Op::Pool(Pool(kind, geometry)) => {
            Box::new(pooling::Pooling::new(*kind, geometry, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::Attention(attention)) => {
            Box::new(attention::Forward::new(attention, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::AttentionGradient(gradient)) => {
            Box::new(attention::Backward::new(&gradient.0, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::Recurrent(layer)) => {
            Box::new(recurrent::Forward::new(layer, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::RecurrentGradient(gradient)) => {
            Box::new(recurrent::Backward::new(&gradient.0, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::ClassIndex(ClassIndex { loss, classes, ignore_index })) => {
            Box::new(class_index::ClassIndex::new(loss, *classes, *ignore_index, &step.node, &step.operands)?)
        }
        Op::Composite(Composite::MaxPoolGradient(gradient)) => {
            Box::new(pooling::Gradient::new(gradient, &step.node, &step.operands)?)
        }
        Op::Custom(call) => Box::new(custom::Custom::new(call, &step.operands)?),
        Op::Collective(collective) => {
            Box::new(collective::Collective::new(collective, &step.node, &step.operands))
        }
        _ => Box::new(indexing::Indexing::new(&step.node, &step.operands)?),
    };
    let operands = step
        .operands
        .iter()
        .map(|operand| Prepared { reach: reach(&operand.layout), size: operand.dtype.size() })
        .collect();
    let blocks = routine.in_blocks();
    let epilogue = step.epilogue.as_ref().map(|kernel| Epilogue::new(step, kernel, blocks)).transpose()?;
    let bytes = step.node.bytes();
    Ok(Arc::new(LibraryStep { routine, operands, bytes, epilogue, free: Mutex::default() }))
}

/// The positions of an operand's first and last element in memory, relative to element 0.
fn reach(layout: &Layout) -> (isize, isize) {
    if layout.is_empty() {
        return (0, -1);
    }
    layout.shape.iter().zip(&layout.strides).fold((0, 0), |(low, high), (&extent, &stride)| {
        let end = (extent as isize - 1) * stride;
        (low + end.min(0), high + end.max(0))
    })
}

/// The memory of an operand that is read.
struct Prepared {
    reach: (isize, isize),
    size: usize,
}

impl Prepared {
    /// The address of the first element. Checks that the binding holds all elements.
    fn address(&self, binding: &Binding) -> Result<*mut u8> {
        let (low, high) = (self.reach.0 * self.size as isize, (self.reach.1 + 1) * self.size as isize);
        let first = binding
            .offset
            .checked_add_signed(low)
            .ok_or_else(|| Error::internal("phynexus_cpu::library", "an operand begins before its buffer"))?;
        part(&binding.buffer, first, (high - low).max(0) as usize)?;
        part(&binding.buffer, binding.offset, 0)
    }
}

/// A compiled library step.
struct LibraryStep {
    routine: Box<dyn Routine>,
    operands: Vec<Prepared>,
    /// Bytes of the result.
    bytes: usize,
    epilogue: Option<Epilogue>,
    /// Memory for results that only the epilogue reads. Kept between runs.
    free: Mutex<Vec<AlignedMemory>>,
}

impl LibraryStep {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AlignedMemory>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executable for LibraryStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let too_few = || Error::internal("phynexus_cpu::library", "a binding is missing");
        if bindings.len() < self.operands.len() {
            return Err(too_few());
        }
        let mut memory = self.lock().pop().unwrap_or_default();
        let bound = self.epilogue.as_ref().map(|epilogue| epilogue.bind(bindings)).transpose()?;
        let own = if bound.as_ref().is_some_and(|b| b.needs_memory()) { self.bytes } else { 0 };
        let next = memory.reserve(own);
        let mut addresses: SmallVec<[*const u8; 4]> = SmallVec::new();
        for (operand, binding) in self.operands.iter().zip(bindings) {
            addresses.push(operand.address(binding)?);
        }
        match bound {
            None => {
                let binding = bindings.get(self.operands.len()).ok_or_else(too_few)?;
                let result = part(&binding.buffer, binding.offset, self.bytes)?;
                // SAFETY: addresses were checked; the scheduler gives results separate memory.
                unsafe { self.routine.run(&addresses, result)? };
            }
            // SAFETY: as above; the result has separate memory, here or in an output.
            Some(bound) => unsafe { bound.run(&*self.routine, &addresses, next)? },
        }
        self.lock().push(memory);
        Ok(())
    }
}

/// The error for operands that do not match the operation. The graph's checks should have caught them.
fn misfit(operation: &str, operands: &[Operand]) -> Error {
    let shapes: Vec<String> =
        operands.iter().map(|o| format!("{} {:?}", o.dtype, o.layout.shape.as_slice())).collect();
    Error::internal("phynexus_cpu::library", format!("{operation} of {}", shapes.join(", ")))
}

#[cfg(test)]
mod against_body;
#[cfg(test)]
mod tests;
