//! Padding and cropping.

use phynexus::{DType, Device, Tensor, host_memory};

use super::{distinct_axes, extent, integers_since, moved};
use crate::{Element, Error, Result, Text, Value, graph::Call, ops::table_size};

/// What padding consists of.
#[derive(Clone, Copy)]
enum Mode {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

pub(crate) fn pad(call: &Call<'_>) -> Result<Vec<Value>> {
    let mode = match call.string_or("mode", "constant")? {
        "constant" => Mode::Constant,
        "reflect" => Mode::Reflect,
        "edge" => Mode::Edge,
        "wrap" => Mode::Wrap,
        other => {
            return Err(Error::invalid(format!("mode {other:?} must be constant, reflect, edge or wrap")));
        }
    };
    let data = call.value(0)?;
    let rank = data.shape()?.len();
    let pads = integers_since(call, 11, "pads", 1)?.ok_or_else(|| Error::invalid("the pads are missing"))?;
    let axes = match call.optional_integers(3)? {
        Some(axes) => distinct_axes(call, &axes, rank)?,
        None => (0..rank).collect(),
    };
    let (before, after) = pads.split_at(pads.len() / 2);
    if before.len() != axes.len() || after.len() != axes.len() {
        return Err(Error::invalid(format!(
            "{} axes need twice as many pads, got {}",
            axes.len(),
            pads.len()
        )));
    }
    let named = |axis: usize| axes.iter().position(|&place| place == axis);
    let pair =
        |axis: usize| named(axis).and_then(|at| Some((*before.get(at)?, *after.get(at)?))).unwrap_or((0, 0));
    let pairs: Vec<(i64, i64)> = (0..rank).map(pair).collect();
    let value = match (call.float("value")?, call.has(2)) {
        (_, true) => Some(call.value(2)?.clone()),
        (Some(value), false) => {
            Some(Value::Tensor(Tensor::scalar(value, call.device)?.to_dtype(data.tensor()?.dtype())?))
        }
        (None, false) => None,
    };
    padded(call.device, data, &pairs, mode, value)
}

pub(crate) fn center_crop_pad(call: &Call<'_>) -> Result<Vec<Value>> {
    let data = call.value(0)?;
    let own = data.shape()?;
    let sizes = call.integers(1)?.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
    let axes = match call.ints("axes")? {
        Some(axes) => distinct_axes(call, &axes, own.len())?,
        None => (0..own.len()).collect(),
    };
    if sizes.len() != axes.len() {
        return Err(Error::invalid(format!("{} axes need as many sizes, got {}", axes.len(), sizes.len())));
    }
    let mut pairs = vec![(0, 0); own.len()];
    for (&axis, &size) in axes.iter().zip(&sizes) {
        if let (Some(pair), Some(&from)) = (pairs.get_mut(axis), own.get(axis)) {
            let more = size as i64 - from as i64;
            *pair = (more / 2, more - more / 2);
        }
    }
    padded(call.device, data, &pairs, Mode::Constant, None)
}

/// Adds so many elements before and after each axis; removes them if the numbers are negative. Padding of a constant
/// is 0 (or the empty string) without `value`.
fn padded(
    device: Device,
    data: &Value,
    pairs: &[(i64, i64)],
    mode: Mode,
    value: Option<Value>,
) -> Result<Vec<Value>> {
    let value = match value {
        None if data.element() == Some(Element::String) => {
            Some(Value::Text(Text { shape: Vec::new(), values: vec![String::new()] }))
        }
        value => value,
    };
    let values: Vec<&Value> = std::iter::once(data).chain(&value).collect();
    moved(device, &values, |tensors| {
        let [data, value @ ..] = tensors else { return Ok(Vec::new()) };
        let mut x = data.clone();
        for (axis, (&(before, after), &size)) in pairs.iter().zip(data.shape()).enumerate() {
            let removed = [before, after].map(|count| usize::try_from(count.saturating_neg()).unwrap_or(0));
            let rest = removed.iter().try_fold(size, |size, &count| size.checked_sub(count));
            let rest = rest.ok_or_else(|| {
                Error::invalid(format!("axis {axis} of size {size} is cropped to less than 0"))
            })?;
            x = x.narrow(axis as i64, removed[0], rest)?;
        }
        let added: Vec<(usize, usize)> =
            pairs.iter().map(|&(before, after)| (before.max(0) as usize, after.max(0) as usize)).collect();
        if let Mode::Constant = mode {
            let zeros = x.pad(&added, 0)?;
            let Some(value) = value.first() else { return Ok(vec![zeros]) };
            let inside = Tensor::ones(x.shape(), DType::Bool, device)?.pad(&added, false)?;
            return Ok(vec![inside.where_(&zeros, &value.reshape(&[])?)?]);
        }
        for (axis, &(before, after)) in added.iter().enumerate().filter(|(_, pair)| **pair != (0, 0)) {
            let size = x.shape().get(axis).copied().unwrap_or(0);
            let index = places(mode, size, before, after)?;
            x = x.take(&Tensor::from_slice(&index, &[index.len()], device)?, Some(axis as i64))?;
        }
        Ok(vec![x])
    })
}

/// The positions along an axis whose elements a padded axis has.
fn places(mode: Mode, size: usize, before: usize, after: usize) -> Result<Vec<i64>> {
    let length = size.checked_add(before).and_then(|sum| sum.checked_add(after));
    let length = length.ok_or_else(|| Error::invalid("the padded size would exceed the address space"))?;
    if size == 0 {
        return Err(Error::invalid("an empty axis has no elements to pad it with"));
    }
    let (size, before) = (size as i64, before as i64);
    let mut places = host_memory::room(table_size(length)?)?;
    places.extend((0..length as i64).map(|at| at - before).map(|at| match mode {
        Mode::Wrap => at.rem_euclid(size),
        // There and back: an ascending and a descending run without the ends between them.
        Mode::Reflect => size - 1 - (size - 1 - at.rem_euclid((2 * (size - 1)).max(1))).abs(),
        Mode::Constant | Mode::Edge => at.clamp(0, size - 1),
    }));
    Ok(places)
}
