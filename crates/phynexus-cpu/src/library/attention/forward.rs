//! The output and the logarithms of the softmax's denominators.

use phynexus::{
    Result,
    kernel::step,
    op::{composite::Attention, ir::IrNode},
};

use super::{
    Addresses, Problem, QUERIES,
    rows::{self, Softmax},
};
use crate::{
    gemm::{
        blocked::Shared,
        panels::{Left, Right, multiply},
        scratch::Scratch,
    },
    library::{Routine, misfit},
    pool,
};

/// Attention of fixed shapes.
pub(in super::super) struct Forward {
    problem: Problem,
    softmax: unsafe fn(&Softmax),
}

impl Forward {
    pub(in super::super) fn new(
        attention: &Attention,
        node: &IrNode,
        operands: &[step::Operand],
    ) -> Result<Forward> {
        let problem = Problem::new("attention", attention, node, operands, false)?;
        Ok(Forward { problem, softmax: rows::softmax() })
    }

    /// Computes one tile of one head's queries.
    ///
    /// # Safety
    /// The operands must exist, the keys and values must be those of the head, and no other task may write these rows
    /// of the result.
    unsafe fn tile(
        &self,
        operands: &[*const u8],
        head: usize,
        tile: usize,
        transposed_keys: Right,
        values: Right,
        result: *mut f32,
    ) {
        let p = &self.problem;
        let queries = p.query_tile(tile);
        let first_row = head * p.queries + queries.start;
        let output = result.wrapping_add(first_row * p.values);
        let logarithms = result.wrapping_add(p.all_heads() * p.queries * p.values + first_row);
        let (scores, pitch) = (p.tiles(1), p.pitch());
        let (mut greatest, mut sum) = ([f32::NEG_INFINITY; QUERIES], [0.0f32; QUERIES]);
        let q = p.matrix(operands, 0, head);
        let left = Left {
            data: q.data.cast::<f32>().wrapping_offset(queries.start as isize * q.row_stride),
            row: q.row_stride,
            step: q.column_stride,
        };
        let mut first = true;
        for keys in p.key_tiles(&queries) {
            pool::check();
            // SAFETY: guaranteed by the caller; the scores have the size of a tile.
            unsafe {
                let scores = scores.start::<f32>();
                multiply(queries.len(), left, transposed_keys.columns(keys.clone()), scores, pitch, false);
                let scale = p.masked(operands, head, &queries, &keys, scores);
                (self.softmax)(&Softmax {
                    rows: queries.len(),
                    columns: keys.len(),
                    scores,
                    pitch,
                    scale,
                    causal: p.attended(&queries, &keys),
                    greatest: greatest.as_mut_ptr(),
                    sum: sum.as_mut_ptr(),
                    output,
                    features: p.values,
                    first,
                });
                let weights = Left { data: scores, row: pitch as isize, step: 1 };
                multiply(queries.len(), weights, values.steps(keys), output, p.values, !first);
            }
            first = false;
        }
        for row in 0..queries.len() {
            // SAFETY: these rows of the result belong to this task.
            let (output, logarithm) = unsafe {
                let output = output.add(row * p.values);
                (std::slice::from_raw_parts_mut(output, p.values), &mut *logarithms.add(row))
            };
            // An empty sum. A sum with NaN stays NaN.
            if sum[row] == 0.0 {
                output.fill(0.0);
                *logarithm = f32::NEG_INFINITY;
            } else {
                let factor = 1.0 / sum[row];
                output.iter_mut().for_each(|x| *x *= factor);
                *logarithm = sum[row].ln() + greatest[row];
            }
        }
    }
}

impl Routine for Forward {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let p = &self.problem;
        if operands.len() != p.layouts.len() {
            return Err(misfit("attention", &[]));
        }
        let operands = Addresses(operands);
        let result = Shared(result.cast::<f32>());
        let key_length = Right::packed_length(p.features, p.keys);
        let length = key_length + Right::packed_length(p.keys, p.values);
        // Heads are packed and processed in groups, large enough to keep the threads busy, so that memory does not grow
        // with the batch.
        let group = (4 * pool::threads()).min(p.all_heads());
        let memory = Scratch::new::<f32>(group * length);
        let memory = Shared(memory.start::<f32>());
        for start in (0..p.all_heads()).step_by(group.max(1)) {
            let heads = group.min(p.all_heads() - start);
            let mut packed = vec![None; heads];
            let packed_start = Shared(packed.as_mut_ptr());
            pool::parallel_for(heads, &|index| {
                let transposed_keys = p.matrix(operands.all(), 1, start + index).transposed();
                let values = p.matrix(operands.all(), 2, start + index);
                let memory = memory.get().wrapping_add(index * length);
                // SAFETY: guaranteed by the caller; this part of the memory and of the list belongs to this task.
                unsafe {
                    *packed_start.get().add(index) = Some((
                        Right::pack(&transposed_keys, p.features, p.keys, memory),
                        Right::pack(&values, p.keys, p.values, memory.wrapping_add(key_length)),
                    ));
                }
            });
            let packed: Vec<(Right, Right)> = packed.into_iter().flatten().collect();
            let tiles = p.query_tiles();
            pool::parallel_for(heads * tiles, &|task| {
                let (index, tile) = (task / tiles, task % tiles);
                let (keys, values) = packed[index];
                // SAFETY: guaranteed by the caller; every task has its own rows.
                unsafe { self.tile(operands.all(), start + index, tile, keys, values, result.get()) };
            });
        }
        Ok(())
    }
}
