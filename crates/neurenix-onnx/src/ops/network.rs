//! Normalisations and attention.

mod attention;
mod linear_attention;
mod rotary;

use phynexus::{DType, Tensor};

use super::{Rows, widened};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("Attention", attention::attention),
    ("BatchNormalization", batch_normalization),
    ("GroupNormalization", group_normalization),
    ("InstanceNormalization", instance_normalization),
    ("LRN", local_response_normalization),
    ("LayerNormalization", layer_normalization),
    ("LinearAttention", linear_attention::linear_attention),
    ("LpNormalization", lp_normalization),
    ("MeanVarianceNormalization", mean_variance_normalization),
    ("RMSNormalization", rms_normalization),
    ("RotaryEmbedding", rotary::rotary_embedding),
    ("ai.onnx.preview.FlexAttention", attention::flex_attention),
];

fn epsilon(call: &Call<'_>) -> Result<f64> {
    call.float_or("epsilon", 1e-5)
}

fn batch_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let (given, epsilon) = (call.tensor(0)?, epsilon(call)?);
    let training = match call.opset() {
        14.. => call.int_or("training_mode", 0)? != 0,
        7.. => call.wants(1),
        _ => call.int_or("is_test", 0)? == 0,
    };
    let x = match given.rank() {
        0 => return Err(Error::invalid("expected samples [N, C, ..], got a scalar")),
        1 => given.unsqueeze(1)?,
        _ if call.int_or("spatial", 1)? == 0 => given.flatten(1, -1)?,
        _ => given.clone(),
    };
    let vector = |input: usize| -> Result<Tensor> { Ok(call.tensor(input)?.reshape_infer(&[-1])?) };
    let (scale, bias, mean, variance) = (vector(1)?, vector(2)?, vector(3)?, vector(4)?);
    let by = |mean: &Tensor, variance: &Tensor| {
        x.batch_norm(Some(mean), Some(variance), Some(&scale), Some(&bias), false, epsilon)
    };
    if !training {
        return one(by(&mean, &variance)?.reshape(given.shape())?);
    }
    let momentum = call.float_or("momentum", 0.9)?;
    let axes: Vec<i64> = (0..x.rank() as i64).filter(|&axis| axis != 1).collect();
    let wide = widened(&x)?;
    let (batch_mean, batch_variance) = (wide.mean(&axes, false)?, wide.var(&axes, 0.0, false)?);
    // The engine refuses to train on one value per channel.
    let y = match x.len() > scale.len() {
        true => x.batch_norm(None, None, Some(&scale), Some(&bias), true, epsilon)?,
        false => by(&batch_mean, &batch_variance)?,
    };
    let like = |statistic: Tensor, input: usize| -> Result<Value> {
        let running = call.tensor(input)?;
        Ok(statistic.to_dtype(running.dtype())?.reshape(running.shape())?.into())
    };
    let moved = |running: &Tensor, batch: &Tensor| -> Result<Tensor> {
        Ok(widened(running)?.mul_scalar(momentum)?.add(&batch.mul_scalar(1.0 - momentum)?)?)
    };
    Ok(vec![
        y.reshape(given.shape())?.into(),
        like(moved(&mean, &batch_mean)?, 3)?,
        like(moved(&variance, &batch_variance)?, 4)?,
        like(batch_mean, 3)?,
        like(batch_variance, 4)?,
    ])
}

fn instance_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    one(x.instance_norm(Some(&scale), Some(&bias), epsilon(call)?)?)
}

fn group_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let channels = x.shape().get(1).copied().unwrap_or(0);
    let given = call.int("num_groups")?;
    let groups = given.and_then(|groups| usize::try_from(groups).ok());
    let Some(groups) = groups.filter(|&groups| groups > 0 && channels.is_multiple_of(groups)) else {
        let given = given.map_or("missing".to_owned(), |groups| groups.to_string());
        return Err(Error::invalid(format!("num_groups must divide the {channels} channels, it is {given}")));
    };
    let parameter = |input: usize| -> Result<Tensor> {
        let given = call.tensor(input)?;
        match call.opset() {
            21.. => Ok(given),
            _ => Ok(given.repeat_interleave(channels / groups, 0)?),
        }
    };
    one(x.group_norm(groups, Some(&parameter(1)?), Some(&parameter(2)?), epsilon(call)?)?)
}

/// A normalisation of `x` over its last axes, of the extents `normalized`, by `normalize`, which takes a scale and a
/// bias of these extents. They may be of any shape that broadcasts to that of `x`.
fn scaled(
    x: &Tensor,
    scale: &Tensor,
    bias: Option<&Tensor>,
    normalized: &[usize],
    normalize: impl Fn(&Tensor, Option<&Tensor>, Option<&Tensor>) -> phynexus::Result<Tensor>,
) -> Result<Tensor> {
    let spread = |parameter: &Tensor| parameter.expand(normalized).ok();
    match (spread(scale), bias.map(spread)) {
        (Some(scale), None) => Ok(normalize(x, Some(&scale), None)?),
        (Some(scale), Some(Some(bias))) => Ok(normalize(x, Some(&scale), Some(&bias))?),
        _ => {
            let mut y = normalize(&widened(x)?, None, None)?.mul(scale)?;
            if let Some(bias) = bias {
                y = y.add(bias)?;
            }
            if y.shape() != x.shape() {
                let (scale, shape) = (scale.shape(), x.shape());
                return Err(Error::invalid(format!(
                    "a scale or bias {scale:?} does not broadcast to {shape:?}"
                )));
            }
            Ok(y.to_dtype(x.dtype())?)
        }
    }
}

fn layer_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let (axis, epsilon) = (call.axis(call.int_or("axis", -1)?, x.rank())?, epsilon(call)?);
    let normalized = &x.shape()[axis..];
    let normalize = |x: &Tensor, scale: Option<&Tensor>, bias: Option<&Tensor>| {
        x.layer_norm(normalized, scale, bias, epsilon)
    };
    let y = scaled(&x, &scale, bias.as_ref(), normalized, normalize)?;
    if !call.wants(1) && !call.wants(2) {
        return one(y);
    }
    let stash = call.element("stash_type")?.and_then(|element| element.dtype()).unwrap_or(DType::F32);
    let axes: Vec<i64> = (axis as i64..x.rank() as i64).collect();
    let wide = widened(&x)?;
    let reciprocal = wide.var(&axes, 0.0, true)?.add_scalar(epsilon)?.rsqrt()?;
    let mean = wide.mean(&axes, true)?;
    Ok(vec![y.into(), mean.to_dtype(stash)?.into(), reciprocal.to_dtype(stash)?.into()])
}

fn rms_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (call.tensor(0)?, call.tensor(1)?);
    let (axis, epsilon) = (call.axis(call.int_or("axis", -1)?, x.rank())?, epsilon(call)?);
    let normalized = &x.shape()[axis..];
    let wide = x.to_dtype(x.dtype().promote(scale.dtype()))?;
    let y =
        scaled(&wide, &scale, None, normalized, |x, scale, _| x.rms_norm(normalized, scale, Some(epsilon)))?;
    one(y.to_dtype(scale.dtype())?)
}

fn local_response_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.tensor(0)?;
    let &[samples, channels, ref rest @ ..] = given.shape() else {
        return Err(Error::invalid(format!("expected [N, C, ..], got {:?}", given.shape())));
    };
    let size = call.int("size")?.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let size = size.ok_or_else(|| Error::invalid("attribute \"size\" must be a positive integer"))?;
    if given.is_empty() {
        return one(given);
    }
    let x = widened(&given)?;
    // The channels before and after one in its region: (size - 1) / 2 rounded down and up.
    let (before, after) = (((size - 1) / 2).min(channels - 1), (size / 2).min(channels - 1));
    let width = before + after + 1;
    let squares = x.square()?.reshape(&[samples, 1, channels, rest.iter().product()])?;
    let padded = squares.pad(&[(0, 0), (0, 0), (before, after), (0, 0)], 0)?;
    let means = padded.avg_pool2d([width, 1], Some([1, 1]), [0, 0], false, true)?.reshape(x.shape())?;
    let factor = call.float_or("alpha", 1e-4)? / size as f64 * width as f64;
    let bases = means.mul_scalar(factor)?.add_scalar(call.float_or("bias", 1.0)?)?;
    let powers = bases.pow_scalar(call.float_or("beta", 0.75)?)?;
    one(x.div(&powers)?.to_dtype(given.dtype())?)
}

fn lp_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.tensor(0)?;
    let order = match call.int_or("p", 2)? {
        order @ (1 | 2) => order as f64,
        other => return Err(Error::invalid(format!("attribute \"p\" must be 1 or 2, it is {other}"))),
    };
    let x = widened(&given)?;
    let norm = x.norm(order, &[call.int_or("axis", -1)?], true)?;
    let divisor = norm.eq_scalar(0)?.where_(&norm.ones_like()?, &norm)?;
    one(x.div(&divisor)?.to_dtype(given.dtype())?)
}

fn mean_variance_normalization(call: &Call<'_>) -> Result<Vec<Value>> {
    let given = call.tensor(0)?;
    let axes = call.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let x = widened(&given)?;
    let deviation = x.std(&axes, 0.0, true)?.add_scalar(1e-9)?;
    one(x.sub(&x.mean(&axes, true)?)?.div(&deviation)?.to_dtype(given.dtype())?)
}
