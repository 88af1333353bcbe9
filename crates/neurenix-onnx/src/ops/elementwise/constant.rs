//! Tensors that attributes or shapes make.

use phynexus::{DType, Device, Scalar, Tensor};

use crate::{
    Element, Error, Result, Text, Value,
    data::is_for_shapes,
    graph::{Call, one},
    ops::counted,
    value::{floats, integers},
};

/// The greatest number of elements that a node may make of numbers alone.
const MOST: usize = 1 << 40;

/// On the device of the network, unless it may be a shape.
fn placed(call: &Call<'_>, value: Value) -> Result<Vec<Value>> {
    let device = if is_for_shapes(&value) { Device::find("cpu")? } else { call.environment.device };
    Ok(vec![value.to_device(device)?])
}

pub(super) fn constant(call: &Call<'_>) -> Result<Vec<Value>> {
    for name in ["value", "sparse_value"] {
        if let Some(value) = call.tensor_attribute(name)? {
            return placed(call, value);
        }
    }
    if let Some(number) = call.int("value_int")? {
        return Ok(vec![call.shape_number(number)?]);
    }
    if let Some(numbers) = call.ints("value_ints")? {
        return Ok(vec![call.shape_vector(&numbers)?]);
    }
    if let Some(number) = call.float("value_float")? {
        return one(Tensor::scalar(number as f32, call.device)?);
    }
    if let Some(numbers) = call.float_list("value_floats")? {
        return one(Tensor::from_slice(&numbers, &[numbers.len()], call.device)?);
    }
    if call.has_attribute("value_string") {
        let values = vec![call.string_or("value_string", "")?.to_owned()];
        return Ok(vec![Value::Text(Text { shape: Vec::new(), values })]);
    }
    if let Some(values) = call.strings("value_strings")? {
        return Ok(vec![Value::Text(Text { shape: vec![values.len()], values })]);
    }
    Err(Error::invalid(
        "a constant needs one of the attributes value, sparse_value, value_int, value_ints, ...",
    ))
}

/// The shape with these extents, which must not be negative nor huge.
pub(in crate::ops) fn checked_shape(extents: &[i64]) -> Result<Vec<usize>> {
    let shape = extents.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| Error::invalid(format!("a shape must not be negative: {extents:?}")))?;
    let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    match count {
        Some(count) if count <= MOST => Ok(shape),
        _ => Err(Error::invalid(format!("a tensor of the shape {shape:?} is too large"))),
    }
}

pub(super) fn constant_of_shape(call: &Call<'_>) -> Result<Vec<Value>> {
    let shape = checked_shape(&call.integers(0)?)?;
    let Some(value) = call.tensor_attribute("value")? else {
        return one(Tensor::zeros(&shape, DType::F32, call.environment.device)?);
    };
    let tensor = value.tensor()?;
    let element = value.element().unwrap_or(Element::Float);
    if tensor.len() != 1 {
        return Err(Error::invalid(format!(
            "the attribute \"value\" has {} elements instead of one",
            tensor.len()
        )));
    }
    let numbers: Vec<Scalar> = match tensor.dtype() {
        dtype if dtype.is_float() => floats(tensor)?.into_iter().map(Scalar::Float).collect(),
        DType::U64 => tensor.to_vec::<u64>()?.into_iter().map(Scalar::UInt).collect(),
        _ => integers(tensor)?.into_iter().map(Scalar::Int).collect(),
    };
    let number = numbers.first().copied().unwrap_or(Scalar::Int(0));
    let full = Tensor::full(&shape, number, tensor.dtype(), call.environment.device)?;
    placed(call, Value::of_element(full, element))
}

pub(super) fn range(call: &Call<'_>) -> Result<Vec<Value>> {
    let start = call.tensor(0)?.reshape(&[])?;
    let delta = call.tensor(2)?.reshape(&[])?;
    let dtype = start.dtype();
    let count = if dtype.is_float() {
        ((call.number(1)? - call.number(0)?) / call.number(2)?).ceil()
    } else {
        let number = |input: usize| match call.integers(input)?[..] {
            [number] => Ok(i128::from(number)),
            _ => Err(Error::invalid(format!("input {input} must be one number"))),
        };
        let (distance, delta) = (number(1)? - number(0)?, number(2)?);
        if delta == 0 {
            return Err(Error::invalid("delta must not be 0"));
        }
        let (distance, delta) = if delta < 0 { (-distance, -delta) } else { (distance, delta) };
        (distance + delta - 1).div_euclid(delta) as f64
    };
    if count.is_nan() || count > MOST as f64 {
        return Err(Error::invalid(format!("start, limit and delta make {count} elements")));
    }
    let wide = if dtype.is_float() { dtype.compute() } else { DType::I64 };
    let places = counted(count.max(0.0) as usize, call.device)?.to_dtype(wide)?;
    let values = places.mul(&delta.to_dtype(wide)?)?.add(&start.to_dtype(wide)?)?;
    one(values.to_dtype(dtype)?)
}

pub(super) fn eye_like(call: &Call<'_>) -> Result<Vec<Value>> {
    let like = call.tensor(0)?;
    let &[rows, columns] = like.shape() else {
        return Err(Error::invalid(format!(
            "the input must be a matrix, it has the shape {:?}",
            like.shape()
        )));
    };
    let element = call.element("dtype")?.or_else(|| call.value(0).ok()?.element()).unwrap_or(Element::Float);
    let dtype = element.dtype().ok_or_else(|| Error::unsupported(format!("matrices of {element:?}")))?;
    let row = counted(rows, call.device)?.reshape(&[rows, 1])?;
    let column = counted(columns, call.device)?;
    let ones = column.sub(&row)?.eq_scalar(call.int_or("k", 0)?)?;
    one(Value::of_element(ones.to_dtype(dtype)?, element))
}
