//! The cross-entropy between two probabilities, with a gradient that is finite where the logarithms are not.

use super::{Composite, gradients_for};
use crate::{
    DType, Result,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Logarithms below this count as this, as in PyTorch.
const LOWEST_LOGARITHM: f64 = -100.0;
/// The least `x (1 - x)` that a gradient is divided by: PyTorch's, which is 1e-12 in `float32`.
const LEAST_VARIANCE: f64 = 1e-12f32 as f64;

pub(super) fn check(composite: &Composite, inputs: &[TensorType]) -> Result<(DType, Dims)> {
    composite.check_count(inputs, 2)?;
    composite.check_float(&inputs[0])?;
    composite.check_shape(&inputs[1], inputs[0].shape(), "the target")?;
    composite.check_dtype(&inputs[1], inputs[0].dtype())?;
    Ok((inputs[0].dtype(), inputs[0].shape().into()))
}

/// `log(x)` and `log(1 - x)`, bounded below; NaN stays NaN.
fn logarithms(x: &Formula) -> [Formula; 2] {
    [x.log(), (-x).log1p()].map(|logarithm| {
        let lowest = logarithm.like(LOWEST_LOGARITHM);
        logarithm.lt(&lowest).choose(&lowest, &logarithm)
    })
}

/// `-(t log(x) + (1 - t) log(1 - x))`.
pub(super) fn body(inputs: &[Term]) -> Result<Term> {
    let (x, t) = (Formula::wide(&inputs[0]), Formula::wide(&inputs[1]));
    let [yes, no] = logarithms(&x);
    ((&t - 1.0) * no - t * yes).cast(inputs[0].dtype()).term()
}

/// `(x - t) / max(x (1 - x), 1e-12)` for the input, `log(1 - x) - log(x)` for the target: bounded as in the
/// loss, whose slope that is (PyTorch's are not, and infinite at 0 and 1).
pub(super) fn gradient(call: &Call) -> Result<InputGradients> {
    let (g, x, t) =
        (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]), Formula::wide(&call.inputs[1]));
    let dtype = call.output.dtype();
    let mut found = Vec::new();
    if call.needs[0] {
        let variance = &x * (1.0 - &x);
        let least = variance.like(LEAST_VARIANCE);
        found.push((0, (&g * (&x - t) / variance.max(&least)).cast(dtype).term()?));
    }
    if call.needs[1] {
        let [yes, no] = logarithms(&x);
        found.push((1, (g * (no - yes)).cast(dtype).term()?));
    }
    Ok(gradients_for(2, found))
}
