//! Operators that only move or choose elements: they do so with the integers that floats stand for.

use std::sync::Arc;

use phynexus::{DType, Tensor};

use super::{is_equal, zero_point::stored_floats};
use crate::{Dequantized, Error, Quantization, Quantized, Result, Value, graph::Call, ops::plain};

/// Operators whose results have elements of input 0 and no others. `MaxPool` chooses the greatest integer, which stands
/// for the greatest float if the scale is positive.
const MOVES: &[&str] = &[
    "Compress",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "MaxPool",
    "Pad",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Whether the operator of this name only moves elements.
pub(in crate::ops) fn moves(operator: &str) -> bool {
    MOVES.contains(&operator)
}

/// Computes the results of a node that moves elements, with integers in place of floats.
pub(in crate::ops) fn compute(call: &Call<'_>) -> Result<Vec<Value>> {
    let name = &call.node.operator;
    let operator = plain(name).ok_or_else(|| Error::unsupported(name.as_str()))?;
    let mut call = Call { inputs: call.inputs.clone(), ..*call };
    // All inputs of a concatenation are moved.
    let moved = if call.node.operator == "Concat" { call.count() } else { 1 };
    let with_gradient = call.inputs.iter().take(moved).flatten().find_map(|input| match input {
        Value::Quantized(own) => Some(Arc::clone(own)),
        _ => None,
    });
    if let Some(like) = with_gradient {
        let results = operator(&call)?;
        for at in 0..call.inputs.len() {
            // `Pad` has the number that it pads with.
            if at < moved || at == 2 && call.node.operator == "Pad" {
                call.inputs[at] = call.inputs[at].as_ref().map(|input| steps(input, &like)).transpose()?;
            }
        }
        let moved = operator(&call)?;
        return results
            .into_iter()
            .zip(moved)
            .map(|(result, steps)| quantized(result, &steps, &like))
            .collect();
    }
    match call.inputs.first().cloned().flatten() {
        Some(Value::Dequantized(first))
            if are_alike(&call, &first, moved)?
                && keeps_order(&call, &first)?
                && pads_with_zero(&mut call, &first)? =>
        {
            for input in call.inputs.iter_mut().take(moved) {
                if let Some(Value::Dequantized(own)) = input.clone() {
                    *input = Some(Value::of_element(own.integers.clone(), own.element));
                }
            }
            let results = operator(&call)?;
            results.into_iter().map(|result| dequantized(result, &first)).collect()
        }
        _ => operator(&call),
    }
}

/// Whether the first inputs stand for floats with the same scale and zero point, of one number each, as the first one
/// of all.
fn are_alike(call: &Call<'_>, first: &Dequantized, count: usize) -> Result<bool> {
    for input in call.inputs.iter().take(count) {
        let Some(Value::Dequantized(own)) = input else { return Ok(false) };
        let is_alike = own.element == first.element
            && own.tensor.dtype() == first.tensor.dtype()
            && own.quantization.axis.is_none()
            && is_equal(&own.quantization, &first.quantization)?;
        if !is_alike {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the greatest integer stands for the greatest float, if the operator asks for it.
fn keeps_order(call: &Call<'_>, data: &Dequantized) -> Result<bool> {
    let scales = data.quantization.scales.as_ref();
    let is_positive = scales.is_some_and(|scales| scales.iter().all(|&scale| scale > 0.0));
    Ok(call.node.operator != "MaxPool" || is_positive)
}

/// What the integers of an input were rounded from, in the dtype of those of another one.
fn steps(input: &Value, like: &Quantized) -> Result<Value> {
    let steps = match input {
        Value::Quantized(own) => &own.steps,
        _ => input.tensor()?,
    };
    Ok(Value::Tensor(steps.to_dtype(like.steps.dtype())?))
}

/// Lets `Pad` pad with the integer that stands for 0. False if it pads with other floats.
fn pads_with_zero(call: &mut Call<'_>, data: &Dequantized) -> Result<bool> {
    if call.node.operator != "Pad" || call.string_or("mode", "constant")? != "constant" {
        return Ok(true);
    }
    let is_zero = match call.has(2) {
        true => stored_floats(call, 2)?.is_some_and(|value| value == [0.0]),
        false => call.float_or("value", 0.0)? == 0.0,
    };
    if !is_zero {
        return Ok(false);
    }
    let Quantization { zero_point, .. } = &data.quantization;
    let value = match zero_point {
        Some(zero_point) => zero_point.clone(),
        None => Tensor::zeros(&[], data.integers.dtype(), call.device)?,
    };
    if call.inputs.len() < 3 {
        call.inputs.resize(3, None);
    }
    call.inputs[2] = Some(Value::of_element(value, data.element));
    Ok(true)
}

/// A result of moving integers as the floats that they stand for. Positions stay as they are.
fn dequantized(result: Value, like: &Dequantized) -> Result<Value> {
    let Ok(integers) = result.tensor() else { return Ok(result) };
    if integers.dtype() != like.integers.dtype() {
        return Ok(result);
    }
    let Quantization { scale, zero_point, zero, .. } = &like.quantization;
    let number =
        |parameter: &Tensor| parameter.to_device(integers.device())?.to_dtype(DType::F32)?.reshape(&[]);
    let numbers = integers.to_dtype(DType::F32)?;
    let numbers = match (zero, zero_point) {
        (Some(0), _) | (None, None) => numbers,
        (Some(zero), _) => numbers.sub_scalar(*zero)?,
        (None, Some(zero_point)) => numbers.sub(&number(zero_point)?)?,
    };
    let tensor = numbers.mul(&number(scale)?)?.to_dtype(like.tensor.dtype())?;
    let (integers, is_constant) = (integers.clone(), false);
    Ok(Value::Dequantized(Arc::new(Dequantized { tensor, integers, is_constant, ..like.clone() })))
}

/// A result of moving integers that keep their gradients. Positions stay as they are.
fn quantized(result: Value, steps: &Value, like: &Quantized) -> Result<Value> {
    let (Ok(tensor), Ok(steps)) = (result.tensor(), steps.tensor()) else { return Ok(result) };
    if tensor.dtype() != like.tensor.dtype() {
        return Ok(result);
    }
    let (tensor, steps) = (tensor.clone(), steps.clone());
    Ok(Value::Quantized(Arc::new(Quantized { tensor, steps, element: like.element })))
}
