//! Root-mean-square normalisation.

use super::{
    Definition, check,
    normalization::{self, Plan},
    sample::{SHAPES, Sample, SampleOperand},
};
use crate::{
    DType, Result, Scalar,
    op::{
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs x, then the weight if there is one. `x / sqrt(mean(x^2) + epsilon) * weight` over the last axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RmsNorm {
    /// How many of the last axes are normalised together.
    pub axes: usize,
    /// Added to the mean square.
    pub epsilon: Scalar,
    /// There is a weight.
    pub weight: bool,
}

impl RmsNorm {
    fn plan(&self, shape: &[usize]) -> Plan {
        let (axes, parameters) = normalization::last_axes(shape, self.axes);
        let (epsilon, weight) = (self.epsilon.as_f64(), self.weight);
        Plan { view: shape.into(), axes, centred: false, epsilon, parameters, weight, bias: false }
    }
}

impl Definition for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn attributes(&self) -> String {
        format!("axes={}, {}", self.axes, normalization::attributes(self.epsilon, self.weight, false))
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::float(self.name(), &operands[0])?;
        let own = normalization::check_last_axes(self.name(), &operands[0], self.axes)?;
        normalization::check_parameters(self.name(), operands, usize::from(self.weight), own)
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        normalization::body(&self.plan(operands[0].shape()), operands)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        normalization::gradient(&self.plan(call.inputs[0].shape()), call)
    }

    fn samples() -> Vec<Sample> {
        let last = SHAPES.into_iter().flat_map(|shape| [(shape, 1, false), (shape, 1, true)]);
        let call = |(shape, axes, weight): (&[usize], usize, bool)| {
            let own = weight.then_some(&shape[shape.len() - axes..]);
            let operands = std::iter::once(shape).chain(own);
            Sample::new(
                RmsNorm { axes, epsilon: Scalar::Float(1e-3), weight },
                operands.map(SampleOperand::new),
            )
        };
        last.chain([(&[2, 3, 4][..], 2, true)]).map(call).collect()
    }
}
