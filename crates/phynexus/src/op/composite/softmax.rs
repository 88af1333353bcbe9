//! Softmax and its logarithm.

use crate::{
    Result,
    op::{
        Axes, Combine,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::Term,
    },
};

pub(super) fn softmax(inputs: &[Term], axis: usize) -> Result<Term> {
    let (x, axes) = (Formula::wide(&inputs[0]), Axes::of([axis]));
    let e = (&x - x.reduce(Combine::Max, axes)).exp();
    (&e / e.sum(axes)).cast(inputs[0].dtype()).term()
}

/// `y * (g - sum(g * y))`.
pub(super) fn softmax_gradient(call: &Call, axis: usize) -> Result<InputGradients> {
    let (g, y) = (Formula::wide(call.gradient), Formula::wide(call.output));
    let product = &g * &y;
    let dx = &product - &y * product.sum(Axes::of([axis]));
    call.each(|_| dx.cast(call.output.dtype()))
}

pub(super) fn log_softmax(inputs: &[Term], axis: usize) -> Result<Term> {
    let (x, axes) = (Formula::wide(&inputs[0]), Axes::of([axis]));
    let z = &x - x.reduce(Combine::Max, axes);
    (&z - z.exp().sum(axes).log()).cast(inputs[0].dtype()).term()
}

/// `g - exp(y) * sum(g)`.
pub(super) fn log_softmax_gradient(call: &Call, axis: usize) -> Result<InputGradients> {
    let (g, y) = (Formula::wide(call.gradient), Formula::wide(call.output));
    let dx = &g - y.exp() * g.sum(Axes::of([axis]));
    call.each(|_| dx.cast(call.output.dtype()))
}
