//! Sequences and optionals, and what joins and splits tensors of any element type.

use phynexus::{Device, Tensor, host_memory};

use super::Rows;
use crate::{
    Error, Result, Text, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("ConcatFromSequence", concat_from_sequence),
    ("Optional", |call| Ok(vec![Value::Optional(call.value(0).ok().cloned().map(Box::new))])),
    ("OptionalGetElement", optional_get_element),
    ("OptionalHasElement", optional_has_element),
    ("SequenceAt", sequence_at),
    ("SequenceConstruct", sequence_construct),
    ("SequenceEmpty", |_| Ok(vec![Value::of_parts(Vec::new())?])),
    ("SequenceErase", sequence_erase),
    ("SequenceInsert", sequence_insert),
    ("SequenceLength", |call| Ok(vec![call.shape_number(call.value(0)?.sequence()?.len() as i64)?])),
    ("SequenceMap", sequence_map),
    ("SplitToSequence", split_to_sequence),
];

fn optional_has_element(call: &Call<'_>) -> Result<Vec<Value>> {
    let has = call.has(0) && !matches!(call.value(0)?, Value::Optional(None));
    one(Tensor::scalar(has, Device::find("cpu")?)?)
}

fn optional_get_element(call: &Call<'_>) -> Result<Vec<Value>> {
    match call.value(0)? {
        Value::Optional(Some(inner)) => Ok(vec![(**inner).clone()]),
        Value::Optional(None) => Err(Error::invalid("the optional has no element")),
        other => Ok(vec![other.clone()]),
    }
}

fn sequence_construct(call: &Call<'_>) -> Result<Vec<Value>> {
    let parts = (0..call.count()).map(|input| call.value(input).cloned()).collect::<Result<_>>()?;
    Ok(vec![Value::of_parts(parts)?])
}

fn sequence_at(call: &Call<'_>) -> Result<Vec<Value>> {
    let parts = call.value(0)?.sequence()?;
    let place = position(call, 1, parts.len(), parts.len())?;
    Ok(parts.get(place).cloned().into_iter().collect())
}

fn sequence_erase(call: &Call<'_>) -> Result<Vec<Value>> {
    let mut parts = call.value(0)?.sequence()?.to_vec();
    match call.has(1) {
        true => drop(parts.remove(position(call, 1, parts.len(), parts.len())?)),
        false => drop(parts.pop().ok_or_else(|| Error::invalid("the sequence is empty"))?),
    }
    Ok(vec![Value::of_parts(parts)?])
}

fn sequence_insert(call: &Call<'_>) -> Result<Vec<Value>> {
    let mut parts = call.value(0)?.sequence()?.to_vec();
    let place = if call.has(2) { position(call, 2, parts.len(), parts.len() + 1)? } else { parts.len() };
    parts.insert(place, call.value(1)?.clone());
    Ok(vec![Value::of_parts(parts)?])
}

/// The position below `end` that an input names in a sequence of `count` parts. Negative ones count from its end.
fn position(call: &Call<'_>, input: usize, count: usize, end: usize) -> Result<usize> {
    let [given] = call.integers(input)?[..] else {
        return Err(Error::invalid("the position in a sequence must be one integer"));
    };
    let from_start = if given < 0 { given + count as i64 } else { given };
    let place = usize::try_from(from_start).ok().filter(|&place| place < end);
    place.ok_or_else(|| Error::invalid(format!("position {given} is out of range for a sequence of {count}")))
}

fn sequence_map(call: &Call<'_>) -> Result<Vec<Value>> {
    let body = call.graph("body")?;
    let count = call.value(0)?.sequence()?.len();
    let mut results = vec![Vec::new(); body.outputs.len()];
    for at in 0..count {
        phynexus::interrupt::check()?;
        let sample = |input| match call.value(input)? {
            Value::Sequence(parts) => {
                parts.get(at).filter(|_| parts.len() == count).cloned().ok_or_else(|| {
                    Error::invalid(format!("input {input} has {} parts, the first has {count}", parts.len()))
                })
            }
            other => Ok(other.clone()),
        };
        let inputs = (0..call.count()).map(|input| sample(input).map(Some)).collect::<Result<_>>()?;
        for (all, result) in results.iter_mut().zip(call.run(&body, inputs)?) {
            all.push(result);
        }
    }
    results.into_iter().map(Value::of_parts).collect()
}

fn concat_from_sequence(call: &Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis")?.ok_or_else(|| Error::invalid("attribute \"axis\" is missing"))?;
    Ok(vec![joined(call, call.value(0)?.sequence()?, axis, call.int_or("new_axis", 0)? != 0)?])
}

fn split_to_sequence(call: &Call<'_>) -> Result<Vec<Value>> {
    let value = call.value(0)?;
    let shape = value.shape()?;
    let axis = call.axis(call.int_or("axis", 0)?, shape.len())?;
    let extent = shape[axis];
    let mut without = shape.to_vec();
    without.remove(axis);
    let lengths = match call.optional_integers(1)? {
        None => host_memory::filled(1, extent)?,
        Some(sizes) => {
            let wrong =
                || Error::invalid(format!("an axis of {extent} cannot be split into parts of {sizes:?}"));
            let lengths = sizes.iter().map(|&size| usize::try_from(size).map_err(|_| wrong()));
            let lengths = lengths.collect::<Result<Vec<usize>>>()?;
            match (lengths.as_slice(), call.value(1)?.shape()?.is_empty()) {
                (&[size], true) if size > 0 => {
                    (0..extent).step_by(size).map(|start| size.min(extent - start)).collect()
                }
                (_, false)
                    if lengths.iter().try_fold(0usize, |sum, &size| sum.checked_add(size))
                        == Some(extent) =>
                {
                    lengths
                }
                _ => return Err(wrong()),
            }
        }
    };
    let keep = call.has(1) || call.int_or("keepdims", 1)? != 0;
    let mut start = 0;
    let mut parts = host_memory::room(lengths.len())?;
    for length in lengths {
        let piece = part(value, axis, start, length)?;
        parts.push(if keep { piece } else { reshaped(&piece, &without)? });
        start += length;
    }
    Ok(vec![Value::of_parts(parts)?])
}

/// Joins tensors of one element type along an axis, or along a new one.
pub(super) fn joined(call: &Call<'_>, parts: &[Value], axis: i64, new_axis: bool) -> Result<Value> {
    let first = parts.first().ok_or_else(|| Error::invalid("there are no tensors to concatenate"))?;
    let mut shape = first.shape()?.to_vec();
    let axis = call.axis(axis, shape.len() + usize::from(new_axis))?;
    let mut widened = host_memory::room(parts.len())?;
    let mut extent = 0usize;
    for part in parts {
        let mut own = part.shape()?.to_vec();
        if new_axis {
            own.insert(axis, 1);
        }
        if widened.is_empty() {
            shape.clone_from(&own);
        }
        let fits = own.len() == shape.len() && (0..own.len()).all(|i| i == axis || own[i] == shape[i]);
        if !fits || part.element() != first.element() {
            return Err(Error::invalid(
                "tensors that are concatenated must have one element type and fitting shapes",
            ));
        }
        extent = extent.saturating_add(own[axis]);
        widened.push(reshaped(part, &own)?);
    }
    if matches!(first, Value::Text(_)) {
        shape[axis] = extent;
        let outer: usize = shape[..axis].iter().product();
        let texts = widened.iter().map(Value::text).collect::<Result<Vec<_>>>()?;
        let row = |text: &&Text, at: usize| {
            let length = text.values.len() / outer.max(1);
            text.values[at * length..(at + 1) * length].to_vec()
        };
        let values = (0..outer).flat_map(|at| texts.iter().flat_map(move |text| row(text, at))).collect();
        return Ok(Value::Text(Text { shape, values }));
    }
    let device = first.tensor()?.device();
    let common = parts.iter().all(|part| part.tensor().is_ok_and(|tensor| tensor.device() == device));
    let device = if common { device } else { call.environment.device };
    let tensors =
        widened.iter().map(|part| Ok(part.tensor()?.to_device(device)?)).collect::<Result<Vec<_>>>()?;
    Ok(like(first, Tensor::cat(&tensors.iter().collect::<Vec<_>>(), axis as i64)?))
}

/// `length` slices from `start` along an axis of a tensor.
pub(super) fn part(value: &Value, axis: usize, start: usize, length: usize) -> Result<Value> {
    let Value::Text(text) = value else {
        return Ok(like(value, value.tensor()?.narrow(axis as i64, start, length)?));
    };
    let mut shape = text.shape.clone();
    let inner: usize = shape[axis + 1..].iter().product();
    let rows = text.values.chunks((shape[axis] * inner).max(1));
    let values = rows.flat_map(|row| row[start * inner..(start + length) * inner].to_vec()).collect();
    shape[axis] = length;
    Ok(Value::Text(Text { shape, values }))
}

/// The same elements in another shape.
pub(super) fn reshaped(value: &Value, shape: &[usize]) -> Result<Value> {
    match value {
        Value::Text(text) => Ok(Value::Text(Text { shape: shape.to_vec(), values: text.values.clone() })),
        other => Ok(like(other, other.tensor()?.reshape(shape)?)),
    }
}

/// Zeros or empty strings, of the element type of `value`.
pub(super) fn blank(value: &Value, shape: &[usize]) -> Result<Value> {
    match value {
        Value::Text(_) => {
            let count = shape.iter().fold(1usize, |count, &size| count.saturating_mul(size));
            Ok(Value::Text(Text {
                shape: shape.to_vec(),
                values: host_memory::filled(String::new(), count)?,
            }))
        }
        other => {
            let tensor = other.tensor()?;
            Ok(like(other, Tensor::zeros(shape, tensor.dtype(), tensor.device())?))
        }
    }
}

/// A tensor labelled with the element type of `value`.
fn like(value: &Value, tensor: Tensor) -> Value {
    match value.element() {
        Some(element) => Value::of_element(tensor, element),
        None => Value::Tensor(tensor),
    }
}
