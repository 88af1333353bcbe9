//! Softmax and its logarithm.

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

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
    /// The logarithm.
    pub logarithm: bool,
}

impl Definition for Softmax {
    fn name(&self) -> &'static str {
        if self.logarithm { "log_softmax" } else { "softmax" }
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
        let e = z.exp();
        let sum = e.sum(axes);
        let y = if self.logarithm { z - sum.log() } else { e / sum };
        y.cast(operands[0].dtype()).term()
    }

    /// `y * (g - sum(g * y))`; of the logarithm `g - exp(y) * sum(g)`.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, y, axes) = (Formula::wide(call.gradient), Formula::wide(call.output), Axes::of([self.axis]));
        let dx = if self.logarithm {
            &g - y.exp() * g.sum(axes)
        } else {
            let product = &g * &y;
            &product - &y * product.sum(axes)
        };
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::RESULT
    }

    fn samples() -> Vec<Sample> {
        [false, true]
            .into_iter()
            .flat_map(|logarithm| along_axes(|axis| Softmax { axis, logarithm }))
            .collect()
    }
}
