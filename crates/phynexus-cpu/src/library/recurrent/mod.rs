//! Recurrent layers over whole sequences and their gradients, in `f32`.
//!
//! Each thread processes its own rows of the batch from the first step to the last, without waiting for other threads:
//! products with weights that are packed once, then the gates' functions while the sums are in cache. The scheduler
//! computes the gradients of the weights as one product over all steps.

mod backward;
mod cell_gradient;
mod forward;
mod gates;
#[cfg(test)]
mod tests;

use std::ops::Range;

use phynexus::{
    DType, Result,
    kernel::step,
    op::{
        composite::{Cell, Recurrent},
        ir::IrNode,
    },
};

pub(super) use backward::Backward;
pub(super) use forward::Forward;

use super::misfit;
use crate::{gemm::part, pool};

/// The extents of a layer.
#[derive(Clone, Copy)]
struct Extents {
    steps: usize,
    batch: usize,
    /// Features of the input; 0 if it is not used.
    width: usize,
    units: usize,
}

impl Extents {
    /// Elements of a state, and of a sequence of states.
    fn state(&self) -> usize {
        self.batch * self.units
    }
    fn sequence(&self) -> usize {
        self.steps * self.state()
    }

    /// The step at a place in the processing order, and the step before it.
    fn at(&self, recurrence: &Recurrent, place: usize) -> (usize, Option<usize>) {
        let step = |place: usize| if recurrence.reverse { self.steps - 1 - place } else { place };
        (step(place), place.checked_sub(1).map(step))
    }

    /// Calls `body` for parts of the rows of the batch, on several threads if that pays off. Results do not depend on
    /// the division.
    fn by_rows(&self, gates: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        /// Rows per part, so that the sums stay in cache while the gates read them.
        const ROWS: usize = 28;
        /// Multiplications that justify a second thread.
        const WORK: usize = 1 << 18;
        let work = self.sequence().saturating_mul(gates * (self.units + self.width));
        let threads = if work < WORK { 1 } else { pool::threads() };
        let parts = self.batch.div_ceil(ROWS).max(threads).min(self.batch);
        pool::parallel_for(parts, &|task| body(part(self.batch, parts, task)));
    }
}

/// Checks a step's operands, which must be `f32` of these shapes, and the size of its result.
fn check(
    name: &str,
    node: &IrNode,
    operands: &[step::Operand],
    shapes: &[&[usize]],
    size: usize,
) -> Result<()> {
    let fits = operands.len() == shapes.len()
        && operands
            .iter()
            .zip(shapes)
            .all(|(o, shape)| o.dtype == DType::F32 && o.layout.shape.as_slice() == *shape)
        && node.dtype == DType::F32
        && node.shape.as_slice() == [size];
    if fits { Ok(()) } else { Err(misfit(name, operands)) }
}

/// Columns of a saved step: its gates, for cells that save them.
fn saved_gates(cell: Cell) -> usize {
    match cell {
        Cell::Lstm | Cell::Gru => 4,
        Cell::Tanh | Cell::Relu => 0,
    }
}
