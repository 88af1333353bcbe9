//! Updates of elements at indices.

use phynexus::{DType, Tensor, op::Combine, tensor::IndexSpec};

use super::coordinates;
use crate::{
    Error, Result, Value,
    graph::Call,
    ops::{
        counted,
        movement::{arrangement::Front, moved},
    },
};

/// How updates are combined with the elements; `None` if they replace them.
fn reduction(call: &Call<'_>) -> Result<Option<Combine>> {
    Ok(Some(match call.string_or("reduction", "none")? {
        "none" => return Ok(None),
        "add" => Combine::Sum,
        "mul" => Combine::Prod,
        "min" => Combine::Min,
        "max" => Combine::Max,
        other => {
            return Err(Error::invalid(format!("reduction {other:?} must be none, add, mul, min or max")));
        }
    }))
}

/// Updates the first input by the last of `inputs`, which may be strings unless they are combined.
fn updated(
    call: &Call<'_>,
    [data, updates]: [usize; 2],
    update: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Vec<Value>> {
    moved(call.device, &[call.value(data)?, call.value(updates)?], |tensors| match tensors {
        [data, updates] => Ok(vec![update(data, updates)?]),
        _ => Ok(Vec::new()),
    })
}

/// Combines updates with the elements along an axis.
fn combined(x: &Tensor, axis: i64, index: &Tensor, updates: &Tensor, combine: Combine) -> Result<Tensor> {
    if x.dtype() != DType::Bool {
        return Ok(x.scatter_reduce(axis, index, updates, combine, true)?);
    }
    // Of booleans, a sum is true if any is, a product if all are.
    let combine = match combine {
        Combine::Sum | Combine::Max => Combine::Max,
        Combine::Prod | Combine::Min => Combine::Min,
    };
    let (bytes, updates) = (x.to_dtype(DType::U8)?, updates.to_dtype(DType::U8)?);
    Ok(bytes.scatter_reduce(axis, index, &updates, combine, true)?.to_dtype(DType::Bool)?)
}

/// Refuses to compute with strings.
fn check_strings(call: &Call<'_>, combine: Option<Combine>) -> Result<()> {
    if combine.is_some() { call.value(0)?.tensor().map(|_| ()) } else { Ok(()) }
}

pub(crate) fn scatter_elements(call: &Call<'_>) -> Result<Vec<Value>> {
    let (axis, index, combine) = (call.int_or("axis", 0)?, call.tensor(1)?, reduction(call)?);
    check_strings(call, combine)?;
    updated(call, [0, 2], |x, updates| {
        if updates.shape() != index.shape() {
            let (updates, index) = (updates.shape(), index.shape());
            return Err(Error::invalid(format!(
                "updates {updates:?} and indices {index:?} must have the same shape"
            )));
        }
        match combine {
            None => Ok(x.scatter(axis, &index, updates)?),
            Some(combine) => combined(x, axis, &index, updates, combine),
        }
    })
}

pub(crate) fn scatter_nd(call: &Call<'_>) -> Result<Vec<Value>> {
    let (index, combine) = (call.tensor(1)?, reduction(call)?);
    let parts = coordinates(&index)?;
    check_strings(call, combine)?;
    updated(call, [0, 2], |x, updates| {
        let outer = index.shape().iter().take(index.shape().len() - 1);
        let expected: Vec<usize> = outer.chain(x.shape().iter().skip(parts.len())).copied().collect();
        if updates.shape() != expected {
            return Err(Error::invalid(format!(
                "updates must have shape {expected:?}, got {:?}",
                updates.shape()
            )));
        }
        let Some(combine) = combine else { return Ok(x.index_put(&parts, updates)?) };
        // The flat positions of the updated elements.
        let places = counted(x.len(), call.device)?.reshape(x.shape())?.index(&parts)?;
        let updates = updates.reshape(&[places.len()])?;
        let result =
            combined(&x.reshape(&[x.len()])?, 0, &places.reshape(&[places.len()])?, &updates, combine)?;
        Ok(result.reshape(x.shape())?)
    })
}

pub(crate) fn tensor_scatter(call: &Call<'_>) -> Result<Vec<Value>> {
    let circular = match call.string_or("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(Error::invalid(format!("mode {other:?} must be linear or circular"))),
    };
    let starts = call.optional(2)?;
    let axis = call.int_or("axis", -2)?;
    updated(call, [0, 1], |x, update| {
        let axis = call.axis(axis, x.shape().len())?;
        if axis == 0 || update.shape().len() != x.shape().len() {
            return Err(Error::invalid(
                "the cache and its update need a batch axis, another axis and the same rank",
            ));
        }
        // 8-bit floats cannot be scattered, their bits can.
        let stored = match x.dtype() {
            DType::F8E4M3 | DType::F8E5M2 => DType::U8,
            dtype => dtype,
        };
        let front = |tensor: &Tensor| Front::of(&tensor.bitcast(stored)?, &[0, axis]);
        let (cache, update) = (front(x)?, front(update)?.tensor);
        let ([batch, size, rest @ ..], [updated, length, own @ ..]) = (cache.tensor.shape(), update.shape())
        else {
            return Ok(x.clone());
        };
        if (batch, rest) != (updated, own) || length > size {
            return Err(Error::invalid(
                "the update must have the cache's shape, or be shorter along the axis",
            ));
        }
        let mut place = counted(*length, call.device)?.reshape(&[1, *length])?;
        if let Some(starts) = starts {
            place = place.add(&starts.to_dtype(DType::I64)?.reshape(&[*batch, 1])?)?;
        }
        if circular {
            place = place.remainder_scalar(*size as i64)?;
        }
        let row = counted(*batch, call.device)?.reshape(&[*batch, 1])?;
        let parts = [IndexSpec::Tensor(row), IndexSpec::Tensor(place)];
        Ok(cache.back(&cache.tensor.index_put(&parts, &update)?)?.bitcast(x.dtype())?)
    })
}
