//! Epilogues: elementwise work on each block of a routine's result as soon as the routine has finished it.

use phynexus::{
    Error, Result,
    device::Binding,
    kernel::step::Library,
    kernel::{
        Index, Ranges,
        fused::{FusedOp, Fusion, Store},
        view,
    },
    shape::{Dims, contiguous_strides},
};
use smallvec::SmallVec;

use super::{InBlocks, Routine, part};
use crate::fused::{BlockKernel, FusedKernel};

/// An epilogue prepared to run.
pub(super) struct Epilogue {
    kernel: Kernel,
    /// The index of parameter 1 among the step's bindings; parameter 0 is the routine's result.
    first: usize,
    /// Which parameters are stored.
    written: SmallVec<[bool; 8]>,
    /// Bytes of the routine's result.
    result: usize,
    /// A parameter that is stored where parameter 0 is read: its memory can hold the routine's result until then.
    place: Option<usize>,
    /// Whether the routine need not store its result.
    passes: bool,
}

enum Kernel {
    /// For a routine that reports its blocks.
    Blocks(BlockKernel),
    /// For a routine that does not: a second pass over the result.
    Whole(FusedKernel),
}

impl Epilogue {
    /// The epilogue of a step, for a routine with these blocks, if it has blocks.
    pub(super) fn new(step: &Library, kernel: &Fusion, blocks: Option<&dyn InBlocks>) -> Result<Epilogue> {
        let written = kernel.parameters.iter().map(|p| p.written).collect();
        let shape = &step.node.shape;
        let own = view::flat(&Ranges::of(shape).coordinates(), &contiguous_strides(shape), 0);
        let place = place(kernel, step.node.dtype.size(), &own);
        // A result with a place in an output is stored there.
        let pitch = blocks.and_then(InBlocks::pitch).filter(|_| place.is_none() && reads_own(kernel, &own));
        let (kernel, passes) = match (blocks, pitch) {
            (Some(blocks), None) => (Kernel::Blocks(BlockKernel::new(kernel, blocks.row_axes())?), false),
            (Some(blocks), Some(pitch)) => {
                let kernel = with_pitch(kernel, shape, blocks.row_axes(), pitch);
                (Kernel::Blocks(BlockKernel::new(&kernel, blocks.row_axes())?), true)
            }
            (None, _) => (Kernel::Whole(FusedKernel::new(kernel)?), false),
        };
        Ok(Epilogue { kernel, first: step.operands.len(), written, result: step.node.bytes(), place, passes })
    }

    /// Resolves the addresses of a run's parameters.
    pub(super) fn bind(&self, bindings: &[Binding]) -> Result<Bound<'_>> {
        let missing = || Error::internal("phynexus_cpu::library", "a binding is missing");
        let mut parameters: SmallVec<[*mut u8; 8]> = SmallVec::new();
        parameters.push(std::ptr::null_mut());
        for at in 1..self.written.len() {
            let binding = bindings.get(self.first + at - 1).ok_or_else(missing)?;
            if self.place == Some(at) {
                part(&binding.buffer, binding.offset, self.result)?;
            }
            parameters.push(match &self.kernel {
                Kernel::Blocks(kernel) => kernel.address(at, binding)?,
                Kernel::Whole(kernel) => kernel.address(at, binding)?,
            });
        }
        // An output that is stored in place over data still to be read has no room for the result.
        let is_free = |place: &usize| {
            let mut reads = (1..parameters.len()).filter(|&at| !self.written[at]);
            reads.all(|at| parameters[at] != parameters[*place])
        };
        let place = self.place.filter(is_free);
        if let Some(place) = place {
            parameters[0] = parameters[place];
        }
        Ok(Bound { epilogue: self, parameters, place })
    }
}

/// An epilogue with its parameters.
pub(super) struct Bound<'a> {
    epilogue: &'a Epilogue,
    parameters: SmallVec<[*mut u8; 8]>,
    place: Option<usize>,
}

/// The first element of each parameter, for all threads.
#[derive(Clone, Copy)]
struct Parameters<'a>(&'a [*mut u8]);

// SAFETY: threads store only to elements of their own blocks, and load what no other thread stores.
unsafe impl Sync for Parameters<'_> {}

impl<'a> Parameters<'a> {
    fn get(self) -> &'a [*mut u8] {
        self.0
    }
}

impl Bound<'_> {
    /// Whether the routine's result needs separate memory.
    pub(super) fn needs_memory(&self) -> bool {
        !self.epilogue.passes && self.place.is_none()
    }

    /// Runs the routine and the epilogue. `memory` must have room for the result if it needs memory.
    ///
    /// # Safety
    /// Same as [`Routine::run`] for the operands. The parameters must be valid for the kernel's indices. Outputs may
    /// only overlap read parameters all of whose loads are at the index of the store.
    pub(super) unsafe fn run(
        mut self,
        routine: &dyn Routine,
        operands: &[*const u8],
        memory: *mut u8,
    ) -> Result<()> {
        let result = match self.place {
            _ if self.epilogue.passes => std::ptr::null_mut(),
            Some(place) => self.parameters[place],
            None => memory,
        };
        if let Some(first) = self.parameters.first_mut() {
            *first = result;
        }
        // SAFETY: guaranteed by the caller. An element of the result is read at its own index, after it is final; if it
        // is placed in an output, that is also the index of the store.
        unsafe {
            match (&self.epilogue.kernel, routine.in_blocks()) {
                (Kernel::Blocks(kernel), Some(blocks)) => {
                    let parameters = Parameters(&self.parameters);
                    blocks.run(operands, result, &|rows, columns, origin| {
                        let mut parameters: SmallVec<[*mut u8; 8]> = SmallVec::from_slice(parameters.get());
                        if let Some(first) = parameters.first_mut() {
                            *first = origin;
                        }
                        kernel.run(&parameters, rows, columns);
                    })
                }
                (Kernel::Whole(kernel), _) => {
                    routine.run(operands, result)?;
                    kernel.run(&self.parameters)
                }
                (Kernel::Blocks(_), None) => {
                    Err(Error::internal("phynexus_cpu::library", "a routine no longer has blocks"))
                }
            }
        }
    }
}

/// A stored parameter whose memory can hold the routine's result, of elements of `size` bytes at index `own`. Prefers
/// one that stores nothing but the result.
fn place(kernel: &Fusion, size: usize, own: &Index) -> Option<usize> {
    let at_own = reads_own(kernel, own);
    let fits = |store: &&Store| {
        let parameter = kernel.parameters.get(usize::from(store.parameter));
        let once = kernel.stores.iter().filter(|s| s.parameter == store.parameter).count() == 1;
        at_own && once && store.index == *own && parameter.is_some_and(|p| p.dtype.size() == size)
    };
    let is_result = |store: &&Store| {
        let value = kernel.instructions.get(store.value as usize);
        value.is_some_and(|i| matches!(i.operation, FusedOp::Load { parameter: 0, .. }))
    };
    let fitting = || kernel.stores.iter().filter(fits);
    let found = fitting().find(is_result).or_else(|| fitting().next())?;
    Some(usize::from(found.parameter))
}

/// Whether the routine's result is only read at index `own`.
fn reads_own(kernel: &Fusion, own: &Index) -> bool {
    kernel.instructions.iter().all(|i| match &i.operation {
        FusedOp::Load { parameter: 0, index, mask, .. } => index == own && mask.is_none(),
        _ => true,
    })
}

/// The kernel for a result that is read at its own index, with rows `pitch` elements apart.
fn with_pitch(kernel: &Fusion, shape: &Dims, row_axes: usize, pitch: usize) -> Fusion {
    let (rows, columns) = shape.split_at(row_axes);
    let of_rows = contiguous_strides(rows).into_iter().map(|stride| stride * pitch as isize);
    let strides: Vec<isize> = of_rows.chain(contiguous_strides(columns)).collect();
    let own = view::flat(&Ranges::of(shape).coordinates(), &strides, 0);
    let mut kernel = kernel.clone();
    for instruction in &mut kernel.instructions {
        if let FusedOp::Load { parameter: 0, index, .. } = &mut instruction.operation {
            *index = own.clone();
        }
    }
    kernel
}

#[cfg(test)]
mod tests;
