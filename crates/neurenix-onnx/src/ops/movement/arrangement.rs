//! Rearrangements of whole tensors: tiles, blocks, triangles and reversed sequences.

use phynexus::{DType, Tensor, tensor::IndexSpec};

use super::{distinct_axes, extent, moved_one};
use crate::{Error, Result, Value, graph::Call, ops::counted};

pub(crate) fn tile(call: &Call<'_>) -> Result<Vec<Value>> {
    let counts = call.integers(1)?.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
    moved_one(call, |x| match x.shape().len() == counts.len() {
        true => Ok(x.tile(&counts)?),
        false => Err(Error::invalid(format!("{} repeats for {} dimensions", counts.len(), x.shape().len()))),
    })
}

/// Whether the block is the outermost part of the channels (`DCR`) or the innermost (`CRD`).
fn is_block_first(call: &Call<'_>) -> Result<bool> {
    match call.string_or("mode", "DCR")? {
        "DCR" => Ok(true),
        "CRD" => Ok(false),
        other => Err(Error::invalid(format!("mode {other:?} must be DCR or CRD"))),
    }
}

/// The block's size, and how many elements it has.
fn block(call: &Call<'_>) -> Result<(usize, usize)> {
    let size = usize::try_from(call.int_or("blocksize", 0)?).ok().filter(|&size| size > 0);
    let pair = size.and_then(|size| Some((size, size.checked_mul(size)?)));
    pair.ok_or_else(|| Error::invalid("attribute \"blocksize\" must be a positive integer of moderate size"))
}

pub(crate) fn depth_to_space(call: &Call<'_>) -> Result<Vec<Value>> {
    let (block_first, (side, area)) = (is_block_first(call)?, block(call)?);
    moved_one(call, |x| match *x.shape() {
        [batch, channels, height, width] if channels.is_multiple_of(area) => {
            let depth = channels / area;
            let blocks = match block_first {
                true => {
                    x.reshape(&[batch, side, side, depth, height, width])?.permute(&[0, 3, 4, 1, 5, 2])?
                }
                false => {
                    x.reshape(&[batch, depth, side, side, height, width])?.permute(&[0, 1, 4, 2, 5, 3])?
                }
            };
            Ok(blocks.reshape(&[batch, depth, height.saturating_mul(side), width.saturating_mul(side)])?)
        }
        ref shape => {
            Err(Error::invalid(format!("expected [N, C, H, W] with C a multiple of {area}, got {shape:?}")))
        }
    })
}

pub(crate) fn space_to_depth(call: &Call<'_>) -> Result<Vec<Value>> {
    let (block_first, (side, area)) = (is_block_first(call)?, block(call)?);
    moved_one(call, |x| match *x.shape() {
        [batch, depth, height, width] if height.is_multiple_of(side) && width.is_multiple_of(side) => {
            let (height, width) = (height / side, width / side);
            let blocks = x.reshape(&[batch, depth, height, side, width, side])?;
            let order = if block_first { [0, 3, 5, 1, 2, 4] } else { [0, 1, 3, 5, 2, 4] };
            Ok(blocks.permute(&order)?.reshape(&[batch, depth.saturating_mul(area), height, width])?)
        }
        ref shape => Err(Error::invalid(format!(
            "expected [N, C, H, W] with H and W multiples of {side}, got {shape:?}"
        ))),
    })
}

pub(crate) fn trilu(call: &Call<'_>) -> Result<Vec<Value>> {
    let diagonal = match call.optional_integers(1)?.as_deref() {
        None => 0,
        Some([diagonal]) => *diagonal,
        Some(all) => {
            return Err(Error::invalid(format!("the diagonal must be one number, got {}", all.len())));
        }
    };
    let upper = call.int_or("upper", 1)? != 0;
    call.value(0)?.tensor()?;
    moved_one(call, |x| Ok(if upper { x.triu(diagonal)? } else { x.tril(diagonal)? }))
}

pub(crate) fn reverse_sequence(call: &Call<'_>) -> Result<Vec<Value>> {
    let (batch_axis, time_axis) = (call.int_or("batch_axis", 1)?, call.int_or("time_axis", 0)?);
    let lengths = call.tensor(1)?;
    moved_one(call, |x| {
        let axes = distinct_axes(call, &[batch_axis, time_axis], x.shape().len())?;
        let front = Front::of(x, &axes)?;
        let [batch, time, ..] = *front.tensor.shape() else { return Ok(x.clone()) };
        let (row, place) = (counted(batch, call.device)?.reshape(&[batch, 1])?, counted(time, call.device)?);
        let lengths = lengths.to_dtype(DType::I64)?.reshape(&[batch, 1])?;
        let reversed = lengths.sub_scalar(1)?.sub(&place)?;
        let from = place.lt(&lengths)?.where_(&reversed, &place)?;
        front.back(&front.tensor.index(&[IndexSpec::Tensor(row), IndexSpec::Tensor(from)])?)
    })
}

/// A tensor with some axes moved to the front.
pub(crate) struct Front {
    pub(crate) tensor: Tensor,
    order: Vec<usize>,
}

impl Front {
    /// Moves these axes to the front.
    pub(crate) fn of(x: &Tensor, axes: &[usize]) -> Result<Front> {
        let rest = (0..x.shape().len()).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = axes.iter().copied().chain(rest).collect();
        Ok(Front { tensor: x.permute(&order)?, order })
    }

    /// Moves the axes of another tensor back to their places.
    pub(crate) fn back(&self, x: &Tensor) -> Result<Tensor> {
        let mut back: Vec<usize> = (0..self.order.len()).collect();
        back.sort_by_key(|&place| self.order.get(place));
        Ok(x.permute(&back)?)
    }
}
