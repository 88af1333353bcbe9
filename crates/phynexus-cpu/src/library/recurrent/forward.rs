//! The layer.

use std::ops::Range;

use phynexus::{
    DType, Result,
    kernel::step,
    op::{
        composite::{Cell, Recurrent},
        ir::IrNode,
    },
};

use super::{
    Extents, check,
    gates::{self, Step},
    saved_gates,
};
use crate::{
    gemm::{
        Operand,
        blocked::Shared,
        panels::{Left, Right, multiply},
        scratch::Scratch,
    },
    library::{Routine, misfit},
    pool,
};

/// Minimum number of rows of a product with the input's weights, if there are as many: with fewer rows, it would be
/// limited by loading the weights.
const TALL: usize = 28;

/// A recurrent layer of fixed shapes.
pub(in super::super) struct Forward {
    recurrence: Recurrent,
    extents: Extents,
    /// Input strides in elements: between steps, sequences and features.
    strides: [isize; 3],
    /// Used as biases if there are none.
    zeros: Vec<f32>,
    step: unsafe fn(&Step),
}

/// The places of the parts of the packed result; parts that it lacks are in scratch memory.
struct Parts {
    states: Shared<f32>,
    /// The cell state: at the end, and after every step if saved.
    last_cell: Shared<f32>,
    cells: Option<Shared<f32>>,
    gates: Shared<f32>,
    /// Columns of a step's gates.
    columns: usize,
}

impl Forward {
    pub(in super::super) fn new(
        recurrence: &Recurrent,
        node: &IrNode,
        operands: &[step::Operand],
    ) -> Result<Forward> {
        let cell = recurrence.cell;
        let name = cell.name();
        let [x, h0, ..] = operands else { return Err(misfit(name, operands)) };
        let (&[steps, batch, width], &[_, units]) = (x.layout.shape.as_slice(), h0.layout.shape.as_slice())
        else {
            return Err(misfit(name, operands));
        };
        let extents = Extents { steps, batch, width, units };
        let rows = cell.gates() * units;
        let (state, sequence) = ([batch, units], [steps, batch, width]);
        let (input_weights, hidden_weights, bias) = ([rows, width], [rows, units], [rows]);
        let mut shapes: Vec<&[usize]> = vec![&sequence, &state];
        if cell.has_cell_state() {
            shapes.push(&state);
        }
        shapes.extend([&input_weights[..], &hidden_weights]);
        if recurrence.bias {
            shapes.extend([&bias[..], &bias]);
        }
        let cells = usize::from(cell.has_cell_state());
        let saved = if recurrence.save { saved_gates(cell) + cells } else { 0 };
        let size = extents.sequence() * (1 + saved) + cells * extents.state();
        check(name, node, operands, &shapes, size)?;
        let &[step, sequence, feature] = x.layout.strides.as_slice() else {
            return Err(misfit(name, operands));
        };
        let strides = [step, sequence, feature];
        let zeros = if recurrence.bias { Vec::new() } else { vec![0.0; rows] };
        Ok(Forward { recurrence: *recurrence, extents, strides, zeros, step: gates::step(cell) })
    }

    /// Computes the input's share of the sums, for some rows at the steps of some places, into the gates.
    ///
    /// # Safety
    /// The input must match its strides, and the gates must exist.
    unsafe fn input_share(
        &self,
        x: *const f32,
        weights: Right,
        rows: Range<usize>,
        places: Range<usize>,
        parts: &Parts,
    ) {
        let Extents { batch, .. } = self.extents;
        let [of_step, of_row, of_feature] = self.strides;
        let (first, last) = (
            self.extents.at(&self.recurrence, places.start).0,
            self.extents.at(&self.recurrence, places.end - 1).0,
        );
        let steps = first.min(last)..first.max(last) + 1;
        let share = |step: usize, row: usize, count: usize, stride: isize, apart: usize| {
            let at = step as isize * of_step + row as isize * of_row;
            let left = Left { data: x.wrapping_offset(at), row: stride, step: of_feature };
            let gates = parts.gates.get().wrapping_add((step * batch + row) * parts.columns);
            // SAFETY: guaranteed by the caller.
            unsafe { multiply(count, left, weights, gates, apart * parts.columns, false) };
        };
        // Tall products read the weights less often.
        if rows.len() >= steps.len() {
            steps.for_each(|step| share(step, rows.start, rows.len(), of_row, 1));
        } else {
            let count = steps.len();
            rows.for_each(|row| share(steps.start, row, count, of_step, batch));
        }
    }

    /// Packs the weights of the hidden state. Returns each with the column of the gates that receives its product, and
    /// whether the product is added to the input's share.
    ///
    /// # Safety
    /// The weights must exist; the memory must have room and outlive the result.
    unsafe fn weights(&self, weights: *const u8, memory: *mut f32) -> Vec<(Right, usize, bool)> {
        let (cell, units) = (self.recurrence.cell, self.extents.units);
        let transposed = |first: usize| Operand {
            data: weights.wrapping_add(first * units * size_of::<f32>()),
            dtype: DType::F32,
            row_stride: 1,
            column_stride: units as isize,
        };
        // The GRU's reset gate scales the hidden state's share of the new state, so that share is kept separate.
        let together = if cell == Cell::Gru { 2 } else { cell.gates() } * units;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut parts = vec![(Right::pack(&transposed(0), units, together, memory), 0, true)];
            if cell == Cell::Gru {
                let rest = memory.add(Right::packed_length(units, together));
                parts.push((Right::pack(&transposed(together), units, units, rest), 3 * units, false));
            }
            parts
        }
    }
}

impl Routine for Forward {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let Recurrent { cell, bias, save, .. } = self.recurrence;
        let Extents { steps, batch, width, units } = self.extents;
        let rows = cell.gates() * units;
        let too_few = || misfit(cell.name(), &[]);
        let mut operands = operands.iter().copied();
        let mut next = || operands.next().ok_or_else(too_few);
        let (x, h0) = (next()?, next()?);
        let c0 = if cell.has_cell_state() { next()?.cast() } else { std::ptr::null::<f32>() };
        let (input_weights, hidden_weights) = (next()?, next()?);
        let (input_bias, hidden_bias) = match bias {
            true => (next()?.cast::<f32>(), next()?.cast::<f32>()),
            false => (self.zeros.as_ptr(), self.zeros.as_ptr()),
        };

        let (sequence, state) = (self.extents.sequence(), self.extents.state());
        let states = result.cast::<f32>();
        let last_cell = states.wrapping_add(sequence);
        let after = if cell.has_cell_state() { last_cell.wrapping_add(state) } else { last_cell };
        let saved = saved_gates(cell);
        let own = (!save && saved > 0).then(|| Scratch::new::<f32>(saved * sequence));
        let gates = match (&own, saved) {
            (_, 0) => states,
            (Some(own), _) => own.start(),
            (None, _) => after,
        };
        let cells = (save && cell.has_cell_state()).then(|| Shared(after.wrapping_add(saved * sequence)));
        let columns = saved.max(1) * units;
        let parts = Parts {
            states: Shared(states),
            last_cell: Shared(last_cell),
            cells,
            gates: Shared(gates),
            columns,
        };

        let length = Right::packed_length(width, rows);
        let memory = Scratch::new::<f32>(
            length + Right::packed_length(units, rows) + Right::packed_length(units, units),
        );
        let transposed =
            Operand { data: input_weights, dtype: DType::F32, row_stride: 1, column_stride: width as isize };
        // SAFETY: the weights are contiguous and have the checked shapes; the memory has room.
        let (input_weights, weights) = unsafe {
            let input_weights = Right::pack(&transposed, width, rows, memory.start());
            (input_weights, self.weights(hidden_weights, memory.start::<f32>().add(length)))
        };

        let x = Shared(x.cast_mut().cast::<f32>());
        let (h0, c0) = (Shared(h0.cast_mut().cast::<f32>()), Shared(c0.cast_mut()));
        let biases = (Shared(input_bias.cast_mut()), Shared(hidden_bias.cast_mut()));
        self.extents.by_rows(cell.gates(), &|range| {
            let first = range.start * units;
            let together = TALL.div_ceil(range.len());
            for place in 0..steps {
                pool::check();
                if place % together == 0 {
                    let places = place..steps.min(place + together);
                    // SAFETY: these rows of the batch belong to this task; the input and the gates have the checked
                    // shapes.
                    unsafe { self.input_share(x.get(), input_weights, range.clone(), places, &parts) };
                }
                let (step, before) = self.extents.at(&self.recurrence, place);
                let at = |step: usize| step * state + first;
                let of = |start: &Shared<f32>, at: usize| start.get().wrapping_add(at);
                let h_before = match before {
                    Some(before) => of(&parts.states, at(before)),
                    None => of(&h0, first),
                };
                let c_before = match (before, &parts.cells) {
                    (None, _) => of(&c0, first),
                    (Some(before), Some(cells)) => of(cells, at(before)),
                    (Some(_), None) => of(&parts.last_cell, first),
                };
                let c = match &parts.cells {
                    Some(cells) => of(cells, at(step)),
                    None => of(&parts.last_cell, first),
                };
                let gates = of(&parts.gates, (step * batch + range.start) * parts.columns);
                // SAFETY: these rows of the batch belong to this task; operands and result have the checked shapes.
                unsafe {
                    let left = Left { data: h_before, row: units as isize, step: 1 };
                    for &(right, column, accumulate) in &weights {
                        multiply(range.len(), left, right, gates.add(column), parts.columns, accumulate);
                    }
                    (self.step)(&Step {
                        rows: range.len(),
                        units,
                        gates,
                        input_bias: biases.0.get(),
                        hidden_bias: biases.1.get(),
                        h_before,
                        c_before,
                        h: of(&parts.states, at(step)),
                        c,
                    });
                    if let (true, Some(_)) = (place + 1 == steps, &parts.cells) {
                        c.copy_to_nonoverlapping(of(&parts.last_cell, first), range.len() * units);
                    }
                }
            }
        });
        Ok(())
    }
}
