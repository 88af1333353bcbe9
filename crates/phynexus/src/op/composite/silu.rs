//! SiLU, also called Swish.

use super::{
    Definition,
    sample::{Sample, elementwise},
};
use crate::{
    Result,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::Term,
    },
};

/// `x * sigmoid(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Silu;

impl Definition for Silu {
    fn name(&self) -> &'static str {
        "silu"
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let x = Formula::wide(&operands[0]);
        (&x / ((-&x).exp() + 1.0)).cast(operands[0].dtype()).term()
    }

    /// `s + x s (1 - s)` with the sigmoid s.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
        let s = x.sigmoid();
        let dx = g * &s * (x * (1.0 - &s) + 1.0);
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn samples() -> Vec<Sample> {
        elementwise(Silu)
    }
}
