//! The elementwise part of a time step between the matrix products, for some rows (sequences) of the batch at a time.

use phynexus::op::composite::Cell;

use crate::vector::{Arithmetic, BLOCK, InstructionSet, compiled, lanes, load, single, store};

/// The rows of one step. Every matrix is row-major.
pub(super) struct Step {
    pub(super) rows: usize,
    /// Units: columns of the states, and of each gate.
    pub(super) units: usize,
    /// LSTM and GRU: four blocks of columns, see [`phynexus::op::composite::Recurrent`]. Before the step: the sums
    /// (the GRU's third block has the input's share, its fourth the hidden state's). After the step: the gate values.
    pub(super) gates: *mut f32,
    /// By gate and unit.
    pub(super) input_bias: *const f32,
    pub(super) hidden_bias: *const f32,
    /// The state before the step.
    pub(super) h_before: *const f32,
    pub(super) c_before: *const f32,
    /// The state after the step. For plain cells, it initially holds the sums. `c` may be `c_before`.
    pub(super) h: *mut f32,
    pub(super) c: *mut f32,
}

/// The best step function of a cell.
pub(super) fn step(cell: Cell) -> unsafe fn(&Step) {
    let set = InstructionSet::best();
    match cell {
        Cell::Lstm => lstm(set),
        Cell::Gru => gru(set),
        Cell::Tanh => tanh(set),
        Cell::Relu => relu(set),
    }
}

compiled!(lstm = lstm_rows(&Step));
compiled!(gru = gru_rows(&Step));
compiled!(tanh = tanh_rows(&Step));
compiled!(relu = relu_rows(&Step));

/// Reads a block of a gate's sums or biases, which are in blocks of `units` columns.
///
/// # Safety
/// `from` must have the block.
#[inline(always)]
pub(super) unsafe fn gate(from: *const f32, units: usize, index: usize, n: usize) -> [f32; BLOCK] {
    // SAFETY: guaranteed by the caller.
    unsafe { load(from.add(index * units), n, 0.0) }
}

/// # Safety
/// Same as [`gate`].
#[inline(always)]
unsafe fn sum(s: &Step, at: usize, unit: usize, index: usize, n: usize) -> [f32; BLOCK] {
    // SAFETY: guaranteed by the caller.
    let (x, a, b) = unsafe {
        (
            gate(s.gates.add(at), s.units, index, n),
            gate(s.input_bias.add(unit), s.units, index, n),
            gate(s.hidden_bias.add(unit), s.units, index, n),
        )
    };
    lanes(|i| x[i] + (a[i] + b[i]))
}

/// # Safety
/// Same as [`gate`].
#[inline(always)]
unsafe fn opened<A: Arithmetic>(s: &Step, at: usize, unit: usize, index: usize, n: usize) -> [f32; BLOCK] {
    // SAFETY: guaranteed by the caller.
    let x = unsafe { sum(s, at, unit, index, n) };
    lanes(|i| 1.0 / (1.0 + single::exp::<A>(-x[i])))
}

/// # Safety
/// The matrices must exist; only `c` may equal `c_before`.
#[inline(always)]
unsafe fn lstm_rows<A: Arithmetic>(s: &Step) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            let (state, at) = (row * s.units + unit, row * 4 * s.units + unit);
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let before = load(s.c_before.add(state), n, 0.0);
                let input = opened::<A>(s, at, unit, 0, n);
                let forget = opened::<A>(s, at, unit, 1, n);
                let x = sum(s, at, unit, 2, n);
                let new = lanes(|i| single::tanh::<A>(x[i]));
                let output = opened::<A>(s, at, unit, 3, n);
                store(s.gates.add(at), n, &input);
                store(s.gates.add(at + s.units), n, &forget);
                store(s.gates.add(at + 2 * s.units), n, &new);
                store(s.gates.add(at + 3 * s.units), n, &output);
                let c = lanes(|i| forget[i] * before[i] + input[i] * new[i]);
                store(s.c.add(state), n, &c);
                store(s.h.add(state), n, &lanes(|i| output[i] * single::tanh::<A>(c[i])));
            }
        }
    }
}

/// # Safety
/// The matrices must exist.
#[inline(always)]
unsafe fn gru_rows<A: Arithmetic>(s: &Step) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            let (state, at) = (row * s.units + unit, row * 4 * s.units + unit);
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let reset = opened::<A>(s, at, unit, 0, n);
                let update = opened::<A>(s, at, unit, 1, n);
                let (sums, units) = (s.gates.add(at), s.units);
                let (x, a) = (gate(sums, units, 2, n), gate(s.input_bias.add(unit), units, 2, n));
                let (y, b) = (gate(sums, units, 3, n), gate(s.hidden_bias.add(unit), units, 2, n));
                let candidate = lanes(|i| y[i] + b[i]);
                let new = lanes(|i| single::tanh::<A>((x[i] + a[i]) + reset[i] * candidate[i]));
                let before = load(s.h_before.add(state), n, 0.0);
                store(sums, n, &reset);
                store(sums.add(units), n, &update);
                store(sums.add(2 * units), n, &new);
                store(sums.add(3 * units), n, &candidate);
                store(s.h.add(state), n, &lanes(|i| new[i] + update[i] * (before[i] - new[i])));
            }
        }
    }
}

/// # Safety
/// The matrices must exist.
#[inline(always)]
unsafe fn plain_rows(s: &Step, f: impl Fn(f32) -> f32) {
    for row in 0..s.rows {
        for unit in (0..s.units).step_by(BLOCK) {
            let n = BLOCK.min(s.units - unit);
            // SAFETY: guaranteed by the caller; the block lies inside the rows.
            unsafe {
                let h = s.h.add(row * s.units + unit);
                let (x, a) = (load(h, n, 0.0), load(s.input_bias.add(unit), n, 0.0));
                let b = load(s.hidden_bias.add(unit), n, 0.0);
                store(h, n, &lanes(|i| f(x[i] + (a[i] + b[i]))));
            }
        }
    }
}

/// # Safety
/// Same as [`plain_rows`].
#[inline(always)]
unsafe fn tanh_rows<A: Arithmetic>(s: &Step) {
    // SAFETY: guaranteed by the caller.
    unsafe { plain_rows(s, single::tanh::<A>) }
}

/// # Safety
/// Same as [`plain_rows`].
#[inline(always)]
unsafe fn relu_rows<A: Arithmetic>(s: &Step) {
    // SAFETY: guaranteed by the caller. NaN is preserved.
    unsafe { plain_rows(s, |x| if x <= 0.0 { 0.0 } else { x }) }
}
