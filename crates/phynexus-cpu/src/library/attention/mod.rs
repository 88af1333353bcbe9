//! Scaled dot-product attention and its gradient in `f32`, tiled over queries and keys, so that the full score matrix
//! is never stored (FlashAttention: Dao et al., 2022). Results do not depend on the number of threads.

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

/// Queries per tile.
const QUERIES: usize = 56;
/// Keys per tile: a multiple of 64, as required by [`crate::gemm::panels`].
const KEYS: usize = 256;

/// The operands, which several threads read.
struct Addresses<'a>(&'a [*const u8]);

impl Addresses<'_> {
    fn all(&self) -> &[*const u8] {
        self.0
    }
}

// SAFETY: the memory is only read.
unsafe impl Sync for Addresses<'_> {}

/// Shapes, attributes and operand layouts, shared by the layer and its gradient.
struct Problem {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// Features of queries and keys, and of values.
    features: usize,
    values: usize,
    causal: bool,
    scale: f32,
    /// Layouts of queries, keys, values and the mask.
    layouts: Vec<Layout>,
    mask: Option<DType>,
}

impl Problem {
    /// Checks the operands: queries, keys, values, the mask, then the rest, which must be `f32` of these shapes.
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

    /// The number of heads in the whole batch.
    fn all_heads(&self) -> usize {
        self.batch * self.heads
    }

    /// The number of query tiles.
    fn query_tiles(&self) -> usize {
        self.queries.div_ceil(QUERIES)
    }
    fn query_tile(&self, tile: usize) -> Range<usize> {
        part(self.queries, self.query_tiles(), tile)
    }

    /// The tiles of keys that any of these queries attends to.
    fn key_tiles(&self, queries: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let end = if self.causal { self.keys.min(queries.end) } else { self.keys };
        (0..end).step_by(KEYS).map(move |start| start..end.min(start + KEYS))
    }

    /// The row pitch of a tile of scores: whole blocks.
    fn pitch(&self) -> usize {
        KEYS.min(self.keys.next_multiple_of(BLOCK))
    }

    /// Memory for `count` tiles of scores, initialised to zero.
    fn tiles(&self, count: usize) -> Scratch {
        let length = count * QUERIES * self.pitch();
        let tiles = Scratch::new::<f32>(length);
        // SAFETY: the memory has this length.
        unsafe { tiles.start::<f32>().write_bytes(0, length) };
        tiles
    }

    /// The number of keys of a tile that the first query attends to; see [`rows::Softmax::causal`].
    fn attended(&self, queries: &Range<usize>, keys: &Range<usize>) -> Option<isize> {
        self.causal.then(|| queries.start as isize + 1 - keys.start as isize)
    }

    /// A head's matrix in operand 0, 1, 2 (`f32`) or the mask.
    fn matrix(&self, operands: &[*const u8], operand: usize, head: usize) -> Operand {
        let dtype = if operand == 3 { self.mask.unwrap_or(DType::F32) } else { DType::F32 };
        self.matrix_of(operands[operand], dtype, &self.layouts[operand].strides, head)
    }

    /// A head's matrix in memory with these strides.
    fn matrix_of(&self, start: *const u8, dtype: DType, strides: &[isize], head: usize) -> Operand {
        let (batch, head) = ((head / self.heads) as isize, (head % self.heads) as isize);
        let at = (batch * strides[0] + head * strides[1]) * dtype.size() as isize;
        Operand { data: start.wrapping_offset(at), dtype, row_stride: strides[2], column_stride: strides[3] }
    }

    /// Scales the scores of a tile and applies the mask, if any. Returns the scale that remains to be applied.
    ///
    /// # Safety
    /// The operands must match their layouts; the rows of the scores must be a pitch apart.
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
            // SAFETY: a row of the scores and the matching part of the mask's row.
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
