//! The gradients of queries, keys and values, from weights computed again by tiles.

use phynexus::{
    Result,
    graph::{composite::AttentionAttributes, ir::IrNode},
    schedule::step,
    shape::contiguous_strides,
};

use super::{
    Addresses, KEYS, Problem, QUERIES,
    rows::{self, Slope},
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

/// The gradient of attention of fixed shapes.
pub(in super::super) struct Backward {
    problem: Problem,
    slope: unsafe fn(&Slope),
}

impl Backward {
    pub(in super::super) fn new(
        attributes: &AttentionAttributes,
        node: &IrNode,
        operands: &[step::Operand],
    ) -> Result<Backward> {
        let mut problem = Problem::new("attention_gradient", attributes, node, operands, true)?;
        // They are wanted contiguous, and copied where they are not.
        for layout in &mut problem.layouts[..3] {
            layout.strides = contiguous_strides(&layout.shape);
        }
        Ok(Backward { problem, slope: rows::slope() })
    }

    /// The gradients of one head.
    ///
    /// # Safety
    /// The operands exist and all but the mask are contiguous; no other task writes this head's part of the result.
    unsafe fn head(&self, operands: &[*const u8], head: usize, result: *mut f32) {
        let p = &self.problem;
        let (features, width) = (p.features, p.values);
        let of = |operand: usize, per_head: usize| {
            operands[operand].cast::<f32>().wrapping_add(head * per_head).cast_mut()
        };
        let rest = p.layouts.len();
        let (q, k) = (of(0, p.queries * features), of(1, p.keys * features));
        let (logarithms, deltas) = (of(rest, p.queries), of(rest + 2, p.queries));
        let of_output = of(rest + 1, p.queries * width);
        let all = p.all_heads();
        let of_k = result.wrapping_add(all * p.queries * features);
        let of_v = of_k.wrapping_add(all * p.keys * features);
        let of_q = result.wrapping_add(head * p.queries * features);
        let of_k = of_k.wrapping_add(head * p.keys * features);
        let of_v = of_v.wrapping_add(head * p.keys * width);

        let key_length = Right::packed_length(features, p.keys);
        let memory = Scratch::new::<f32>(key_length + Right::packed_length(width, p.keys));
        let tile = QUERIES * KEYS.min(p.keys);
        let tiles = Scratch::new::<f32>(2 * tile);
        let (scores, products) = (tiles.start::<f32>(), tiles.start::<f32>().wrapping_add(tile));
        // SAFETY: the caller's promise; the memory has room.
        let (transposed_keys, transposed_values) = unsafe {
            std::slice::from_raw_parts_mut(of_q, p.queries * features).fill(0.0);
            std::slice::from_raw_parts_mut(of_k, p.keys * features).fill(0.0);
            std::slice::from_raw_parts_mut(of_v, p.keys * width).fill(0.0);
            let keys = p.matrix(operands, 1, head).transposed();
            let values = p.matrix(operands, 2, head).transposed();
            let start = memory.start::<f32>();
            (
                Right::pack(&keys, features, p.keys, start),
                Right::pack(&values, width, p.keys, start.wrapping_add(key_length)),
            )
        };
        for queries in (0..p.query_tiles()).map(|tile| p.query_tile(tile)) {
            let rows = queries.len();
            let q = q.wrapping_add(queries.start * features);
            let of_q = of_q.wrapping_add(queries.start * features);
            let of_output = of_output.wrapping_add(queries.start * width);
            for keys in p.key_tiles(&queries) {
                let count = keys.len();
                let along = |data: *const f32, row: usize| Left { data, row: row as isize, step: 1 };
                let across = |data: *const f32| Left { data, row: 1, step: count as isize };
                // SAFETY: the caller's promise; scores and products are as large as a tile.
                unsafe {
                    multiply(
                        rows,
                        along(q, features),
                        transposed_keys.columns(keys.clone()),
                        scores,
                        count,
                        false,
                    );
                    let values = transposed_values.columns(keys.clone());
                    multiply(rows, along(of_output, width), values, products, count, false);
                    let scale = p.masked(operands, head, &queries, &keys, scores);
                    (self.slope)(&Slope {
                        rows,
                        columns: count,
                        scores,
                        products,
                        scale,
                        gradient_scale: p.scale,
                        causal: p.attended(&queries, &keys),
                        logarithm: logarithms.add(queries.start),
                        delta: deltas.add(queries.start),
                    });
                    let (of_k, of_v) = (of_k.add(keys.start * features), of_v.add(keys.start * width));
                    let k = Right::rows(k.add(keys.start * features), count, features, features);
                    multiply(rows, along(products, count), k, of_q, features, true);
                    let q = Right::rows(q, rows, features, features);
                    multiply(count, across(products), q, of_k, features, true);
                    let of_output = Right::rows(of_output, rows, width, width);
                    multiply(count, across(scores), of_output, of_v, width, true);
                }
            }
        }
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
            // SAFETY: the caller's promise; every head has its own part of the result.
            unsafe { self.head(operands.all(), head, result.get()) };
        });
        Ok(())
    }
}
