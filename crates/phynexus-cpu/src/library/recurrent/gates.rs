//! What a time step computes between the matrix products, for some rows (sequences) of the batch at a time.

use phynexus::graph::composite::Cell;

use crate::vector::{Arithmetic, BLOCK, InstructionSet, compiled, lanes, load, single, store};

/// One step's rows. Every matrix is row-major.
pub(super) struct Step {
    pub(super) rows: usize,
    /// Units: columns of the states, and of each gate.
    pub(super) units: usize,
    /// LSTM, GRU: four blocks of columns, see [`phynexus::graph::composite::Recurrence`]; before the functions (the GRU's
    /// third block has the input's share, its fourth the hidden state's), then after them.
    pub(super) gates: *mut f32,
    /// By gate and unit.
    pub(super) input_bias: *const f32,
    pub(super) hidden_bias: *const f32,
    /// The state that the step starts from.
    pub(super) h_before: *const f32,
    pub(super) c_before: *const f32,
    /// The state that it leads to. Plain cells: holds the sums first. `c` may be `c_before`.
    pub(super) h: *mut f32,
    pub(super) c: *mut f32,
}

/// The function of a step.
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

#[inline(always)]
fn sigmoid<A: Arithmetic>(x: f32) -> f32 {
    1.0 / (1.0 + single::exp::<A>(-x))
}

/// Calls `f(row, first unit, number of units)` for blocks of every row.
#[inline(always)]
pub(super) fn blocks(rows: usize, units: usize, mut f: impl FnMut(usize, usize, usize)) {
    for row in 0..rows {
        for unit in (0..units).step_by(BLOCK) {
            f(row, unit, BLOCK.min(units - unit));
        }
    }
}

/// # Safety
/// The matrices exist; only `c` may be `c_before`.
#[inline(always)]
unsafe fn lstm_rows<A: Arithmetic>(s: &Step) {
    blocks(s.rows, s.units, |row, unit, n| {
        let (state, gate) = (row * s.units + unit, row * 4 * s.units + unit);
        // SAFETY: the caller's promise; the block lies inside the rows.
        unsafe {
            let sum = |index: usize| {
                let x = load(s.gates.add(gate + index * s.units), n, 0.0);
                let a = load(s.input_bias.add(index * s.units + unit), n, 0.0);
                let b = load(s.hidden_bias.add(index * s.units + unit), n, 0.0);
                lanes(|i| x[i] + (a[i] + b[i]))
            };
            let (x, before) = (sum(0), load(s.c_before.add(state), n, 0.0));
            let input = lanes(|i| sigmoid::<A>(x[i]));
            store(s.gates.add(gate), n, &input);
            let x = sum(1);
            let forget = lanes(|i| sigmoid::<A>(x[i]));
            store(s.gates.add(gate + s.units), n, &forget);
            let x = sum(2);
            let new = lanes(|i| single::tanh::<A>(x[i]));
            store(s.gates.add(gate + 2 * s.units), n, &new);
            let x = sum(3);
            let output = lanes(|i| sigmoid::<A>(x[i]));
            store(s.gates.add(gate + 3 * s.units), n, &output);
            let c = lanes(|i| forget[i] * before[i] + input[i] * new[i]);
            store(s.c.add(state), n, &c);
            store(s.h.add(state), n, &lanes(|i| output[i] * single::tanh::<A>(c[i])));
        }
    });
}

/// # Safety
/// The matrices exist.
#[inline(always)]
unsafe fn gru_rows<A: Arithmetic>(s: &Step) {
    blocks(s.rows, s.units, |row, unit, n| {
        let (state, gate) = (row * s.units + unit, row * 4 * s.units + unit);
        // SAFETY: the caller's promise; the block lies inside the rows.
        unsafe {
            let part = |index: usize| load(s.gates.add(gate + index * s.units), n, 0.0);
            let bias = |from: *const f32, index: usize| load(from.add(index * s.units + unit), n, 0.0);
            let opened = |index: usize| {
                let (x, a, b) = (part(index), bias(s.input_bias, index), bias(s.hidden_bias, index));
                lanes(|i| sigmoid::<A>(x[i] + (a[i] + b[i])))
            };
            let (reset, update) = (opened(0), opened(1));
            let (x, a) = (part(2), bias(s.input_bias, 2));
            let (y, b) = (part(3), bias(s.hidden_bias, 2));
            let candidate = lanes(|i| y[i] + b[i]);
            let new = lanes(|i| single::tanh::<A>((x[i] + a[i]) + reset[i] * candidate[i]));
            let before = load(s.h_before.add(state), n, 0.0);
            for (index, values) in [&reset, &update, &new, &candidate].into_iter().enumerate() {
                store(s.gates.add(gate + index * s.units), n, values);
            }
            store(s.h.add(state), n, &lanes(|i| new[i] + update[i] * (before[i] - new[i])));
        }
    });
}

/// # Safety
/// The matrices exist.
#[inline(always)]
unsafe fn plain_rows(s: &Step, f: impl Fn(f32) -> f32) {
    blocks(s.rows, s.units, |row, unit, n| {
        // SAFETY: the caller's promise; the block lies inside the rows.
        unsafe {
            let h = s.h.add(row * s.units + unit);
            let (x, a) = (load(h, n, 0.0), load(s.input_bias.add(unit), n, 0.0));
            let b = load(s.hidden_bias.add(unit), n, 0.0);
            store(h, n, &lanes(|i| f(x[i] + (a[i] + b[i]))));
        }
    });
}

/// # Safety
/// As [`plain_rows`].
#[inline(always)]
unsafe fn tanh_rows<A: Arithmetic>(s: &Step) {
    // SAFETY: the caller's promise.
    unsafe { plain_rows(s, single::tanh::<A>) }
}

/// # Safety
/// As [`plain_rows`].
#[inline(always)]
unsafe fn relu_rows<A: Arithmetic>(s: &Step) {
    // SAFETY: the caller's promise. NaN stays.
    unsafe { plain_rows(s, |x| if x <= 0.0 { 0.0 } else { x }) }
}
