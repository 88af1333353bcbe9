//! Activations with attributes.

use phynexus::{Scalar, Tensor, tensor::GeluApproximation};

use super::{arithmetic::in_compute_dtype, unary};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

/// Beyond it, softplus is the identity in double precision.
const SOFTPLUS_LIMIT: f64 = 40.0;

pub(super) fn leaky_relu(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 0.01)?;
    unary(call, |x| x.leaky_relu(alpha))
}

pub(super) fn elu(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 1.0)?;
    unary(call, |x| x.elu(alpha))
}

pub(super) fn celu(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 1.0)?;
    unary(call, |x| x.celu(alpha))
}

pub(super) fn selu(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 1.673_263_192_176_818_8)?;
    let gamma = call.float_or("gamma", 1.050_701_022_148_132_3)?;
    one(in_compute_dtype(&call.tensor(0)?, |x| x.elu(alpha)?.mul_scalar(gamma))?)
}

pub(super) fn prelu(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, mut slope) = (call.tensor(0)?, call.tensor(1)?);
    // Before opset 7, a vector had a slope for each channel.
    if call.opset() < 7 && slope.rank() == 1 && x.rank() > 1 {
        let mut shape = vec![1; x.rank() - 1];
        shape[0] = slope.len();
        slope = slope.reshape(&shape)?;
    }
    let scaled = x.mul(&slope.expand(x.shape())?)?;
    one(x.lt_scalar(0)?.where_(&scaled, &x)?)
}

pub(super) fn thresholded_relu(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 1.0)?;
    unary(call, |x| x.threshold(alpha, 0.0))
}

pub(super) fn hard_sigmoid(call: &Call<'_>) -> Result<Vec<Value>> {
    let (alpha, beta) = (call.float_or("alpha", 0.2)?, call.float_or("beta", 0.5)?);
    let bounds = (Some(Scalar::Float(0.0)), Some(Scalar::Float(1.0)));
    let function = |x: &Tensor| x.mul_scalar(alpha)?.add_scalar(beta)?.clamp(bounds.0, bounds.1);
    one(in_compute_dtype(&call.tensor(0)?, function)?)
}

pub(super) fn softplus(call: &Call<'_>) -> Result<Vec<Value>> {
    unary(call, |x| x.softplus(1.0, SOFTPLUS_LIMIT))
}

pub(super) fn mish(call: &Call<'_>) -> Result<Vec<Value>> {
    unary(call, |x| x.mish())
}

pub(super) fn gelu(call: &Call<'_>) -> Result<Vec<Value>> {
    let approximation = match call.string_or("approximate", "none")? {
        "none" => GeluApproximation::None,
        "tanh" => GeluApproximation::Tanh,
        other => return Err(Error::invalid(format!("approximate must be none or tanh, it is {other:?}"))),
    };
    unary(call, |x| x.gelu(approximation))
}

pub(super) fn swish(call: &Call<'_>) -> Result<Vec<Value>> {
    let alpha = call.float_or("alpha", 1.0)?;
    one(in_compute_dtype(&call.tensor(0)?, |x| x.mul(&x.mul_scalar(alpha)?.sigmoid()?))?)
}

pub(super) fn swiglu(call: &Call<'_>) -> Result<Vec<Value>> {
    let (gate, linear) = (call.tensor(0)?, call.tensor(1)?);
    if gate.shape() != linear.shape() {
        return Err(Error::invalid(format!(
            "both inputs must have the same shape, not {:?} and {:?}",
            gate.shape(),
            linear.shape()
        )));
    }
    let alpha = call.float_or("alpha", 1.0)?;
    let linear = linear.to_dtype(linear.dtype().compute())?;
    one(in_compute_dtype(&gate, |x| x.mul(&x.mul_scalar(alpha)?.sigmoid()?)?.mul(&linear))?)
}

pub(super) fn shrink(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let (bias, lambd) = (call.float_or("bias", 0.0)?, call.float_or("lambd", 0.5)?);
    // Whole numbers keep integers exact.
    let bias =
        if bias.fract() == 0.0 && !x.dtype().is_float() { Scalar::Int(bias as i64) } else { bias.into() };
    let raised = x.add_scalar(bias)?.to_dtype(x.dtype())?;
    let lowered = x.sub_scalar(bias)?.to_dtype(x.dtype())?;
    let above = x.gt_scalar(lambd)?.where_(&lowered, &x.zeros_like()?)?;
    one(x.lt_scalar(-lambd)?.where_(&raised, &above)?)
}
