//! The gradients of queries, keys and values, with weights recomputed tile by tile.

use phynexus::{
    DType, Result,
    kernel::step,
    op::{composite::Attention, ir::IrNode},
    shape::{Layout, contiguous_strides},
};

use super::{
    Addresses, Problem, QUERIES,
    rows::{self, ScoreGradient},
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

/// The gradient of attention of fixed shapes.
pub(in super::super) struct Backward {
    problem: Problem,
    /// The layout of the output's gradient.
    of_output: Layout,
    score_gradient: unsafe fn(&ScoreGradient),
}

/// Whether an operand that is not row-major can be read in place.
pub(in super::super) fn reads(attention: &Attention, operand: usize, layout: &Layout) -> bool {
    // After the mask: the logarithms, the output's gradient, the deltas.
    let rest = 3 + usize::from(attention.mask);
    match operand {
        0 | 1 => has_rows(layout),
        _ if operand == rest + 1 => has_rows(layout),
        _ => operand < rest,
    }
}

/// True if features are contiguous, as required for the right operands of products.
fn has_rows(layout: &Layout) -> bool {
    matches!(layout.strides.as_slice(), [.., row, 1] if *row >= 0)
}

impl Backward {
    pub(in super::super) fn new(
        attention: &Attention,
        node: &IrNode,
        operands: &[step::Operand],
    ) -> Result<Backward> {
        let mut problem = Problem::new("attention_gradient", attention, node, operands, true)?;
        let rest = problem.layouts.len();
        let mut of_output = operands[rest + 1].layout.clone();
        let (queries_and_keys, _) = problem.layouts.split_at_mut(2);
        for layout in queries_and_keys.iter_mut().chain([&mut of_output]).filter(|l| !has_rows(l)) {
            // Row-major, except for the strides of axes of size 1.
            layout.strides = contiguous_strides(&layout.shape);
        }
        Ok(Backward { problem, of_output, score_gradient: rows::score_gradient() })
    }

    /// Computes the gradients of one head.
    ///
    /// # Safety
    /// The operands must match their layouts, and no other task may write this head's part of the result.
    unsafe fn head(&self, operands: &[*const u8], head: usize, result: *mut f32) {
        let p = &self.problem;
        let (features, width, pitch) = (p.features, p.values, p.pitch());
        let rest = p.layouts.len();
        let (q, k) = (p.matrix(operands, 0, head), p.matrix(operands, 1, head));
        let of_output = p.matrix_of(operands[rest + 1], DType::F32, &self.of_output.strides, head);
        let of = |operand: usize| operands[operand].cast::<f32>().wrapping_add(head * p.queries);
        let (logarithms, deltas) = (of(rest), of(rest + 2));
        // The parts of the result, in which heads of one position are neighbours.
        let all = p.all_heads();
        let of_k = result.wrapping_add(all * p.queries * features);
        let of_v = of_k.wrapping_add(all * p.keys * features);
        let of_queries = p.gradient(result, head, p.queries, features);
        let of_keys = p.gradient(of_k, head, p.keys, features);
        let of_values = p.gradient(of_v, head, p.keys, width);

        let key_length = Right::packed_length(features, p.keys);
        let memory = Scratch::new::<f32>(key_length + Right::packed_length(width, p.keys));
        let tiles = p.tiles(2);
        let (scores, products) = (tiles.start::<f32>(), tiles.start::<f32>().wrapping_add(QUERIES * pitch));
        // SAFETY: guaranteed by the caller; the memory has room.
        let (transposed_keys, transposed_values) = unsafe {
            for part in [of_queries, of_keys, of_values] {
                part.clear();
            }
            let (keys, values) = (k.transposed(), p.matrix(operands, 2, head).transposed());
            let start = memory.start::<f32>();
            (
                Right::pack(&keys, features, p.keys, start),
                Right::pack(&values, width, p.keys, start.wrapping_add(key_length)),
            )
        };
        for queries in (0..p.query_tiles()).map(|tile| p.query_tile(tile)) {
            let rows = queries.len();
            let (q, of_output) = (rows_of(&q, queries.start), rows_of(&of_output, queries.start));
            let of_q = of_queries.row(queries.start);
            for keys in p.key_tiles(&queries) {
                pool::check();
                let count = keys.len();
                let along = |data: *const f32| Left { data, row: pitch as isize, step: 1 };
                let across = |data: *const f32| Left { data, row: 1, step: pitch as isize };
                // SAFETY: guaranteed by the caller; scores and products have the size of a tile.
                unsafe {
                    let transposed = transposed_keys.columns(keys.clone());
                    multiply(rows, q.left(), transposed, scores, pitch, false);
                    let transposed = transposed_values.columns(keys.clone());
                    multiply(rows, of_output.left(), transposed, products, pitch, false);
                    let scale = p.masked(operands, head, &queries, &keys, scores);
                    (self.score_gradient)(&ScoreGradient {
                        rows,
                        columns: count,
                        scores,
                        products,
                        pitch,
                        scale,
                        gradient_scale: p.scale,
                        causal: p.attended(&queries, &keys),
                        logarithm: logarithms.add(queries.start),
                        delta: deltas.add(queries.start),
                    });
                    let (of_k, of_v) = (of_keys.row(keys.start), of_values.row(keys.start));
                    let k = rows_of(&k, keys.start);
                    multiply(rows, along(products), k.right(count, features), of_q, of_queries.pitch, true);
                    multiply(count, across(products), q.right(rows, features), of_k, of_keys.pitch, true);
                    multiply(
                        count,
                        across(scores),
                        of_output.right(rows, width),
                        of_v,
                        of_values.pitch,
                        true,
                    );
                }
            }
        }
    }
}

/// The rows of a head in a part of the result.
#[derive(Clone, Copy)]
struct Gradient {
    data: *mut f32,
    rows: usize,
    features: usize,
    /// Elements from a row to the next.
    pitch: usize,
}

impl Problem {
    /// A head's rows in the part of the result that starts here.
    fn gradient(&self, part: *mut f32, head: usize, rows: usize, features: usize) -> Gradient {
        let (batch, head) = (head / self.heads, head % self.heads);
        let pitch = self.heads * features;
        Gradient { data: part.wrapping_add(batch * rows * pitch + head * features), rows, features, pitch }
    }
}

impl Gradient {
    fn row(self, row: usize) -> *mut f32 {
        self.data.wrapping_add(row * self.pitch)
    }

    /// Sets the rows to 0.
    ///
    /// # Safety
    /// No other task may access them.
    unsafe fn clear(self) {
        for row in 0..self.rows {
            // SAFETY: the row is in the result, and nothing else accesses it.
            unsafe { std::slice::from_raw_parts_mut(self.row(row), self.features).fill(0.0) };
        }
    }
}

/// The rows of a head's matrix from some row on; features are contiguous.
#[derive(Clone, Copy)]
struct Rows {
    data: *const f32,
    step: usize,
}

fn rows_of(matrix: &Operand, first: usize) -> Rows {
    let step = matrix.row_stride.unsigned_abs();
    Rows { data: matrix.data.cast::<f32>().wrapping_add(first * step), step }
}

impl Rows {
    fn left(self) -> Left {
        Left { data: self.data, row: self.step as isize, step: 1 }
    }
    fn right(self, rows: usize, columns: usize) -> Right {
        Right::rows(self.data, rows, columns, self.step)
    }
}

impl Routine for Backward {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let p = &self.problem;
        if operands.len() != p.layouts.len() + 3 {
            return Err(misfit("attention_gradient", &[]));
        }
        let operands = Addresses(operands);
        let result = Shared(result.cast::<f32>());
        pool::parallel_for(p.all_heads(), &|head| {
            // SAFETY: guaranteed by the caller; each head has its own part of the result.
            unsafe { self.head(operands.all(), head, result.get()) };
        });
        Ok(())
    }
}
