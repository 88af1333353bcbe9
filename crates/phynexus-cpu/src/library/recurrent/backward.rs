//! The layer's gradient, backward through the steps.

use phynexus::{
    DType, Result,
    kernel::step,
    op::{
        composite::{Cell, Recurrent},
        ir::IrNode,
    },
};

use super::{
    Extents,
    cell_gradient::{self, CellGradient},
    check, saved_gates,
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

/// The gradient of a recurrent layer of fixed shapes.
pub(in super::super) struct Backward {
    recurrence: Recurrent,
    extents: Extents,
    cell_gradient: unsafe fn(&CellGradient),
}

impl Backward {
    pub(in super::super) fn new(
        recurrence: &Recurrent,
        node: &IrNode,
        operands: &[step::Operand],
    ) -> Result<Backward> {
        let cell = recurrence.cell;
        let name = cell.name();
        let cells = usize::from(cell.has_cell_state());
        let Some(states) = operands.get(2 + cells) else { return Err(misfit(name, operands)) };
        let &[steps, batch, units] = states.layout.shape.as_slice() else {
            return Err(misfit(name, operands));
        };
        let extents = Extents { steps, batch, width: 0, units };
        let (weights, state) = ([cell.gates() * units, units], [batch, units]);
        let (sequence, gates) = ([steps, batch, units], [steps, batch, saved_gates(cell) * units]);
        let mut shapes: Vec<&[usize]> = vec![&weights, &state];
        shapes.extend((0..cells).map(|_| &state[..]));
        shapes.push(&sequence);
        if saved_gates(cell) > 0 {
            shapes.push(&gates);
        }
        shapes.extend((0..cells).map(|_| &sequence[..]));
        shapes.push(&sequence);
        shapes.extend((0..cells).map(|_| &state[..]));
        let sums = if cell == Cell::Gru { 2 * cell.gates() } else { cell.gates() };
        let size = extents.sequence() * sums + (1 + cells) * extents.state();
        check(name, node, operands, &shapes, size)?;
        Ok(Backward { recurrence: *recurrence, extents, cell_gradient: cell_gradient::best(cell) })
    }
}

impl Routine for Backward {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let cell = self.recurrence.cell;
        let Extents { steps, batch, units, .. } = self.extents;
        let (sequence, state) = (self.extents.sequence(), self.extents.state());
        let rows = cell.gates() * units;
        let mut operands = operands.iter().map(|operand| Shared(operand.cast_mut().cast::<f32>()));
        let mut next = |there: bool| match there {
            true => operands.next().ok_or_else(|| misfit(cell.name(), &[])),
            false => Ok(Shared(std::ptr::null_mut())),
        };
        let has_cell = cell.has_cell_state();
        let (weights, h0, c0) = (next(true)?, next(true)?, next(has_cell)?);
        let (states, gates, cells) = (next(true)?, next(saved_gates(cell) > 0)?, next(has_cell)?);
        let (of_states, of_last_cell) = (next(true)?, next(has_cell)?);

        let of_input = result.cast::<f32>();
        let of_hidden = match cell {
            Cell::Gru => of_input.wrapping_add(cell.gates() * sequence),
            _ => of_input,
        };
        let of_h = of_hidden.wrapping_add(cell.gates() * sequence);
        let of_c = Shared(of_h.wrapping_add(state));
        let (of_input, of_hidden, of_h) = (Shared(of_input), Shared(of_hidden), Shared(of_h));

        let memory = Scratch::new::<f32>(Right::packed_length(rows, units));
        let matrix = Operand {
            data: weights.get().cast(),
            dtype: DType::F32,
            row_stride: units as isize,
            column_stride: 1,
        };
        // SAFETY: the weights are contiguous and have the checked shape; the memory has room.
        let weights = unsafe { Right::pack(&matrix, rows, units, memory.start()) };

        self.extents.by_rows(cell.gates(), &|range| {
            let first = range.start * units;
            let of = |start: &Shared<f32>, at: usize| start.get().wrapping_add(at);
            let (of_h, of_c) = (of(&of_h, first), of(&of_c, first));
            // SAFETY: these rows of the batch belong to this task; operands and result have the checked shapes.
            unsafe {
                std::slice::from_raw_parts_mut(of_h, range.len() * units).fill(0.0);
                if has_cell {
                    of(&of_last_cell, first).copy_to_nonoverlapping(of_c, range.len() * units);
                }
            }
            for place in (0..steps).rev() {
                pool::check();
                let (step, before) = self.extents.at(&self.recurrence, place);
                let at = |step: usize| step * state + first;
                let earlier = |sequence: &Shared<f32>, initial: &Shared<f32>| match before {
                    Some(before) => of(sequence, at(before)),
                    None => of(initial, first),
                };
                let sums = (step * batch + range.start) * rows;
                // SAFETY: as above.
                unsafe {
                    (self.cell_gradient)(&CellGradient {
                        rows: range.len(),
                        units,
                        gates: of(&gates, saved_gates(cell) * at(step)),
                        h_before: earlier(&states, &h0),
                        c_before: earlier(&cells, &c0),
                        h: of(&states, at(step)),
                        c: of(&cells, at(step)),
                        of_state: of(&of_states, at(step)),
                        of_h,
                        of_c,
                        of_input: of(&of_input, sums),
                        of_hidden: of(&of_hidden, sums),
                    });
                    let left = Left { data: of(&of_hidden, sums), row: rows as isize, step: 1 };
                    multiply(range.len(), left, weights, of_h, units, cell == Cell::Gru);
                }
            }
        });
        Ok(())
    }
}
