//! Mish.

use super::{
    Definition,
    sample::{Sample, elementwise},
    softplus::softplus,
};
use crate::{
    Result,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::Term,
    },
};

/// `x * tanh(softplus(x))` (Misra, 2019).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mish;

/// Beyond it softplus is the identity to double precision's last bits (PyTorch's value).
const THRESHOLD: f64 = 20.0;

impl Definition for Mish {
    fn name(&self) -> &'static str {
        "mish"
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let x = Formula::wide(&operands[0]);
        (&x * softplus(&x, 1.0, THRESHOLD).tanh()).cast(operands[0].dtype()).term()
    }

    /// `t + x s (1 - t^2)` with t the tanh of the softplus and s the sigmoid.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
        let t = softplus(&x, 1.0, THRESHOLD).tanh();
        let dx = g * (&t + &x * x.sigmoid() * (1.0 - &t * &t));
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn samples() -> Vec<Sample> {
        elementwise(Mish)
    }
}
