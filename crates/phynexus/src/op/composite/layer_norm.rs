//! Layer normalisation.

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

/// Inputs x, then weight and bias (of the normalised axes' shape) if there are any. `(x - mean) / sqrt(variance +
/// epsilon) * weight + bias` over the last axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerNorm {
    /// How many of the last axes are normalised together.
    pub axes: usize,
    /// Added to the variance.
    pub epsilon: Scalar,
    /// There is a weight.
    pub weight: bool,
    /// There is a bias.
    pub bias: bool,
}

impl LayerNorm {
    fn plan(&self, shape: &[usize]) -> Plan {
        let LayerNorm { weight, bias, .. } = *self;
        let (axes, parameters) = normalization::last_axes(shape, self.axes);
        let epsilon = self.epsilon.as_f64();
        Plan { view: shape.into(), axes, centred: true, epsilon, parameters, weight, bias }
    }
}

impl Definition for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn attributes(&self) -> String {
        format!("axes={}, {}", self.axes, normalization::attributes(self.epsilon, self.weight, self.bias))
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::float(self.name(), &operands[0])?;
        let own = normalization::check_last_axes(self.name(), &operands[0], self.axes)?;
        let parameters = usize::from(self.weight) + usize::from(self.bias);
        normalization::check_parameters(self.name(), operands, parameters, own)
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        normalization::body(&self.plan(operands[0].shape()), operands)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        normalization::gradient(&self.plan(call.inputs[0].shape()), call)
    }

    fn samples() -> Vec<Sample> {
        let last = SHAPES.into_iter().flat_map(|shape| [(shape, 1, false, false), (shape, 1, true, true)]);
        let several = [(false, false), (true, false), (true, true)];
        let several = several.map(|(weight, bias)| (&[2, 3, 4][..], 2, weight, bias));
        let call = |(shape, axes, weight, bias): (&[usize], usize, bool, bool)| {
            let parameters = usize::from(weight) + usize::from(bias);
            let own = &shape[shape.len() - axes..];
            let operands = std::iter::once(shape).chain(std::iter::repeat_n(own, parameters));
            let epsilon = Scalar::Float(1e-3);
            Sample::new(LayerNorm { axes, epsilon, weight, bias }, operands.map(SampleOperand::new))
        };
        last.chain(several).map(call).collect()
    }
}
