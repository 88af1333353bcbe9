//! Random numbers.

use phynexus::{DType, Tensor, tensor::Generator};

use super::{
    Rows,
    elementwise::{
        cast::{Conversion, converted_tensor},
        constant::checked_shape,
    },
};
use crate::{
    Element, Error, Result, Value,
    graph::{Attribute, Call},
};

pub(super) const ROWS: Rows = &[
    ("Bernoulli", bernoulli),
    ("Dropout", dropout),
    ("Multinomial", multinomial),
    ("RandomNormal", |call| normal(call, &attribute_shape(call)?, Element::Float)),
    ("RandomNormalLike", |call| normal(call, call.value(0)?.shape()?, own_element(call))),
    ("RandomUniform", |call| uniform(call, &attribute_shape(call)?, Element::Float)),
    ("RandomUniformLike", |call| uniform(call, call.value(0)?.shape()?, own_element(call))),
];

fn attribute_shape(call: &Call<'_>) -> Result<Vec<usize>> {
    let extents = call.ints("shape")?;
    checked_shape(&extents.ok_or_else(|| Error::invalid("the attribute \"shape\" is missing"))?)
}

fn own_element(call: &Call<'_>) -> Element {
    call.value(0).ok().and_then(Value::element).unwrap_or(Element::Float)
}

fn uniform(call: &Call<'_>, shape: &[usize], element: Element) -> Result<Vec<Value>> {
    let (low, high) = (call.float_or("low", 0.0)?, call.float_or("high", 1.0)?);
    drawn(call, element, low, high - low, |generator, dtype| generator.rand(shape, dtype, call.device))
}

fn normal(call: &Call<'_>, shape: &[usize], element: Element) -> Result<Vec<Value>> {
    let (mean, scale) = (call.float_or("mean", 0.0)?, call.float_or("scale", 1.0)?);
    drawn(call, element, mean, scale, |generator, dtype| generator.randn(shape, dtype, call.device))
}

/// `offset + factor * draw`, as the type of the attribute `dtype`.
fn drawn(
    call: &Call<'_>,
    default: Element,
    offset: f64,
    factor: f64,
    draw: impl FnOnce(&Generator, DType) -> phynexus::Result<Tensor>,
) -> Result<Vec<Value>> {
    let element = call.element("dtype")?.unwrap_or(default);
    let wide = if element == Element::Double { DType::F64 } else { DType::F32 };
    let draws = call.with_generator(|generator| Ok(draw(generator, wide)?))?;
    let numbers = draws.mul_scalar(factor)?.add_scalar(offset)?;
    Ok(vec![converted_tensor(&numbers, element, Conversion::default())?])
}

fn bernoulli(call: &Call<'_>) -> Result<Vec<Value>> {
    let probabilities = call.tensor(0)?;
    let element = call.element("dtype")?.unwrap_or(own_element(call));
    let wide = probabilities.dtype().compute();
    let draw = |generator: &Generator| Ok(generator.rand(probabilities.shape(), wide, call.device)?);
    let ones = call.with_generator(draw)?.lt(&probabilities.to_dtype(wide)?)?;
    Ok(vec![converted_tensor(&ones, element, Conversion::default())?])
}

fn multinomial(call: &Call<'_>) -> Result<Vec<Value>> {
    let logarithms = call.tensor(0)?;
    let &[batch, _] = logarithms.shape() else {
        return Err(Error::invalid(format!(
            "the input must be a matrix, it has the shape {:?}",
            logarithms.shape()
        )));
    };
    let size = call.int_or("sample_size", 1)?;
    let shape = checked_shape(&[i64::try_from(batch).unwrap_or(i64::MAX), size])?;
    let element = call.element("dtype")?.unwrap_or(Element::Int32);
    let weights = logarithms.to_dtype(logarithms.dtype().compute())?.softmax(1)?;
    let draw = |generator: &Generator| Ok(generator.multinomial(&weights, shape[1], true)?);
    Ok(vec![converted_tensor(&call.with_generator(draw)?, element, Conversion::default())?])
}

fn dropout(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    // Before opset 12, the operator dropped nothing, and before opset 10, the mask had the dtype of the data.
    let is_training = call.opset() >= 12 && call.has(2) && call.number(2)? != 0.0;
    let ratio = match (is_training, call.has(1)) {
        (false, _) => 0.0,
        (true, true) => call.number(1)?,
        (true, false) => 0.5,
    };
    if ratio == 0.0 {
        let dtype = if call.opset() < 10 { x.dtype() } else { DType::Bool };
        let mask = Tensor::ones(x.shape(), dtype, call.device)?;
        return Ok(vec![x.into(), mask.into()]);
    }
    if !(0.0..1.0).contains(&ratio) {
        return Err(Error::invalid(format!("ratio must be from 0 to below 1, it is {ratio}")));
    }
    let draw = |generator: &Generator| generator.rand(x.shape(), DType::F32, call.device);
    let draws = match call.node.attributes.get("seed") {
        Some(Attribute::Int(seed)) => draw(&Generator::new(*seed as u64))?,
        _ => draw(call.environment.generator)?,
    };
    let mask = draws.ge_scalar(ratio)?;
    let kept = x.mul_scalar(1.0 / (1.0 - ratio))?;
    let output = mask.where_(&kept, &x.zeros_like()?)?;
    Ok(vec![output.into(), mask.into()])
}
