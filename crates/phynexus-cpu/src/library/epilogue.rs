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
    shape::contiguous_strides,
};
use smallvec::SmallVec;

use super::{Routine, part};
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
}

enum Kernel {
    /// For a routine that reports its blocks.
    Blocks(BlockKernel),
    /// For a routine that does not: a second pass over the result.
    Whole(FusedKernel),
}

impl Epilogue {
    /// The epilogue of a step. `row_axes` is the number of row axes of the routine's blocks, if it has blocks.
    pub(super) fn new(step: &Library, kernel: &Fusion, row_axes: Option<usize>) -> Result<Epilogue> {
        let written = kernel.parameters.iter().map(|p| p.written).collect();
        let shape = &step.node.shape;
        let own = view::flat(&Ranges::of(shape).coordinates(), &contiguous_strides(shape), 0);
        let place = place(kernel, step.node.dtype.size(), &own);
        let kernel = match row_axes {
            Some(axes) => Kernel::Blocks(BlockKernel::new(kernel, axes)?),
            None => Kernel::Whole(FusedKernel::new(kernel)?),
        };
        Ok(Epilogue { kernel, first: step.operands.len(), written, result: step.node.bytes(), place })
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
    /// The destination of the routine's result, if it does not need separate memory.
    pub(super) fn result(&self) -> Option<*mut u8> {
        self.place.map(|place| self.parameters[place])
    }

    /// Runs the routine and the epilogue. `memory` must have room for the result if the result has no other
    /// destination.
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
        let result = self.result().unwrap_or(memory);
        if let Some(first) = self.parameters.first_mut() {
            *first = result;
        }
        // SAFETY: guaranteed by the caller. An element of the result is read at its own index, after it is final; if it
        // is placed in an output, that is also the index of the store.
        unsafe {
            match (&self.epilogue.kernel, routine.in_blocks()) {
                (Kernel::Blocks(kernel), Some(blocks)) => {
                    let parameters = Parameters(&self.parameters);
                    blocks.run(operands, result, &|rows, columns| {
                        kernel.run(parameters.get(), rows, columns);
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
    let at_own = kernel.instructions.iter().all(|i| match &i.operation {
        FusedOp::Load { parameter: 0, index, mask, .. } => index == own && mask.is_none(),
        _ => true,
    });
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

#[cfg(test)]
mod tests;
