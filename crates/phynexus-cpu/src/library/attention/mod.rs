//! Scaled dot-product attention and its gradient in `f32`, by tiles of queries and keys: the whole score matrix never
//! exists (FlashAttention: Dao et al., 2022). Results do not depend on the number of threads.

mod backward;
mod forward;
mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;

use phynexus::{
    DType, Result,
    kernel::step,
    op::{composite::Attention, ir::IrNode},
    shape::Layout,
};

pub(super) use backward::{Backward, reads};
pub(super) use forward::Forward;

use super::misfit;
use crate::{
    gemm::{Operand, part, scratch::Scratch},
    vector::BLOCK,
};

/// Queries of a tile.
const QUERIES: usize = 56;
/// Keys of a tile: a multiple of 64, as [`crate::gemm::panels`] wants.
const KEYS: usize = 256;

/// The operands, which several threads read.
struct Addresses<'a>(&'a [*const u8]);

impl Addresses<'_> {
    fn all(&self) -> &[*const u8] {
        self.0
    }
}

// SAFETY: what lies there is only read.
unsafe impl Sync for Addresses<'_> {}

/// Shapes, attributes and how operands lie: what layer and gradient have in common.
struct Problem {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// Of queries and keys, and of values.
    features: usize,
    values: usize,
    causal: bool,
    scale: f32,
    /// Queries, keys, values, and the mask.
    layouts: Vec<Layout>,
    mask: Option<DType>,
}

impl Problem {
    /// Checks the operands: queries, keys, values, the mask, then the rest, `f32` of these shapes.
    fn new(
        name: &str,
        attention: &Attention,
        node: &IrNode,
        operands: &[step::Operand],
        gradient: bool,
    ) -> Result<Problem> {
        let wrong = || misfit(name, operands);
        let [q, k, v, ..] = operands else { return Err(wrong()) };
        let (&[batch, heads, queries, features], &[.., keys, _], &[.., values]) =
            (q.layout.shape.as_slice(), k.layout.shape.as_slice(), v.layout.shape.as_slice())
        else {
            return Err(wrong());
        };
        let lead = [batch, heads];
        let shape = |rest: &[usize]| [&lead[..], rest].concat();
        let mut shapes = vec![shape(&[queries, features]), shape(&[keys, features]), shape(&[keys, values])];
        if attention.mask {
            shapes.push(shape(&[queries, keys]));
        }
        let (rows, output) = (shape(&[queries]), shape(&[queries, values]));
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let size = match gradient {
            true => shapes[..3].iter().map(|s| count(s)).sum(),
            false => count(&output) + count(&rows),
        };
        if gradient {
            shapes.extend([rows.clone(), output, rows]);
        }
        let is_mask = |at: usize| attention.mask && at == 3;
        let fits = operands.len() == shapes.len()
            && node.dtype == DType::F32
            && node.shape.as_slice() == [size]
            && operands.iter().zip(&shapes).enumerate().all(|(at, (o, shape))| {
                (o.dtype == DType::F32 || is_mask(at) && o.dtype == DType::Bool)
                    && o.layout.shape.as_slice() == *shape
            });
        if !fits {
            return Err(wrong());
        }
        Ok(Problem {
            batch,
            heads,
            queries,
            keys,
            features,
            values,
            causal: attention.causal,
            scale: attention.scale.as_f64() as f32,
            layouts: operands[..3 + usize::from(attention.mask)].iter().map(|o| o.layout.clone()).collect(),
            mask: attention.mask.then(|| operands[3].dtype),
        })
    }

    /// Heads of all of the batch.
    fn all_heads(&self) -> usize {
        self.batch * self.heads
    }

    /// The number of tiles of queries, and one of them.
    fn query_tiles(&self) -> usize {
        self.queries.div_ceil(QUERIES)
    }
    fn query_tile(&self, tile: usize) -> Range<usize> {
        part(self.queries, self.query_tiles(), tile)
    }

    /// The tiles of keys that some of these queries attend to, without keys that none does.
    fn key_tiles(&self, queries: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = if self.causal { self.keys.min(queries.end) } else { self.keys };
        (0..end).step_by(KEYS).map(move |start| start..end.min(start + KEYS))
    }

    /// Elements between the rows of a tile of scores: whole blocks.
    fn pitch(&self) -> usize {
        KEYS.min(self.keys.next_multiple_of(BLOCK))
    }

    /// Memory for so many tiles of scores, where all elements are numbers.
    fn tiles(&self, count: usize) -> Scratch {
        let length = count * QUERIES * self.pitch();
        let tiles = Scratch::new::<f32>(length);
        // SAFETY: the memory is that long.
        unsafe { tiles.start::<f32>().write_bytes(0, length) };
        tiles
    }

    /// How many keys of a tile the first query attends to; see [`rows::Softmax::causal`].
    fn attended(&self, queries: &Range<usize>, keys: &Range<usize>) -> Option<isize> {
        self.causal.then(|| queries.start as isize + 1 - keys.start as isize)
    }

    /// A head's matrix in operand 0, 1, 2 (`f32`) or the mask.
    fn matrix(&self, operands: &[*const u8], operand: usize, head: usize) -> Operand {
        let dtype = if operand == 3 { self.mask.unwrap_or(DType::F32) } else { DType::F32 };
        self.matrix_of(operands[operand], dtype, &self.layouts[operand].strides, head)
    }

    /// A head's matrix in what lies so.
    fn matrix_of(&self, start: *const u8, dtype: DType, strides: &[isize], head: usize) -> Operand {
        let (batch, head) = ((head / self.heads) as isize, (head % self.heads) as isize);
        let at = (batch * strides[0] + head * strides[1]) * dtype.size() as isize;
        Operand { data: start.wrapping_offset(at), dtype, row_stride: strides[2], column_stride: strides[3] }
    }

    /// Scales the scores of a tile and applies the mask, if there is one; gives the scale that is left to be applied.
    ///
    /// # Safety
    /// The operands exist as their layouts say, and the scores: rows a pitch apart.
    unsafe fn masked(
        &self,
        operands: &[*const u8],
        head: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        scores: *mut f32,
    ) -> f32 {
        if self.mask.is_none() {
            return self.scale;
        }
        let mask = self.matrix(operands, 3, head);
        for (row, query) in queries.clone().enumerate() {
            // SAFETY: a row of the scores and the part of the mask's row that belongs to it.
            unsafe {
                let scores = std::slice::from_raw_parts_mut(scores.add(row * self.pitch()), keys.len());
                let at = |key: usize| query as isize * mask.row_stride + key as isize * mask.column_stride;
                for (score, key) in scores.iter_mut().zip(keys.clone()) {
                    let scaled = *score * self.scale;
                    *score = match mask.dtype {
                        DType::Bool if *mask.data.offset(at(key)) != 0 => scaled,
                        DType::Bool => f32::NEG_INFINITY,
                        _ => scaled + *mask.data.cast::<f32>().offset(at(key)),
                    };
                }
            }
        }
        1.0
    }
}
