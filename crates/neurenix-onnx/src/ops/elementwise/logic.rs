//! Comparisons and choices, also of strings.

use phynexus::{DType, Tensor};

use super::constant::checked_shape;
use crate::{
    Error, Result, Text, Value,
    graph::{Call, one},
};

pub(super) fn equal(call: &Call<'_>) -> Result<Vec<Value>> {
    if let (Value::Text(a), Value::Text(b)) = (call.value(0)?, call.value(1)?) {
        let shape = common_shape(&[&a.shape, &b.shape])?;
        let (a, b) = (stretched(a, &shape), stretched(b, &shape));
        let same: Vec<bool> = a.zip(b).map(|(a, b)| a == b).collect();
        return one(Tensor::from_slice(&same, &shape, call.device)?);
    }
    super::binary(call, Tensor::eq)
}

pub(super) fn where_(call: &Call<'_>) -> Result<Vec<Value>> {
    let condition = call.tensor(0)?;
    if let (Value::Text(then), Value::Text(otherwise)) = (call.value(1)?, call.value(2)?) {
        let shape = common_shape(&[condition.shape(), &then.shape, &otherwise.shape])?;
        let holds = condition.expand(&shape)?.to_vec::<bool>()?;
        let pairs = stretched(then, &shape).zip(stretched(otherwise, &shape));
        let values = holds.into_iter().zip(pairs).map(|(holds, (then, otherwise))| {
            let chosen = if holds { then } else { otherwise };
            chosen.to_owned()
        });
        return Ok(vec![Value::Text(Text { values: values.collect(), shape })]);
    }
    let chosen = condition.where_(&call.tensor(1)?, &call.tensor(2)?)?;
    one(match call.value(1)?.element() {
        Some(element) => Value::of_element(chosen, element),
        None => Value::Tensor(chosen),
    })
}

/// 8-bit floats, of which the engine computes nothing, as `float32`.
fn computable(call: &Call<'_>) -> Result<Tensor> {
    let x = call.tensor(0)?;
    Ok(if x.dtype().float8().is_some() { x.to_dtype(DType::F32)? } else { x })
}

pub(super) fn is_nan(call: &Call<'_>) -> Result<Vec<Value>> {
    one(computable(call)?.isnan()?)
}

pub(super) fn is_inf(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = computable(call)?;
    let wanted = (call.int_or("detect_positive", 1)? != 0, call.int_or("detect_negative", 1)? != 0);
    one(match wanted {
        (true, true) => x.isinf()?,
        (true, false) => x.eq_scalar(f64::INFINITY)?,
        (false, true) => x.eq_scalar(f64::NEG_INFINITY)?,
        (false, false) => Tensor::full(x.shape(), false, DType::Bool, x.device())?,
    })
}

/// The shape to which these are broadcast.
pub(in crate::ops) fn common_shape(shapes: &[&[usize]]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut common = vec![1; rank];
    for shape in shapes {
        for (extent, &own) in common.iter_mut().rev().zip(shape.iter().rev()) {
            match (*extent, own) {
                (1, _) => *extent = own,
                (old, own) if own == 1 || own == old => {}
                _ => return Err(Error::invalid(format!("the shapes {shapes:?} cannot be broadcast"))),
            }
        }
    }
    // Extents that no `i64` holds are too great in any case.
    let extents = common.iter().map(|&extent| i64::try_from(extent).unwrap_or(i64::MAX));
    checked_shape(&extents.collect::<Vec<_>>())
}

/// The strings broadcast to a shape, in row-major order.
pub(in crate::ops) fn stretched<'t>(text: &'t Text, shape: &[usize]) -> impl Iterator<Item = &'t str> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for (stride, &extent) in strides.iter_mut().rev().zip(text.shape.iter().rev()) {
        *stride = if extent == 1 { 0 } else { step };
        step = usize::saturating_mul(step, extent);
    }
    let shape = shape.to_vec();
    let count: usize = shape.iter().product();
    (0..count).map(move |place| {
        let axes = shape.iter().zip(&strides).rev();
        let (_, source) = axes.fold((place, 0), |(rest, source), (extent, stride)| {
            (rest / extent, source + rest % extent * stride)
        });
        text.values.get(source).map_or("", String::as_str)
    })
}
