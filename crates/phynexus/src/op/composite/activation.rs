//! Smooth activations.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use crate::{
    Result,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::Term,
    },
};

pub(super) fn gelu(inputs: &[Term], tanh: bool) -> Result<Term> {
    let x = Formula::wide(&inputs[0]);
    let distribution = if tanh {
        let inner = (&x * &x * &x * 0.044715 + &x) * (FRAC_2_SQRT_PI / SQRT_2);
        inner.tanh() + 1.0
    } else {
        (&x * FRAC_1_SQRT_2).erf() + 1.0
    };
    (x * 0.5 * distribution).cast(inputs[0].dtype()).term()
}

pub(super) fn silu(inputs: &[Term]) -> Result<Term> {
    let x = Formula::wide(&inputs[0]);
    (&x / ((-&x).exp() + 1.0)).cast(inputs[0].dtype()).term()
}

/// `s + x s (1 - s)` with the sigmoid s.
pub(super) fn silu_gradient(call: &Call) -> Result<InputGradients> {
    let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
    let s = x.sigmoid();
    let dx = g * &s * (x * (1.0 - &s) + 1.0);
    call.each(|_| dx.cast(call.output.dtype()))
}

/// Softplus in its computing dtype.
fn soft(x: &Formula, beta: f64, threshold: f64) -> Formula {
    let scaled = x * beta;
    let limit = scaled.like(threshold);
    limit.lt(&scaled).choose(x, &(scaled.min(&limit).exp().log1p() * (1.0 / beta)))
}

pub(super) fn softplus(inputs: &[Term], beta: f64, threshold: f64) -> Result<Term> {
    soft(&Formula::wide(&inputs[0]), beta, threshold).cast(inputs[0].dtype()).term()
}

/// `sigmoid(beta x)`, and 1 beyond the threshold.
pub(super) fn softplus_gradient(call: &Call, beta: f64, threshold: f64) -> Result<InputGradients> {
    let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
    let scaled = x * beta;
    let dx = scaled.like(threshold).lt(&scaled).choose(&g, &(&g * scaled.sigmoid()));
    call.each(|_| dx.cast(call.output.dtype()))
}

/// Beyond it softplus is the identity to double precision's last bits (PyTorch's value).
const MISH_THRESHOLD: f64 = 20.0;

pub(super) fn mish(inputs: &[Term]) -> Result<Term> {
    let x = Formula::wide(&inputs[0]);
    (&x * soft(&x, 1.0, MISH_THRESHOLD).tanh()).cast(inputs[0].dtype()).term()
}

/// `t + x s (1 - t^2)` with t the tanh of the softplus and s the sigmoid.
pub(super) fn mish_gradient(call: &Call) -> Result<InputGradients> {
    let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
    let t = soft(&x, 1.0, MISH_THRESHOLD).tanh();
    let dx = g * (&t + &x * x.sigmoid() * (1.0 - &t * &t));
    call.each(|_| dx.cast(call.output.dtype()))
}
