//! Images of columns.

use phynexus::{DType, Tensor};

use super::extent;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::counted,
};

/// Sums the columns of blocks into an image: the adjoint of taking an image's blocks apart.
pub(crate) fn col2im(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let [batch, rows, columns] = *x.shape() else {
        return Err(Error::invalid(format!("expected columns [N, C * block, L], got {:?}", x.shape())));
    };
    let sizes = |sizes: Vec<i64>| sizes.into_iter().map(extent).collect::<Result<Vec<_>>>();
    let (image, block) = (sizes(call.integers(1)?)?, sizes(call.integers(2)?)?);
    let rank = image.len();
    let option = |name: &str, count: usize, default: i64| {
        let given = call.ints(name)?.unwrap_or_else(|| vec![default; count]);
        match given.len() == count {
            true => sizes(given),
            false => Err(Error::invalid(format!(
                "attribute {name:?} must have {count} integers, it has {}",
                given.len()
            ))),
        }
    };
    let (strides, dilations) = (option("strides", rank, 1)?, option("dilations", rank, 1)?);
    let pads = option("pads", 2 * rank, 0)?;
    let (before, after) = pads.split_at(rank);
    let unfit = || Error::invalid("the image, block, pads, strides and dilations do not fit together");
    if block.len() != rank || rank == 0 {
        return Err(unfit());
    }
    let mut padded = Vec::new();
    let mut counts = Vec::new();
    for ((((&size, &block), &stride), &dilation), (&before, &after)) in
        image.iter().zip(&block).zip(&strides).zip(&dilations).zip(before.iter().zip(after))
    {
        let whole = size.checked_add(before).and_then(|sum| sum.checked_add(after)).ok_or_else(unfit)?;
        let reach = block.checked_sub(1).and_then(|steps| steps.checked_mul(dilation)).ok_or_else(unfit)?;
        let room = whole.checked_sub(reach).and_then(|room| room.checked_sub(1)).ok_or_else(unfit)?;
        counts.push(room.checked_div(stride).ok_or_else(unfit)? + 1);
        padded.push(whole);
    }
    let product =
        |sizes: &[usize]| sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size)).ok_or_else(unfit);
    let (area, total) = (product(&block)?, product(&padded)?);
    if product(&counts)? != columns || !rows.is_multiple_of(area) {
        return Err(Error::invalid(format!(
            "blocks {block:?} at {counts:?} places of the image do not have [N, C * {area}, L], got {:?}",
            x.shape()
        )));
    }
    // The flat position of each element of each block in the padded image: a sum over the axes of the image.
    let mut position = Tensor::zeros(&[1], DType::I64, call.device)?;
    for axis in 0..rank {
        let get = |list: &[usize]| list.get(axis).copied().ok_or_else(unfit);
        let pitch = product(padded.get(axis + 1..).unwrap_or_default())? as i64;
        for (count, step, place) in
            [(get(&block)?, get(&dilations)?, axis), (get(&counts)?, get(&strides)?, rank + axis)]
        {
            let mut shape = vec![1; 2 * rank];
            shape.iter_mut().skip(place).take(1).for_each(|size| *size = count);
            let steps = counted(count, call.device)?.mul_scalar(step as i64)?;
            position = position.add(&steps.mul_scalar(pitch)?.reshape(&shape)?)?;
        }
    }
    let channels = rows / area;
    let images = batch.checked_mul(channels).ok_or_else(unfit)?;
    let elements = area.checked_mul(columns).ok_or_else(unfit)?;
    let source = x.reshape(&[images, elements])?.t()?;
    let empty = Tensor::zeros(&[total, images], x.dtype(), call.device)?;
    let sums = empty.index_add(0, &position.reshape(&[elements])?, &source)?.t()?;
    let mut result = sums.reshape(&[&[batch, channels], &padded[..]].concat())?;
    for (axis, (&size, &before)) in image.iter().zip(before).enumerate() {
        result = result.narrow(axis as i64 + 2, before, size)?;
    }
    one(result)
}
