//! Arithmetic beyond single operations of the engine.

use phynexus::{DType, Device, Tensor};

use super::operands;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

/// The quotient; of integers rounded towards zero.
pub(super) fn quotient(a: &Tensor, b: &Tensor) -> phynexus::Result<Tensor> {
    if a.dtype().is_float() {
        return a.div(b);
    }
    let floored = a.floor_divide(b)?;
    let is_rounded = a.fmod(b)?.ne_scalar(0)?;
    let is_negative = a.lt_scalar(0)?.logical_xor(&b.lt_scalar(0)?)?;
    is_rounded.logical_and(&is_negative)?.where_(&floored.add_scalar(1)?, &floored)
}

pub(super) fn modulo(call: &Call<'_>) -> Result<Vec<Value>> {
    let (a, b) = operands(call)?;
    one(match call.int_or("fmod", 0)? {
        0 => a.remainder(&b)?,
        1 => a.fmod(&b)?,
        other => return Err(Error::invalid(format!("fmod must be 0 or 1, it is {other}"))),
    })
}

pub(super) fn power(call: &Call<'_>) -> Result<Vec<Value>> {
    let (base, exponent) = operands(call)?;
    if base.dtype().is_float() || !exponent.dtype().is_float() {
        return one(base.pow(&exponent)?.to_dtype(base.dtype())?);
    }
    // A root or power of an integer, in double precision on the CPU: not every device has it. Rounding errors of the
    // function must not make a whole result one less.
    let cpu = Device::find("cpu")?;
    let wide = |x: &Tensor| x.to_device(cpu)?.to_dtype(DType::F64);
    let power = wide(&base)?.pow(&wide(&exponent)?)?;
    let nearest = power.round()?;
    let is_whole = power.sub(&nearest)?.abs()?.le(&power.abs()?.mul_scalar(4.0 * f64::EPSILON)?)?;
    one(is_whole.where_(&nearest, &power)?.to_dtype(base.dtype())?.to_device(call.device)?)
}

/// All inputs combined from the first to the last.
pub(super) fn folded(
    call: &Call<'_>,
    combine: impl Fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>,
) -> Result<Vec<Value>> {
    one(combined(&call.tensors()?, combine)?)
}

fn combined(
    tensors: &[Tensor],
    combine: impl Fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>,
) -> Result<Tensor> {
    let (first, rest) = tensors.split_first().ok_or_else(|| Error::invalid("it needs at least one input"))?;
    Ok(rest.iter().try_fold(first.clone(), |all, next| combine(&all, next))?)
}

pub(super) fn mean(call: &Call<'_>) -> Result<Vec<Value>> {
    let tensors = call.tensors()?;
    let count = tensors.len();
    let dtype = call.tensor(0)?.dtype();
    let wide = tensors.iter().map(|tensor| tensor.to_dtype(dtype.compute()));
    let sum = combined(&wide.collect::<phynexus::Result<Vec<_>>>()?, Tensor::add)?;
    one(sum.div_scalar(count as f64)?.to_dtype(dtype)?)
}

pub(super) fn erf(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    one(x.erf()?.to_dtype(x.dtype())?)
}

pub(super) fn clip(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    if call.opset() < 11 {
        let bound = |name| Ok::<_, Error>(call.float(name)?.map(|bound| x.full_like(bound)).transpose()?);
        return one(x.clip(bound("min")?.as_ref(), bound("max")?.as_ref())?);
    }
    one(x.clip(call.optional(1)?.as_ref(), call.optional(2)?.as_ref())?)
}

pub(super) fn bit_shift(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, y) = (call.tensor(0)?, call.tensor(1)?);
    // The engine shifts by the width, which is as good as any greater amount, where ONNX takes a negative one so.
    let width = 8 * x.dtype().size() as i64;
    let is_inside = y.ge_scalar(0)?.logical_and(&y.lt_scalar(width)?)?;
    let amount = is_inside.where_(&y, &y.full_like(width)?)?;
    one(match call.string_or("direction", "")? {
        "LEFT" => x.shift_left(&amount)?,
        "RIGHT" => x.shift_right(&amount)?,
        other => return Err(Error::invalid(format!("direction must be LEFT or RIGHT, it is {other:?}"))),
    })
}

/// Applies a function of several steps. 16-bit floats are computed in `float32` and rounded once, at the end.
pub(super) fn in_compute_dtype(
    x: &Tensor,
    function: impl FnOnce(&Tensor) -> phynexus::Result<Tensor>,
) -> Result<Tensor> {
    let dtype = x.dtype();
    Ok(function(&x.to_dtype(dtype.compute())?)?.to_dtype(dtype)?)
}
