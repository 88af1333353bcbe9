//! Operators with indices.

mod scatter;
mod unique;

use phynexus::{DType, Tensor, tensor::IndexSpec};

use super::{
    Rows, counted,
    movement::{extent, moved, moved_one},
};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("Compress", compress),
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("NonZero", non_zero),
    ("OneHot", one_hot),
    ("Scatter", scatter::scatter_elements),
    ("ScatterElements", scatter::scatter_elements),
    ("ScatterND", scatter::scatter_nd),
    ("TensorScatter", scatter::tensor_scatter),
    ("Unique", unique::unique),
];

fn compress(call: &Call<'_>) -> Result<Vec<Value>> {
    let chosen = call.tensor(1)?.nonzero()?;
    let places = chosen.reshape(&[chosen.len()])?;
    let axis = call.int("axis")?;
    moved_one(call, |x| Ok(x.take(&places, axis)?))
}

fn gather(call: &Call<'_>) -> Result<Vec<Value>> {
    let (axis, index) = (call.int_or("axis", 0)?, call.tensor(1)?);
    moved_one(call, |x| Ok(x.take(&index, Some(axis))?))
}

fn gather_elements(call: &Call<'_>) -> Result<Vec<Value>> {
    let (axis, index) = (call.int_or("axis", 0)?, call.tensor(1)?);
    moved_one(call, |x| Ok(x.gather(axis, &index)?))
}

/// The parts of an index tensor whose last axis has a position for each of the first axes of the indexed tensor.
fn coordinates(index: &Tensor) -> Result<Vec<IndexSpec>> {
    let depth = index.shape().last().copied().unwrap_or(0);
    if depth == 0 {
        return Err(Error::invalid(
            "the last axis of the indices must have a position for at least one axis",
        ));
    }
    let part = |place: usize| {
        let part = index.narrow(-1, place, 1)?;
        let shape = part.shape().split_last().map_or(&[][..], |(_, front)| front);
        Ok(IndexSpec::Tensor(part.reshape(shape)?))
    };
    (0..depth).map(part).collect()
}

fn gather_nd(call: &Call<'_>) -> Result<Vec<Value>> {
    let index = call.tensor(1)?;
    let batches = extent(call.int_or("batch_dims", 0)?)?;
    let rank = index.shape().len().saturating_sub(1);
    if batches > rank {
        return Err(Error::invalid(format!(
            "batch_dims {batches} exceeds the {rank} dimensions of the indices"
        )));
    }
    moved_one(call, |x| {
        if x.shape().get(..batches) != index.shape().get(..batches) {
            return Err(Error::invalid(format!(
                "data and indices must agree in their first {batches} dimensions"
            )));
        }
        let own = |axis: usize| {
            let mut shape = vec![1; rank];
            let size = index.shape().get(axis).copied().unwrap_or(1);
            shape.iter_mut().skip(axis).take(1).for_each(|own| *own = size);
            Ok(IndexSpec::Tensor(counted(size, call.device)?.reshape(&shape)?))
        };
        let mut parts = (0..batches).map(own).collect::<Result<Vec<_>>>()?;
        parts.extend(coordinates(&index)?);
        Ok(x.index(&parts)?)
    })
}

fn non_zero(call: &Call<'_>) -> Result<Vec<Value>> {
    one(call.tensor(0)?.nonzero()?.t()?)
}

fn one_hot(call: &Call<'_>) -> Result<Vec<Value>> {
    let index = call.tensor(0)?.to_dtype(DType::I64)?;
    let depth = call.number(1)? as i64;
    let axis = call.axis(call.int_or("axis", -1)?, index.shape().len() + 1)?;
    let index = match call.opset() < 11 {
        true => index,
        false => index.lt_scalar(0)?.where_(&index.add_scalar(depth)?, &index)?,
    };
    let mut shape = vec![1; index.shape().len() + 1];
    shape.iter_mut().skip(axis).take(1).for_each(|size| *size = depth.max(0) as usize);
    let labels = counted(extent(depth)?, call.device)?.reshape(&shape)?;
    let hot = index.unsqueeze(axis as i64)?.eq(&labels)?;
    moved(call.device, &[call.value(2)?], |values| match values {
        [values] if values.shape() == [2] => {
            let value = |place: usize| values.narrow(0, place, 1)?.reshape(&[]);
            Ok(vec![hot.where_(&value(1)?, &value(0)?)?])
        }
        _ => Err(Error::invalid("the values must be two: that of the other places, and that of the index")),
    })
}
