//! Softmax.

use super::{
    Definition, check,
    sample::{Sample, along_axes},
};
use crate::{
    DType, Result,
    op::{
        Axes, Combine,
        formula::Formula,
        gradient::rule::{Call, InputGradients, Reads},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// `exp(x) / sum(exp(x))` along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
}

impl Definition for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn attributes(&self) -> String {
        format!("axis={}", self.axis)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::one_float_with_axis(self.name(), operands, self.axis)
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (x, axes) = (Formula::wide(&operands[0]), Axes::of([self.axis]));
        let e = (&x - x.reduce(Combine::Max, axes)).exp();
        (&e / e.sum(axes)).cast(operands[0].dtype()).term()
    }

    /// `y * (g - sum(g * y))`.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, y) = (Formula::wide(call.gradient), Formula::wide(call.output));
        let product = &g * &y;
        let dx = &product - &y * product.sum(Axes::of([self.axis]));
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::RESULT
    }

    fn samples() -> Vec<Sample> {
        along_axes(|axis| Softmax { axis })
    }
}
