//! Pools over regions of interest.

use phynexus::{DType, Tensor};

use super::lowest;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

/// The whole numbers from 0 along an axis of a tensor of rank `rank`.
fn counter(count: usize, axis: usize, rank: usize, like: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[axis] = count;
    Ok(Tensor::arange(0, count as i64, 1, like.dtype(), like.device())?.reshape(&shape)?)
}

/// A column of regions `[R, columns]` as floats that numbers are computed in, as `[R, 1, 1]`.
fn column(regions: &Tensor, column: usize) -> Result<Tensor> {
    Ok(regions.to_dtype(regions.dtype().compute())?.narrow(1, column, 1)?.unsqueeze(-1)?)
}

fn image(x: &Tensor, regions: &Tensor, columns: usize) -> Result<[usize; 4]> {
    match (x.shape(), regions.shape()) {
        (&[n, c, h, w], &[_, found]) if found == columns && h > 0 && w > 0 => Ok([n, c, h, w]),
        (x, regions) => {
            let message =
                format!("expected images [N, C, H, W] and regions [R, {columns}], got {x:?} and {regions:?}");
            Err(Error::invalid(message))
        }
    }
}

fn positive(number: i64) -> Result<usize> {
    let wrong = || Error::invalid(format!("the output's extents must be positive, one is {number}"));
    u16::try_from(number).ok().filter(|&number| number > 0).map(usize::from).ok_or_else(wrong)
}

/// The maximum of each bin of each region, whose corners are rounded to whole pixels.
pub(super) fn max_roi_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, regions) = (call.tensor(0)?, call.tensor(1)?);
    let [_, _, height, width] = image(&x, &regions, 5)?;
    let Some(&[rows, columns]) = call.ints("pooled_shape")?.as_deref().and_then(|shape| shape.as_array())
    else {
        return Err(Error::invalid("pooled_shape must be two numbers"));
    };
    let scale = call.float_or("spatial_scale", 1.0)?;
    // Halves are rounded away from zero.
    let corner = |place: usize| -> Result<Tensor> {
        let scaled = column(&regions, place)?.mul_scalar(scale)?;
        Ok(scaled.abs()?.add_scalar(0.5)?.floor()?.copysign(&scaled)?)
    };
    // Which pixels of an axis are in a bin: [R, bins, pixels].
    let inside = |first: usize, bins: usize, size: usize| -> Result<Tensor> {
        let (start, end) = (corner(first)?, corner(first + 2)?);
        let length = end.sub(&start)?.add_scalar(1)?.maximum_scalar(1)?.div_scalar(bins as f64)?;
        let bin = counter(bins, 1, 3, &start)?;
        let from = bin.mul(&length)?.floor()?.add(&start)?;
        let to = bin.add_scalar(1)?.mul(&length)?.ceil()?.add(&start)?;
        let pixel = counter(size, 2, 3, &start)?;
        Ok(pixel.ge(&from)?.logical_and(&pixel.lt(&to)?)?)
    };
    let in_rows = inside(2, positive(rows)?, height)?;
    let in_columns = inside(1, positive(columns)?, width)?;
    let image_of = regions.narrow(1, 0, 1)?.squeeze(1)?.to_dtype(DType::I64)?;
    let images = x.take(&image_of, Some(0))?;
    let nothing = Tensor::full(&[], lowest(x.dtype()), x.dtype(), x.device())?;
    // [R, C, rows, W], then [R, C, rows, columns]
    let by_row =
        in_rows.unsqueeze(1)?.unsqueeze(-1)?.where_(&images.unsqueeze(2)?, &nothing)?.max(&[3], false)?;
    let in_columns_of_all = in_columns.unsqueeze(1)?.unsqueeze(1)?;
    let y = in_columns_of_all.where_(&by_row.unsqueeze(3)?, &nothing)?.max(&[4], false)?;
    let is_filled =
        in_rows.any(&[2], true)?.logical_and(&in_columns.any(&[2], false)?.unsqueeze(1)?)?.unsqueeze(1)?;
    one(is_filled.where_(&y, &y.zeros_like()?)?)
}

/// Sampling points along one axis of the regions, `[R, bins * most]`: the pixels below and above them and their
/// weights, and which points count.
struct Samples {
    neighbours: [(Tensor, Tensor); 2],
    counts: Tensor,
}

/// `start`, `length` and `points` (the points in a bin, at most `most`) have shape `[R, 1, 1]`.
fn samples(
    start: &Tensor,
    length: &Tensor,
    points: &Tensor,
    bins: usize,
    most: usize,
    size: usize,
) -> Result<Samples> {
    let last = size.saturating_sub(1) as i64;
    let bin = length.div_scalar(bins as f64)?;
    let point = counter(most, 2, 3, start)?;
    let within = point.add_scalar(0.5)?.mul(&bin)?.div(&points.maximum_scalar(1)?)?;
    let position = counter(bins, 1, 3, start)?.mul(&bin)?.add(start)?.add(&within)?;
    let flat = |t: &Tensor| t.reshape(&[t.shape()[0], bins * most]);
    let counts = flat(&point.lt(points)?.expand(position.shape())?)?;
    let position = flat(&position)?;
    let is_near = position.ge_scalar(-1.0)?.logical_and(&position.le_scalar(size as f64)?)?;
    let position = position.maximum_scalar(0)?;
    let below = position.floor()?.minimum_scalar(last as f64)?;
    let rest = position.sub(&below)?;
    let rest = below.ge_scalar(last as f64)?.where_(&rest.zeros_like()?, &rest)?;
    let weight = |share: Tensor| is_near.where_(&share, &share.zeros_like()?);
    // NaN becomes pixel 0.
    let below = below.to_dtype(DType::I64)?.maximum_scalar(0)?;
    let above = below.add_scalar(1)?.minimum_scalar(last)?;
    Ok(Samples { neighbours: [(below, weight(rest.rsub_scalar(1.0)?)?), (above, weight(rest)?)], counts })
}

/// The mean or maximum of points in each bin of each region, which are interpolated.
pub(super) fn roi_align(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, regions, images) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let [batch, channels, height, width] = image(&x, &regions, 4)?;
    let (rows, columns) =
        (positive(call.int_or("output_height", 1)?)?, positive(call.int_or("output_width", 1)?)?);
    let scale = call.float_or("spatial_scale", 1.0)?;
    let is_half_pixel = match call.string_or("coordinate_transformation_mode", "half_pixel")? {
        "half_pixel" => call.opset() >= 16,
        "output_half_pixel" => false,
        other => return Err(Error::invalid(format!("there is no coordinate_transformation_mode {other:?}"))),
    };
    let takes_mean = match call.string_or("mode", "avg")? {
        "avg" => true,
        "max" => false,
        other => return Err(Error::invalid(format!("the mode must be avg or max, it is {other:?}"))),
    };
    if images.shape() != [regions.shape()[0]] {
        return Err(Error::invalid("batch_indices must have an element for each region"));
    }
    if regions.is_empty() {
        return one(Tensor::zeros(&[0, channels, rows, columns], x.dtype(), x.device())?);
    }
    let ratio = call.int_or("sampling_ratio", 0)?;
    let offset = if is_half_pixel { 0.5 } else { 0.0 };
    let corner = |place: usize| -> Result<Tensor> {
        Ok(column(&regions, place)?.mul_scalar(scale)?.sub_scalar(offset)?)
    };
    let along = |first: usize, bins: usize, size: usize| -> Result<(Samples, Tensor, usize)> {
        let start = corner(first)?;
        let length = corner(first + 2)?.sub(&start)?;
        let length = if is_half_pixel { length } else { length.maximum_scalar(1.0)? };
        let points = match ratio {
            1.. => length.full_like(ratio as f64)?,
            _ => length.div_scalar(bins as f64)?.ceil()?.maximum_scalar(0)?,
        };
        // The number of points is the shape of what follows.
        let most = points.max(&[], false)?.to_dtype(DType::I64)?.item::<i64>()?.max(1);
        let too_many = || Error::invalid(format!("{most} sampling points in a bin are too many"));
        let most = usize::from(u16::try_from(most).map_err(|_| too_many())?);
        Ok((samples(&start, &length, &points, bins, most, size)?, points, most))
    };
    let (across, points_across, most_across) = along(0, columns, width)?;
    let (down, points_down, most_down) = along(1, rows, height)?;
    // Rows of channels, in which points are looked up.
    let dtype = regions.dtype().compute();
    let pixels = x.to_dtype(dtype)?.permute(&[0, 2, 3, 1])?.reshape(&[batch * height * width, channels])?;
    let image_start =
        images.to_dtype(DType::I64)?.mul_scalar((height * width) as i64)?.reshape(&[images.len(), 1, 1])?;
    let mut combined: Option<Tensor> = None;
    for (row, row_weight) in &down.neighbours {
        for (column, column_weight) in &across.neighbours {
            let index =
                row.unsqueeze(2)?.mul_scalar(width as i64)?.add(&column.unsqueeze(1)?)?.add(&image_start)?;
            let weight = row_weight.unsqueeze(2)?.mul(&column_weight.unsqueeze(1)?)?;
            let value = pixels.take(&index, Some(0))?.mul(&weight.unsqueeze(3)?)?;
            combined = Some(match combined {
                Some(others) if takes_mean => others.add(&value)?,
                Some(others) => others.maximum(&value)?,
                None => value,
            });
        }
    }
    let combined = combined.ok_or_else(|| Error::invalid("there is no point"))?;
    let counts = down.counts.unsqueeze(2)?.logical_and(&across.counts.unsqueeze(1)?)?.unsqueeze(3)?;
    let nothing = if takes_mean { 0.0 } else { f64::NEG_INFINITY };
    let counted = counts.where_(&combined, &Tensor::full(&[], nothing, dtype, x.device())?)?;
    let bins = counted.reshape(&[images.len(), rows, most_down, columns, most_across, channels])?;
    let total = points_down.mul(&points_across)?.unsqueeze(-1)?;
    let y = match takes_mean {
        true => bins.sum(&[2, 4], false)?.div(&total.maximum_scalar(1)?)?,
        false => {
            let greatest = bins.max(&[2, 4], false)?;
            total.gt_scalar(0)?.where_(&greatest, &greatest.zeros_like()?)?
        }
    };
    one(y.permute(&[0, 3, 1, 2])?.to_dtype(x.dtype())?)
}
