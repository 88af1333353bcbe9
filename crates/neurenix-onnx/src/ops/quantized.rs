//! Quantized operators and conversions.

mod product;

use phynexus::{DType, Scalar, Tensor};

use super::{
    Rows,
    elementwise::cast::{Conversion, converted_tensor},
};
use crate::{Element, Error, Result, Value, graph::Call};

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
    let x = call.tensor(0)?;
    let scale = parameter(call, &x, 1)?;
    let own = if call.has(2) { call.value(2)?.element() } else { None };
    let target = own.or(element(call, "output_dtype")?).unwrap_or(Element::Uint8);
    let precision = match element(call, "precision")? {
        Some(given) => given.dtype().filter(|dtype| dtype.is_float()),
        None => [scale.dtype(), x.dtype()].into_iter().find(|dtype| dtype.is_float()),
    };
    let precision = precision.unwrap_or(DType::F32);
    let quotient = x.to_dtype(precision)?.div(&scale.to_dtype(precision)?)?;
    let zero_point = if call.has(2) { Some(parameter(call, &x, 2)?) } else { None };
    Ok(vec![saturated(&quotient, zero_point.as_ref(), target, call.int_or("saturate", 1)? != 0)?])
}

/// A quotient of numbers and scale as elements of a quantized type.
fn saturated(
    quotient: &Tensor,
    zero_point: Option<&Tensor>,
    target: Element,
    saturates: bool,
) -> Result<Value> {
    // In 32 bits, what is within the range of the target is exact.
    let wide = quotient.to_dtype(quotient.dtype().compute())?;
    let moved = |x: Tensor| match zero_point {
        Some(zero_point) => x.add(&zero_point.to_dtype(x.dtype())?),
        None => Ok(x),
    };
    if let Some((least, greatest)) = range(target) {
        let whole = moved(wide.round()?)?.clamp(Some(Scalar::Float(least)), Some(Scalar::Float(greatest)))?;
        return converted_tensor(&whole, target, Conversion::default());
    }
    let moved = if target == Element::Float4E2M1 { moved(wide)? } else { wide };
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

fn dequantize(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let scale = parameter(call, &x, 1)?;
    let own = call.value(1)?.element().unwrap_or(Element::Float);
    let target = element(call, "output_dtype")?.unwrap_or(own);
    let wide = if target == Element::Double { DType::F64 } else { DType::F32 };
    let mut numbers = x.to_dtype(wide)?;
    if call.has(2) {
        numbers = numbers.sub(&parameter(call, &x, 2)?.to_dtype(wide)?)?;
    }
    let product = numbers.mul(&scale.to_dtype(wide)?)?;
    Ok(vec![converted_tensor(&product, target, Conversion::default())?])
}

/// A scale or a zero point, in a shape that broadcasts to that of `x`.
fn parameter(call: &Call<'_>, x: &Tensor, input: usize) -> Result<Tensor> {
    let given = call.tensor(input)?;
    if given.len() == 1 && given.shape().len() <= 1 {
        return Ok(given.reshape(&[])?);
    }
    let rank = x.shape().len();
    let axis = match (call.int("axis")?, rank) {
        (None, 1) => 0,
        (axis, _) => call.axis(axis.unwrap_or(1), rank)?,
    };
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
    if given.shape().len() != rank || given.shape()[axis] != extent.div_ceil(block) {
        return Err(wrong());
    }
    let repeated = given.repeat_interleave(block.min(extent.max(1)), axis as i64)?;
    Ok(repeated.narrow(axis as i64, 0, extent)?)
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
    let zero_point = saturated(&least.neg()?.div(&scale)?, None, Element::Uint8, true)?;
    let y = saturated(&x.div(&scale)?, Some(zero_point.tensor()?), Element::Uint8, true)?;
    Ok(vec![y, scale.into(), zero_point])
}
