//! The softmax of tiles of scores, row by row.

use crate::vector::{Arithmetic, BLOCK, InstructionSet, combine, compiled, lanes, load, single, store};

/// A tile of scores to be converted to weights, with the row state from previous tiles.
pub(super) struct Softmax {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Rows `pitch` apart: whole blocks, whose elements past the columns may also be read and written.
    pub(super) scores: *mut f32,
    pub(super) pitch: usize,
    pub(super) scale: f32,
    /// For causal attention, the number of columns that the first row attends to (below 0: none); every further row
    /// attends to one more. `None`: all rows attend to all columns.
    pub(super) causal: Option<isize>,
    /// Per row: the greatest score, and the sum of `exp(score - greatest)` (initially minus infinity and 0).
    pub(super) greatest: *mut f32,
    pub(super) sum: *mut f32,
    /// Per row: the weighted sums of the values of previous tiles, `features` each; unwritten at the first tile.
    pub(super) output: *mut f32,
    pub(super) features: usize,
    pub(super) first: bool,
}

compiled!(
    /// Replaces the scores of a tile by `exp(score - greatest)` and rescales the rows' sums and outputs to the new
    /// greatest score (online softmax: Milakov and Gimelshein, 2018).
    compile_softmax = softmax_rows(&Softmax)
);

/// The best function for a tile of scores.
pub(super) fn softmax() -> unsafe fn(&Softmax) {
    compile_softmax(InstructionSet::best())
}

/// The number of columns that a row attends to.
#[inline(always)]
fn attended(causal: Option<isize>, row: usize, columns: usize) -> usize {
    causal.map_or(columns, |first| columns.min((first + row as isize).max(0) as usize))
}

/// The shift of a row's scores: 0 if it attends to nothing so far.
#[inline(always)]
fn shift(greatest: f32) -> f32 {
    if greatest == f32::NEG_INFINITY { 0.0 } else { greatest }
}

/// Keeps the lanes before `count`; sets the others to `rest`.
#[inline(always)]
fn first_lanes(count: usize, rest: f32, x: [f32; BLOCK]) -> [f32; BLOCK] {
    let count = count.min(BLOCK) as i32;
    lanes(|i| if (i as i32) < count { x[i] } else { rest })
}

/// # Safety
/// The matrices must exist and not overlap.
#[inline(always)]
unsafe fn softmax_rows<A: Arithmetic>(s: &Softmax) {
    let greater = |a: f32, b: f32| if b > a { b } else { a };
    for row in 0..s.rows {
        let count = attended(s.causal, row, s.columns);
        // SAFETY: guaranteed by the caller; blocks end before the next row.
        unsafe {
            let scores = s.scores.add(row * s.pitch);
            let before = *s.greatest.add(row);
            let mut most = [before; BLOCK];
            for at in (0..count).step_by(BLOCK) {
                let x = load(scores.add(at), BLOCK, 0.0);
                let x = first_lanes(count - at, f32::NEG_INFINITY, lanes(|i| x[i] * s.scale));
                store(scores.add(at), BLOCK, &x);
                most = lanes(|i| greater(most[i], x[i]));
            }
            let greatest = combine(most, greater);
            let shift = shift(greatest);
            let mut sums = [0.0; BLOCK];
            for at in (0..count).step_by(BLOCK) {
                let x = load(scores.add(at), BLOCK, 0.0);
                let e = first_lanes(count - at, 0.0, lanes(|i| single::exp::<A>(x[i] - shift)));
                store(scores.add(at), BLOCK, &e);
                sums = lanes(|i| sums[i] + e[i]);
            }
            zeros(scores, count, s.columns);
            let factor = single::exp::<A>(before - shift);
            *s.greatest.add(row) = greatest;
            *s.sum.add(row) = *s.sum.add(row) * factor + combine(sums, |a, b| a + b);
            if !s.first && factor != 1.0 {
                let output = std::slice::from_raw_parts_mut(s.output.add(row * s.features), s.features);
                output.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }
}

/// Zeros a row from the block after the one that holds element `count - 1`.
///
/// # Safety
/// The row must exist.
#[inline(always)]
unsafe fn zeros(row: *mut f32, count: usize, columns: usize) {
    for at in (count.next_multiple_of(BLOCK)..columns).step_by(BLOCK) {
        // SAFETY: guaranteed by the caller.
        unsafe { store(row.add(at), BLOCK, &[0.0; BLOCK]) }
    }
}

/// A tile of scores and a tile of products of output gradients and values, to be converted to weights and score
/// gradients.
pub(super) struct ScoreGradient {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Both as in [`Softmax`].
    pub(super) scores: *mut f32,
    pub(super) products: *mut f32,
    pub(super) pitch: usize,
    /// The scale of the scores, and of their gradients.
    pub(super) scale: f32,
    pub(super) gradient_scale: f32,
    /// As in [`Softmax`].
    pub(super) causal: Option<isize>,
    /// Per row.
    pub(super) logarithm: *const f32,
    pub(super) delta: *const f32,
}

compiled!(
    /// Replaces scores by weights `p = exp(score - logarithm)`, and products by `(product - delta) p scale`.
    compile_score_gradient = score_gradient_rows(&ScoreGradient)
);

/// The best function for a tile of scores and products.
pub(super) fn score_gradient() -> unsafe fn(&ScoreGradient) {
    compile_score_gradient(InstructionSet::best())
}

/// # Safety
/// The matrices must exist and not overlap.
#[inline(always)]
unsafe fn score_gradient_rows<A: Arithmetic>(s: &ScoreGradient) {
    for row in 0..s.rows {
        let count = attended(s.causal, row, s.columns);
        // SAFETY: guaranteed by the caller; blocks end before the next row.
        unsafe {
            let (scores, products) = (s.scores.add(row * s.pitch), s.products.add(row * s.pitch));
            let (shift, delta) = (shift(*s.logarithm.add(row)), *s.delta.add(row));
            for at in (0..count).step_by(BLOCK) {
                let (x, y) = (load(scores.add(at), BLOCK, 0.0), load(products.add(at), BLOCK, 0.0));
                let p = lanes(|i| single::exp::<A>(x[i] * s.scale - shift));
                let of_score = lanes(|i| (y[i] - delta) * p[i] * s.gradient_scale);
                store(scores.add(at), BLOCK, &first_lanes(count - at, 0.0, p));
                store(products.add(at), BLOCK, &first_lanes(count - at, 0.0, of_score));
            }
            zeros(scores, count, s.columns);
            zeros(products, count, s.columns);
        }
    }
}
