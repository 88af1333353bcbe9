//! Operators that move elements.

pub(super) mod arrangement;
mod columns;
mod padding;

use phynexus::{DType, Device, Tensor, shape::MAX_RANK};

use super::Rows;
use crate::{Error, Result, Text, Value, graph::Call};

pub(super) const ROWS: Rows = &[
    ("CenterCropPad", padding::center_crop_pad),
    ("Col2Im", columns::col2im),
    ("Concat", concat),
    ("DepthToSpace", arrangement::depth_to_space),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Pad", padding::pad),
    ("Reshape", reshape),
    ("ReverseSequence", arrangement::reverse_sequence),
    ("Shape", shape),
    ("Size", size),
    ("Slice", slice),
    ("SpaceToDepth", arrangement::space_to_depth),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Tile", arrangement::tile),
    ("Transpose", transpose),
    ("Trilu", arrangement::trilu),
    ("Unsqueeze", unsqueeze),
];

/// Moves elements of tensors of one element type, which may be strings: `movement` gets the tensors on the device and
/// makes the results from their elements. In place of strings it gets their numbers.
pub(super) fn moved(
    device: Device,
    values: &[&Value],
    movement: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Value>> {
    let element = values.first().and_then(|value| value.element());
    if values.iter().any(|value| value.element() != element) {
        return Err(Error::invalid("the inputs must have the same element type"));
    }
    let Some(Ok(_)) = values.first().map(|value| value.text()) else {
        let tensors =
            values.iter().map(|value| Ok(value.tensor()?.to_device(device)?)).collect::<Result<Vec<_>>>()?;
        let labelled = |result| match element {
            Some(element) => Value::of_element(result, element),
            None => Value::Tensor(result),
        };
        return Ok(movement(&tensors)?.into_iter().map(labelled).collect());
    };
    let texts = values.iter().map(|value| value.text()).collect::<Result<Vec<_>>>()?;
    let mut first = 0;
    let numbers = texts.iter().map(|text| {
        let range = Tensor::arange(first, first + text.values.len() as i64, 1, DType::I64, device)?;
        first += text.values.len() as i64;
        Ok(range.reshape(&text.shape)?)
    });
    let results = movement(&numbers.collect::<Result<Vec<_>>>()?)?;
    let strings: Vec<&String> = texts.iter().flat_map(|text| &text.values).collect();
    let text = |result: Tensor| {
        let numbers = result.to_vec::<i64>()?;
        let string =
            |&number: &i64| usize::try_from(number).ok().and_then(|at| strings.get(at)).copied().cloned();
        let values = numbers.iter().map(string).collect::<Option<_>>();
        let values = values.ok_or_else(|| Error::invalid("strings can be moved, but not computed with"))?;
        Ok(Value::Text(Text { shape: result.shape().to_vec(), values }))
    };
    results.into_iter().map(text).collect()
}

/// [`moved`] for the first input of a node, and one result.
pub(super) fn moved_one(
    call: &Call<'_>,
    movement: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Vec<Value>> {
    moved(call.device, &[call.value(0)?], |tensors| match tensors {
        [tensor] => Ok(vec![movement(tensor)?]),
        _ => Ok(Vec::new()),
    })
}

/// Integers that are an attribute before opset `since`, an input from then on; if they are given.
pub(super) fn integers_since(
    call: &Call<'_>,
    since: i64,
    name: &str,
    input: usize,
) -> Result<Option<Vec<i64>>> {
    if call.opset() < since { call.ints(name) } else { call.optional_integers(input) }
}

/// A size from a file.
pub(super) fn extent(size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| Error::invalid(format!("a size must not be negative, got {size}")))
}

/// Axes as indices from 0, each named once.
pub(super) fn distinct_axes(call: &Call<'_>, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    if rank > MAX_RANK {
        return Err(Error::invalid(format!(
            "a tensor cannot have {rank} dimensions, but at most {MAX_RANK}"
        )));
    }
    let places = axes.iter().take(rank + 1).map(|&axis| call.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
    match places
        .iter()
        .enumerate()
        .find(|(at, place)| places.iter().take(*at).any(|earlier| earlier == *place))
    {
        Some((_, axis)) => Err(Error::invalid(format!("axis {axis} is named twice"))),
        None => Ok(places),
    }
}

fn concat(call: &Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int("axis")?.ok_or_else(|| Error::invalid("attribute \"axis\" is missing"))?;
    let values = (0..call.count()).map(|input| call.value(input)).collect::<Result<Vec<_>>>()?;
    moved(call.device, &values, |parts| Ok(vec![Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis)?]))
}

fn expand(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.integers(1)?.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
    moved_one(call, |x| {
        let rank = given.len().max(x.shape().len());
        let at = |shape: &[usize], axis: usize| {
            (axis + shape.len()).checked_sub(rank).and_then(|place| shape.get(place).copied()).unwrap_or(1)
        };
        // A size 1 of the given shape keeps that of the tensor.
        let size = |axis: usize| if at(&given, axis) == 1 { at(x.shape(), axis) } else { at(&given, axis) };
        Ok(x.expand(&(0..rank).map(size).collect::<Vec<_>>())?)
    })
}

fn flatten(call: &Call<'_>) -> Result<Vec<Value>> {
    let axis = call.int_or("axis", 1)?;
    moved_one(call, |x| {
        let rank = x.shape().len();
        let axis = if axis == rank as i64 { rank } else { call.axis(axis, rank)? };
        let (before, after) = x.shape().split_at(axis);
        Ok(x.reshape(&[before.iter().product(), after.iter().product()])?)
    })
}

fn reshape(call: &Call<'_>) -> Result<Vec<Value>> {
    let mut sizes = call.integers(1)?;
    if call.int_or("allowzero", 0)? == 0 {
        let own = call.value(0)?.shape()?;
        for (axis, size) in sizes.iter_mut().enumerate().filter(|(_, size)| **size == 0) {
            let missing = || {
                Error::invalid(format!("the size 0 of axis {axis} has no axis of the input to take it from"))
            };
            *size = *own.get(axis).ok_or_else(missing)? as i64;
        }
    }
    moved_one(call, |x| Ok(x.reshape_infer(&sizes)?))
}

fn shape(call: &Call<'_>) -> Result<Vec<Value>> {
    let sizes: Vec<i64> = call.value(0)?.shape()?.iter().map(|&size| size as i64).collect();
    let rank = sizes.len() as i64;
    let place =
        |bound: i64| if bound < 0 { bound.saturating_add(rank) } else { bound }.clamp(0, rank) as usize;
    let (start, end) = (place(call.int_or("start", 0)?), place(call.int_or("end", rank)?));
    Ok(vec![call.shape_vector(sizes.get(start..end).unwrap_or_default())?])
}

fn size(call: &Call<'_>) -> Result<Vec<Value>> {
    let count: usize = call.value(0)?.shape()?.iter().product();
    Ok(vec![call.shape_number(count as i64)?])
}

fn slice(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = |name: &str, input: usize| integers_since(call, 10, name, input);
    let required = |name: &str, input: usize| {
        given(name, input)?.ok_or_else(|| Error::invalid(format!("the {name} of the slice are missing")))
    };
    let (starts, ends) = (required("starts", 1)?, required("ends", 2)?);
    let axes = given("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = given("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Error::invalid("starts, ends, axes and steps of a slice must be as many"));
    }
    moved_one(call, |x| {
        let axes = distinct_axes(call, &axes, x.shape().len())?;
        let mut sliced = x.clone();
        for (((&axis, &start), &end), &step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
            let size = x.shape().get(axis).copied().unwrap_or(0);
            // Unlike Python, ONNX begins at the first element if the start is before it.
            let start = if start < 0 { start.saturating_add(size as i64).max(0) } else { start };
            sliced = sliced.slice(axis as i64, Some(start), Some(end), step)?;
        }
        Ok(sliced)
    })
}

fn split(call: &Call<'_>) -> Result<Vec<Value>> {
    let value = call.value(0)?;
    let axis = call.axis(call.int_or("axis", 0)?, value.shape()?.len())?;
    let size = value.shape()?.get(axis).copied().unwrap_or(0);
    let count = call.node.outputs.len();
    let sizes = match integers_since(call, 13, "split", 1)? {
        Some(sizes) => sizes.into_iter().map(extent).collect::<Result<Vec<_>>>()?,
        None => {
            if call.int("num_outputs")?.is_some_and(|given| given != count as i64) {
                return Err(Error::invalid(format!(
                    "attribute \"num_outputs\" must be {count}, as there are outputs"
                )));
            }
            if call.opset() < 18 && !size.is_multiple_of(count.max(1)) {
                return Err(Error::invalid(format!(
                    "{size} elements cannot be split into {count} equal parts"
                )));
            }
            let part = size.div_ceil(count.max(1));
            (0..count).map(|at| part.min(size.saturating_sub(at * part))).collect()
        }
    };
    moved(call.device, &[value], |tensors| match tensors {
        [x] => Ok(x.split_sizes(&sizes, axis as i64)?),
        _ => Ok(Vec::new()),
    })
}

fn squeeze(call: &Call<'_>) -> Result<Vec<Value>> {
    let axes = integers_since(call, 13, "axes", 1)?;
    moved_one(call, |x| {
        let Some(axes) = axes else { return Ok(x.squeeze_all()?) };
        let axes = distinct_axes(call, &axes, x.shape().len())?;
        let mut rest = Vec::new();
        for (axis, &size) in x.shape().iter().enumerate() {
            match axes.contains(&axis) {
                true if size != 1 => {
                    return Err(Error::invalid(format!("axis {axis} to squeeze has size {size}, not 1")));
                }
                true => (),
                false => rest.push(size),
            }
        }
        Ok(x.reshape(&rest)?)
    })
}

fn transpose(call: &Call<'_>) -> Result<Vec<Value>> {
    let order = call.ints("perm")?;
    moved_one(call, |x| {
        let rank = x.shape().len();
        let order = order.unwrap_or_else(|| (0..rank as i64).rev().collect());
        Ok(x.permute(&distinct_axes(call, &order, rank)?)?)
    })
}

fn unsqueeze(call: &Call<'_>) -> Result<Vec<Value>> {
    let axes = integers_since(call, 13, "axes", 1)?.ok_or_else(|| Error::invalid("the axes are missing"))?;
    moved_one(call, |x| {
        let rank = x.shape().len() + axes.len();
        let axes = distinct_axes(call, &axes, rank)?;
        let mut sizes = x.shape().iter();
        let size = |axis: usize| if axes.contains(&axis) { Some(1) } else { sizes.next().copied() };
        Ok(x.reshape(&(0..rank).filter_map(size).collect::<Vec<_>>())?)
    })
}
