//! The logarithm of the softmax.

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

/// The logarithm of the softmax along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogSoftmax {
    /// The axis.
    pub axis: usize,
}

impl Definition for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn attributes(&self) -> String {
        format!("axis={}", self.axis)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::one_float_with_axis(self.name(), operands, self.axis)
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (x, axes) = (Formula::wide(&operands[0]), Axes::of([self.axis]));
        let z = &x - x.reduce(Combine::Max, axes);
        (&z - z.exp().sum(axes).log()).cast(operands[0].dtype()).term()
    }

    /// `g - exp(y) * sum(g)`.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, y) = (Formula::wide(call.gradient), Formula::wide(call.output));
        let dx = &g - y.exp() * g.sum(Axes::of([self.axis]));
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::RESULT
    }

    fn samples() -> Vec<Sample> {
        along_axes(|axis| LogSoftmax { axis })
    }
}
