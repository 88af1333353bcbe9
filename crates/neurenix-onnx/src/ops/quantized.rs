//! Quantized operators and conversions.
//!
//! `DequantizeLinear` gives floats that remember their integers ([`Dequantized`]). Products read the integers
//! (`product`), and operators that only move elements move the integers (`passing`). Where gradients flow,
//! `QuantizeLinear` gives integers that remember their floats ([`Quantized`]) instead.

pub(super) mod factor;
pub(crate) mod passing;
pub(super) mod product;
mod zero_point;

use std::sync::Arc;

use phynexus::{DType, Scalar, Tensor};

use super::{
    Rows,
    elementwise::cast::{Conversion, converted_tensor},
};
use crate::{Dequantized, Element, Error, Quantization, Quantized, Result, Value, graph::Call};
use zero_point::{ZeroPoint, stored_floats, stored_number};

pub(super) const ROWS: Rows = &[
    ("ConvInteger", product::conv_integer),
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic_quantize),
    ("MatMulInteger", product::matmul_integer),
    ("QLinearConv", product::quantized_conv),
    ("QLinearMatMul", product::quantized_matmul),
    ("QuantizeLinear", quantize),
];

/// An element type of an attribute whose default, 0, is none.
fn element(call: &Call<'_>, name: &str) -> Result<Option<Element>> {
    if call.int_or(name, 0)? == 0 { Ok(None) } else { call.element(name) }
}

fn quantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let own = if call.has(2) { call.value(2)?.element() } else { None };
    let target = own.or(element(call, "output_dtype")?).unwrap_or(Element::Uint8);
    let x = call.tensor(0)?;
    let zero_point = zero_point(call, &x)?;
    if let Value::Dequantized(dequantized) = call.value(0)?
        && dequantized.element == target
        && let Some(quantization) = quantization(call, x.rank(), &zero_point)?
        && is_equal(&dequantized.quantization, &quantization)?
        && is_reversible(dequantized)?
    {
        return Ok(vec![Value::of_element(dequantized.integers.clone(), target)]);
    }
    let scale = parameter(call, &x, 1)?;
    let precision = match element(call, "precision")? {
        Some(given) => given.dtype().filter(|dtype| dtype.is_float()),
        None => [scale.dtype(), x.dtype()].into_iter().find(|dtype| dtype.is_float()),
    };
    let precision = precision.unwrap_or(DType::F32);
    let quotient = x.to_dtype(precision)?.div(&scale.to_dtype(precision)?)?;
    let saturates = call.int_or("saturate", 1)? != 0;
    let Some((least, greatest)) = limits(target).filter(|_| quotient.requires_grad()) else {
        return Ok(vec![saturated(&quotient, &zero_point, target, saturates)?]);
    };
    // The gradient passes where rounding alone gives a number of the type, and is 0 where it is limited.
    let quotient_wide = quotient.to_dtype(quotient.dtype().compute())?;
    let wide = zero_point.added_to(&quotient_wide)?;
    let passes = match half_step(target) {
        None => {
            let whole = zero_point.added_to(&quotient_wide.detach()?.round()?)?;
            whole.ge_scalar(least)?.logical_and(&whole.le_scalar(greatest)?)?
        }
        Some(half) => wide.detach()?.abs()?.lt_scalar(greatest + half)?,
    };
    let limited = wide.clamp(Some(Scalar::Float(least)), Some(Scalar::Float(greatest)))?;
    let steps = passes.where_(&wide, &limited)?;
    let rounded = saturated(&quotient.detach()?, &zero_point, target, saturates)?;
    let tensor = rounded.tensor()?.clone();
    Ok(vec![Value::Quantized(Arc::new(Quantized { tensor, element: target, steps }))])
}

/// A quotient of numbers and scale as elements of a quantized type.
fn saturated(quotient: &Tensor, zero_point: &ZeroPoint, target: Element, saturates: bool) -> Result<Value> {
    // In 32 bits, what is within the range of the target is exact.
    let wide = quotient.to_dtype(quotient.dtype().compute())?;
    if let Some((least, greatest)) = range(target) {
        let whole = zero_point.added_to(&wide.round()?)?;
        let whole = whole.clamp(Some(Scalar::Float(least)), Some(Scalar::Float(greatest)))?;
        return converted_tensor(&whole, target, Conversion::default());
    }
    let moved = if target == Element::Float4E2M1 { zero_point.added_to(&wide)? } else { wide };
    converted_tensor(&moved, target, Conversion { saturates, ..Conversion::default() })
}

/// The least and the greatest number of an integer type of at most 16 bits.
fn range(element: Element) -> Option<(f64, f64)> {
    let size = 1i64 << element.bits().min(16);
    let (least, greatest) = match element {
        Element::Uint8 | Element::Uint16 | Element::Uint4 | Element::Uint2 => (0, size - 1),
        Element::Int8 | Element::Int16 | Element::Int4 | Element::Int2 => (-size / 2, size / 2 - 1),
        _ => return None,
    };
    Some((least as f64, greatest as f64))
}

/// The least and the greatest number of a quantized type.
fn limits(element: Element) -> Option<(f64, f64)> {
    let greatest = match element {
        Element::Float8E4M3FN => 448.0,
        Element::Float8E4M3FNUZ => 240.0,
        Element::Float8E5M2 | Element::Float8E5M2FNUZ => 57344.0,
        Element::Float4E2M1 => 6.0,
        _ => return range(element),
    };
    Some((-greatest, greatest))
}

/// Half the distance of the greatest float of a quantized type from the next one, if the type had it; `None` for
/// integers.
fn half_step(element: Element) -> Option<f64> {
    match element {
        Element::Float8E4M3FN => Some(16.0),
        Element::Float8E4M3FNUZ => Some(8.0),
        Element::Float8E5M2 | Element::Float8E5M2FNUZ => Some(4096.0),
        Element::Float4E2M1 => Some(1.0),
        _ => None,
    }
}

fn dequantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let value = call.value(0)?;
    let x = call.tensor(0)?;
    let scale = parameter(call, &x, 1)?;
    let own = call.value(1)?.element().unwrap_or(Element::Float);
    let target = element(call, "output_dtype")?.unwrap_or(own);
    let wide = if target == Element::Double { DType::F64 } else { DType::F32 };
    let zero_point = zero_point(call, &x)?;
    let numbers = zero_point.subtracted_from(&x.to_dtype(wide)?)?;
    let numbers = match value {
        // The value is that of the integers. The gradient is that of the numbers before they were rounded (Bengio et
        // al. 2013, arXiv 1308.3432), and by it, that of the scale is of Esser et al. 2020, arXiv 1902.08153, eq. 3.
        Value::Quantized(quantized) => {
            let steps = quantized.steps.to_device(call.device)?.to_dtype(wide)?;
            let steps = zero_point.subtracted_from(&steps)?;
            steps.add(&numbers.sub(&steps)?.detach()?)?
        }
        _ => numbers,
    };
    let product = numbers.mul(&scale.to_dtype(wide)?)?;
    let result = converted_tensor(&product, target, Conversion::default())?;
    let is_exact = match target {
        Element::Float => true,
        // To quantize again must give the same integers.
        Element::Float16 => x.dtype().size() == 1,
        _ => false,
    };
    match (value.element().filter(|&element| range(element).is_some()), &result) {
        (Some(element), Value::Tensor(tensor)) if is_exact && !tensor.requires_grad() => {
            let Some(quantization) = quantization(call, x.rank(), &zero_point)? else {
                return Ok(vec![result]);
            };
            let tensor = tensor.clone();
            let is_constant = call.is_constant(0);
            let dequantized = Dequantized { tensor, integers: x, element, is_constant, quantization };
            Ok(vec![Value::Dequantized(Arc::new(dequantized))])
        }
        _ => Ok(vec![result]),
    }
}

/// The scale and the zero point of a node, for data with so many dimensions; `None` if they are for blocks.
fn quantization(call: &Call<'_>, rank: usize, zero_point: &ZeroPoint) -> Result<Option<Quantization>> {
    let scale = call.value(1)?.tensor()?.clone();
    let axis = match is_one(&scale) {
        true => None,
        false if call.int_or("block_size", 0)? != 0 => return Ok(None),
        false => Some(parameter_axis(call, rank)?),
    };
    let zero = match zero_point {
        ZeroPoint::Number(zero) => Some(*zero),
        ZeroPoint::Tensor(_) => None,
    };
    let zero_point = if call.has(2) { Some(call.value(2)?.tensor()?.clone()) } else { None };
    if let Some(zeros) = zero_point.as_ref().map(Tensor::len)
        && zeros != 1
        && zeros != scale.len()
    {
        return Err(Error::invalid(format!(
            "input 1, the scale, has {} numbers, and input 2, the zero point, has {zeros}: give both the same shape",
            scale.len()
        )));
    }
    let scales = stored_floats(call, 1)?.map(Arc::from);
    Ok(Some(Quantization { scale, scales, zero_point, zero, axis }))
}

/// Whether two nodes have the same scale and zero point.
fn is_equal(a: &Quantization, b: &Quantization) -> Result<bool> {
    let same_zero_point = match (&a.zero_point, &b.zero_point) {
        _ if a.zero.is_some() && b.zero.is_some() => a.zero == b.zero,
        (Some(a), Some(b)) => a.is_same(b),
        _ => false,
    };
    if a.axis != b.axis || !same_zero_point {
        return Ok(false);
    }
    if a.scale.is_same(&b.scale) {
        return Ok(true);
    }
    Ok(match (&a.scales, &b.scales) {
        (Some(own), Some(other)) => a.scale.dtype() == b.scale.dtype() && own == other,
        _ => false,
    })
}

/// Whether the floats that integers stand for give the same integers again: none is infinite, and each scale has all
/// digits of its dtype. False if the scale cannot be read.
fn is_reversible(dequantized: &Dequantized) -> Result<bool> {
    let Some(scales) = &dequantized.quantization.scales else { return Ok(false) };
    let (least, greatest) = match dequantized.tensor.dtype() {
        // The least normal number and the greatest number of IEEE 754's binary16 and binary32.
        DType::F16 => (2f64.powi(-14), 65504.0),
        _ => (f32::MIN_POSITIVE.into(), f32::MAX.into()),
    };
    let distance = ((1u64 << dequantized.element.bits().min(16)) - 1) as f64;
    Ok(scales.iter().map(|scale| scale.abs()).all(|scale| scale >= least && scale * distance <= greatest))
}

fn is_one(parameter: &Tensor) -> bool {
    parameter.len() == 1 && parameter.rank() <= 1
}

/// The axis along which a scale and a zero point change, of data with so many dimensions.
fn parameter_axis(call: &Call<'_>, rank: usize) -> Result<usize> {
    match (call.int("axis")?, rank) {
        (None, 1) => Ok(0),
        (axis, _) => call.axis(axis.unwrap_or(1), rank),
    }
}

/// A scale or a zero point, in a shape that broadcasts to that of `x`.
fn parameter(call: &Call<'_>, x: &Tensor, input: usize) -> Result<Tensor> {
    let given = call.tensor(input)?;
    if is_one(&given) {
        return Ok(given.reshape(&[])?);
    }
    let rank = x.rank();
    let axis = parameter_axis(call, rank)?;
    let (extent, block) = (x.shape()[axis], call.int_or("block_size", 0)?);
    let wrong = || {
        Error::invalid(format!(
            "input {input} of the shape {:?} does not fit data of the shape {:?}, axis {axis} and block_size {block}",
            given.shape(),
            x.shape()
        ))
    };
    if block == 0 && given.shape() == [extent] {
        let mut shape = vec![1; rank];
        shape[axis] = extent;
        return Ok(given.reshape(&shape)?);
    }
    let block = usize::try_from(block).ok().filter(|&block| block > 0).ok_or_else(wrong)?;
    if given.rank() != rank || given.shape()[axis] != extent.div_ceil(block) {
        return Err(wrong());
    }
    let repeated = given.repeat_interleave(block.min(extent.max(1)), axis as i64)?;
    Ok(repeated.narrow(axis as i64, 0, extent)?)
}

/// The zero point of `QuantizeLinear` or `DequantizeLinear`, for `x`.
fn zero_point(call: &Call<'_>, x: &Tensor) -> Result<ZeroPoint> {
    if !call.has(2) {
        return Ok(ZeroPoint::Number(0));
    }
    let shaped = parameter(call, x, 2)?;
    Ok(stored_number(call, 2)?.map_or(ZeroPoint::Tensor(shaped), ZeroPoint::Number))
}

fn dynamic_quantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let zero = Tensor::zeros(&[], x.dtype(), call.device)?;
    let (least, greatest) = match x.len() {
        0 => (zero.clone(), zero),
        _ => (x.min(&[], false)?.minimum(&zero)?, x.max(&[], false)?.maximum(&zero)?),
    };
    let width = greatest.sub(&least)?;
    let scale = width.eq_scalar(0)?.where_(&width.ones_like()?, &width)?.div_scalar(255)?;
    let none = ZeroPoint::Number(0);
    let zero_point = saturated(&least.neg()?.div(&scale)?, &none, Element::Uint8, true)?;
    let shift = ZeroPoint::Tensor(zero_point.tensor()?.clone());
    let y = saturated(&x.div(&scale)?, &shift, Element::Uint8, true)?;
    Ok(vec![y, scale.into(), zero_point])
}
