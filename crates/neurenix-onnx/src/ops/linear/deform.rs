//! Deformable convolutions.

use phynexus::{DType, Tensor};

use super::{
    convolution::{groups, kernel_of, per_channel},
    window::{Window, spatial, too_many_axes, windows},
};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

/// Positions along an axis: the whole numbers below them, and the rest.
struct Position {
    below: Tensor,
    rest: Tensor,
    size: i64,
}

impl Position {
    /// The neighbour below or above: its place, its share, and whether it is inside the image.
    fn neighbour(&self, is_above: bool) -> Result<(Tensor, Tensor, Tensor)> {
        let place = self.below.add_scalar(i64::from(is_above))?;
        let share = if is_above { self.rest.clone() } else { self.rest.rsub_scalar(1.0)? };
        let is_inside = place.ge_scalar(0)?.logical_and(&place.lt_scalar(self.size)?)?;
        Ok((place, share, is_inside))
    }
}

/// Samples `[N, G, C, spatial]` at positions `[N, G, 1, P]` with linear interpolation, and zeros outside.
fn sample(plane: &Tensor, positions: &[Position]) -> Result<Tensor> {
    let constant = |value: i64, dtype: DType| Tensor::full(&[], value, dtype, plane.device());
    let mut sum = constant(0, plane.dtype())?;
    for corner in 0..1usize << positions.len() {
        let mut index = constant(0, DType::I64)?;
        let mut weight = constant(1, plane.dtype())?;
        let mut is_inside = constant(1, DType::Bool)?;
        for (axis, position) in positions.iter().enumerate() {
            let (place, share, inside) = position.neighbour(corner >> axis & 1 == 1)?;
            index = index.mul_scalar(position.size)?.add(&place)?;
            weight = weight.mul(&share)?;
            is_inside = is_inside.logical_and(&inside)?;
        }
        let index = index.mul(&is_inside.to_dtype(DType::I64)?)?;
        let value = plane.take_along_dim(&index, -1)?.mul(&weight)?;
        sum = sum.add(&is_inside.where_(&value, &constant(0, plane.dtype())?)?)?;
    }
    Ok(sum)
}

/// Where the windows' elements are along an axis without offsets, as `[taps, places]`.
fn regular(windows: &[Window], axis: usize, like: &Tensor) -> Result<Tensor> {
    let along = |get: fn(&Window) -> usize, step: usize| -> Result<Tensor> {
        let sizes: Vec<usize> = windows.iter().map(get).collect();
        let own: Vec<usize> =
            (0..sizes.len()).map(|other| if other == axis { sizes[axis] } else { 1 }).collect();
        let numbers =
            Tensor::arange(0, sizes[axis] as i64, 1, DType::I64, like.device())?.mul_scalar(step as i64)?;
        Ok(numbers.reshape(&own)?.expand(&sizes)?.reshape(&[sizes.iter().product()])?)
    };
    let window = windows[axis];
    let taps = along(|window| window.kernel, window.dilation)?.sub_scalar(window.before as i64)?;
    let places = along(|window| window.outputs, window.stride)?;
    Ok(taps.unsqueeze(1)?.add(&places)?.to_dtype(like.dtype())?)
}

/// A convolution whose windows' elements are moved by offsets, with linear interpolation, and scaled by a mask.
pub(super) fn deform_conv(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight, offset, mask) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?, call.optional(4)?);
    let sizes = spatial(&x)?;
    let windows = windows(call, sizes, &kernel_of(call, &weight)?)?;
    if windows.len() > 3 {
        return Err(too_many_axes(&windows));
    }
    let (groups, parts) = (groups(call, "group")?, groups(call, "offset_group")?);
    let (batch, channels, filters, axes) = (x.shape()[0], x.shape()[1], weight.shape()[0], windows.len());
    let outputs: Vec<usize> = windows.iter().map(|window| window.outputs).collect();
    let taps: usize = windows.iter().map(|window| window.kernel).product();
    let shape_of = |numbers: usize| [&[batch, parts.saturating_mul(numbers)][..], &outputs].concat();
    for (name, given, needed) in [("offset", Some(&offset), taps * axes), ("mask", mask.as_ref(), taps)] {
        if let Some(given) = given.filter(|given| given.shape() != shape_of(needed)) {
            let (given, needed) = (given.shape(), shape_of(needed));
            return Err(Error::invalid(format!("the {name} must have shape {needed:?}, it has {given:?}")));
        }
    }
    if !channels.is_multiple_of(parts) || !channels.is_multiple_of(groups) || !filters.is_multiple_of(groups)
    {
        let message =
            format!("{groups} groups, {parts} offset groups do not divide {channels} and {filters} channels");
        return Err(Error::invalid(message));
    }
    let places: usize = outputs.iter().product();
    let dtype = x.dtype().compute();
    let offset = offset.to_dtype(dtype)?.reshape(&[batch, parts, taps, axes, places])?;
    let position = |axis: usize| -> Result<Position> {
        let moved = offset.narrow(3, axis, 1)?.squeeze(3)?.add(&regular(&windows, axis, &offset)?)?;
        let moved = moved.reshape(&[batch, parts, 1, taps * places])?;
        let below = moved.floor()?;
        Ok(Position {
            rest: moved.sub(&below)?,
            below: below.to_dtype(DType::I64)?,
            size: sizes[axis] as i64,
        })
    };
    let positions = (0..axes).map(position).collect::<Result<Vec<_>>>()?;
    let plane = x.to_dtype(dtype)?.reshape(&[batch, parts, channels / parts, sizes.iter().product()])?;
    let mut columns = sample(&plane, &positions)?;
    if let Some(mask) = mask {
        columns = columns.mul(&mask.to_dtype(dtype)?.reshape(&[batch, parts, 1, taps * places])?)?;
    }
    let inner = channels / groups * taps;
    let columns = columns.reshape(&[batch, groups, inner, places])?;
    let matrices = weight.to_dtype(dtype)?.reshape(&[groups, filters / groups, inner])?;
    let mut y = matrices.matmul(&columns)?.reshape(&[&[batch, filters][..], &outputs].concat())?;
    if let Some(bias) = call.optional(3)? {
        y = y.add(&per_channel(&bias.to_dtype(dtype)?, axes)?)?;
    }
    one(y.to_dtype(x.dtype())?)
}
