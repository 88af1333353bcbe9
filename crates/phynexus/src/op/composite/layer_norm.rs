//! Layer normalisation and root-mean-square normalisation.

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

/// Inputs x, then weight and bias (of the normalised axes' shape) if there are any. Layer normalisation, if centred, is
/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axes; root-mean-square normalisation is
/// `x / sqrt(mean(x^2) + epsilon) * weight + bias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerNorm {
    /// How many of the last axes are normalised together.
    pub axes: usize,
    /// The mean is subtracted.
    pub centred: bool,
    /// Added to the variance or the mean square.
    pub epsilon: Scalar,
    /// There is a weight.
    pub weight: bool,
    /// There is a bias.
    pub bias: bool,
}

impl LayerNorm {
    fn plan(&self, shape: &[usize]) -> Plan {
        let LayerNorm { centred, weight, bias, .. } = *self;
        let (axes, parameters) = normalization::last_axes(shape, self.axes);
        let epsilon = self.epsilon.as_f64();
        Plan { view: shape.into(), axes, centred, epsilon, parameters, weight, bias }
    }
}

impl Definition for LayerNorm {
    fn name(&self) -> &'static str {
        if self.centred { "layer_norm" } else { "rms_norm" }
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
        let call = |centred, (shape, axes, weight, bias): (&[usize], usize, bool, bool)| {
            let parameters = usize::from(weight) + usize::from(bias);
            let own = &shape[shape.len() - axes..];
            let operands = std::iter::once(shape).chain(std::iter::repeat_n(own, parameters));
            let composite = LayerNorm { axes, centred, epsilon: Scalar::Float(1e-3), weight, bias };
            Sample::new(composite, operands.map(SampleOperand::new))
        };
        let last = |bias: bool| {
            SHAPES.into_iter().flat_map(move |shape| [(shape, 1, false, false), (shape, 1, true, bias)])
        };
        let several = |weight, bias| (&[2, 3, 4][..], 2, weight, bias);
        let layers = last(true).chain([several(false, false), several(true, false), several(true, true)]);
        let root_mean_squares = last(false).chain([several(true, false)]);
        layers.map(|of| call(true, of)).chain(root_mean_squares.map(|of| call(false, of))).collect()
    }
}
