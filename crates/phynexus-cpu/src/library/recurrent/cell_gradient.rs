//! The elementwise part of a time step's gradient between the matrix products, for some rows (sequences) of the batch
//! at a time.

use phynexus::op::composite::Cell;

use super::gates::gate;
use crate::vector::{Arithmetic, BLOCK, InstructionSet, compiled, lanes, load, single, store};

/// The rows of one step. Every matrix is row-major.
pub(super) struct CellGradient {
    pub(super) rows: usize,
    /// Units: columns of the states, and of each gate.
    pub(super) units: usize,
    /// LSTM and GRU: the saved gates, four blocks of columns.
    pub(super) gates: *const f32,
    /// The state before the step, and the state after it.
    pub(super) h_before: *const f32,
    pub(super) c_before: *const f32,
    pub(super) h: *const f32,
    pub(super) c: *const f32,
    /// The gradient of `h` from the layer's output.
    pub(super) of_state: *const f32,
    /// The gradients of `h` and `c` from the next step. `of_c` becomes the gradient of `c_before`; `of_h` (GRU only)
    /// becomes the part of the gradient of `h_before` that does not flow through the weights.
    pub(super) of_h: *mut f32,
    pub(super) of_c: *mut f32,
    /// The gradient of the sums; for the GRU: of the input's share and of the hidden state's share.
    pub(super) of_input: *mut f32,
    pub(super) of_hidden: *mut f32,
}

/// The best gradient function of a cell.
pub(super) fn best(cell: Cell) -> unsafe fn(&CellGradient) {
    let set = InstructionSet::best();
    match cell {
        Cell::Lstm => lstm(set),
        Cell::Gru => gru(set),
        Cell::Tanh => tanh(set),
        Cell::Relu => relu(set),
    }
}

compiled!(lstm = lstm_rows(&CellGradient));
compiled!(gru = gru_rows(&CellGradient));
compiled!(tanh = tanh_rows(&CellGradient));
compiled!(relu = relu_rows(&CellGradient));

/// # Safety
/// The matrices must exist, and no written matrix may overlap another.
#[inline(always)]
unsafe fn lstm_rows<A: Arithmetic>(s: &CellGradient) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            let (state, at) = (row * s.units + unit, row * 4 * s.units + unit);
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let (gates, units) = (s.gates.add(at), s.units);
                let out = s.of_input.add(at);
                let (input, forget, new, output) = (
                    gate(gates, units, 0, n),
                    gate(gates, units, 1, n),
                    gate(gates, units, 2, n),
                    gate(gates, units, 3, n),
                );
                let (above, after) = (load(s.of_state.add(state), n, 0.0), load(s.of_h.add(state), n, 0.0));
                let (c, before) = (load(s.c.add(state), n, 0.0), load(s.c_before.add(state), n, 0.0));
                let of_c = load(s.of_c.add(state), n, 0.0);
                let total = lanes(|i| above[i] + after[i]);
                let t = lanes(|i| single::tanh::<A>(c[i]));
                let of_c = lanes(|i| of_c[i] + total[i] * output[i] * (1.0 - t[i] * t[i]));
                store(out, n, &lanes(|i| of_c[i] * new[i] * (input[i] * (1.0 - input[i]))));
                store(out.add(units), n, &lanes(|i| of_c[i] * before[i] * (forget[i] * (1.0 - forget[i]))));
                store(out.add(2 * units), n, &lanes(|i| of_c[i] * input[i] * (1.0 - new[i] * new[i])));
                store(out.add(3 * units), n, &lanes(|i| total[i] * t[i] * (output[i] * (1.0 - output[i]))));
                store(s.of_c.add(state), n, &lanes(|i| of_c[i] * forget[i]));
            }
        }
    }
}

/// # Safety
/// Same as [`lstm_rows`].
#[inline(always)]
unsafe fn gru_rows<A: Arithmetic>(s: &CellGradient) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            let (state, at) = (row * s.units + unit, row * 4 * s.units + unit);
            let sums = row * 3 * s.units + unit;
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let (gates, units) = (s.gates.add(at), s.units);
                let (reset, update, new, candidate) = (
                    gate(gates, units, 0, n),
                    gate(gates, units, 1, n),
                    gate(gates, units, 2, n),
                    gate(gates, units, 3, n),
                );
                let (above, after) = (load(s.of_state.add(state), n, 0.0), load(s.of_h.add(state), n, 0.0));
                let before = load(s.h_before.add(state), n, 0.0);
                let total = lanes(|i| above[i] + after[i]);
                let of_new = lanes(|i| total[i] * (1.0 - update[i]) * (1.0 - new[i] * new[i]));
                let of_update = lanes(|i| total[i] * (before[i] - new[i]) * (update[i] * (1.0 - update[i])));
                let of_reset = lanes(|i| of_new[i] * candidate[i] * (reset[i] * (1.0 - reset[i])));
                let of_candidate = lanes(|i| of_new[i] * reset[i]);
                let (of_input, of_hidden) = (s.of_input.add(sums), s.of_hidden.add(sums));
                store(of_input, n, &of_reset);
                store(of_input.add(units), n, &of_update);
                store(of_input.add(2 * units), n, &of_new);
                store(of_hidden, n, &of_reset);
                store(of_hidden.add(units), n, &of_update);
                store(of_hidden.add(2 * units), n, &of_candidate);
                store(s.of_h.add(state), n, &lanes(|i| total[i] * update[i]));
            }
        }
    }
}

/// # Safety
/// Same as [`lstm_rows`].
#[inline(always)]
unsafe fn plain_rows(s: &CellGradient, f: impl Fn(f32, f32) -> f32) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            let at = row * s.units + unit;
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let (above, after) = (load(s.of_state.add(at), n, 0.0), load(s.of_h.add(at), n, 0.0));
                let h = load(s.h.add(at), n, 0.0);
                store(s.of_input.add(at), n, &lanes(|i| f(h[i], above[i] + after[i])));
            }
        }
    }
}

/// # Safety
/// Same as [`lstm_rows`].
#[inline(always)]
unsafe fn tanh_rows<A: Arithmetic>(s: &CellGradient) {
    // SAFETY: guaranteed by the caller.
    unsafe { plain_rows(s, |h, total| total * (1.0 - h * h)) }
}

/// # Safety
/// Same as [`lstm_rows`].
#[inline(always)]
unsafe fn relu_rows<A: Arithmetic>(s: &CellGradient) {
    // SAFETY: guaranteed by the caller.
    unsafe { plain_rows(s, |h, total| if h == 0.0 { 0.0 } else { total }) }
}
