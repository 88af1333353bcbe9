//! Batch normalisation.

use super::{
    Definition, check,
    normalization::{self, Plan},
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Result, Scalar,
    op::{
        Axes,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs x `[N, C, ..]`, when not training mean and variance `[C]`, then weight and bias `[C]` if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchNorm {
    /// Each channel is normalised by the batch's own (biased) statistics rather than by given ones.
    pub training: bool,
    /// Added to the variance.
    pub epsilon: Scalar,
    /// There is a weight.
    pub weight: bool,
    /// There is a bias.
    pub bias: bool,
}

impl BatchNorm {
    fn plan(&self, shape: &[usize]) -> Plan {
        let BatchNorm { weight, bias, .. } = *self;
        let axes = Axes::of((0..shape.len()).filter(|&axis| axis != 1));
        let (epsilon, parameters) = (self.epsilon.as_f64(), normalization::channels(shape));
        Plan { view: shape.into(), axes, centred: true, epsilon, parameters, weight, bias }
    }
}

impl Definition for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn attributes(&self) -> String {
        let shared = normalization::attributes(self.epsilon, self.weight, self.bias);
        format!("training={}, {shared}", self.training)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::float(self.name(), &operands[0])?;
        normalization::check_channels(self.name(), &operands[0])?;
        let given = if self.training { 0 } else { 2 };
        let parameters = given + usize::from(self.weight) + usize::from(self.bias);
        normalization::check_parameters(self.name(), operands, parameters, &operands[0].shape()[1..2])
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let plan = self.plan(operands[0].shape());
        if self.training {
            return normalization::body(&plan, operands);
        }
        let x = Formula::wide(&operands[0]);
        let mean = Formula::wide(&operands[1]).reshape(&plan.parameters);
        let variance = Formula::wide(&operands[2]).reshape(&plan.parameters);
        let y = (x - mean) * (variance + plan.epsilon).rsqrt();
        normalization::scaled(&plan, y, &operands[3..], operands[0].dtype())
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        if !self.training {
            return Ok(None);
        }
        normalization::gradient(&self.plan(call.inputs[0].shape()), call)
    }

    fn samples() -> Vec<Sample> {
        let shapes = [&[2, 4][..], &[3, 4, 5], &[1, 4, 6, 3]];
        let training = shapes.into_iter().map(|x| (x, true, true, true));
        let given = [&[2, 4][..], &[3, 4, 5]].into_iter().map(|x| (x, false, true, true));
        let fewer = [(true, false, false), (true, true, false), (false, false, false), (false, true, false)];
        let fewer = fewer.map(|(training, weight, bias)| (&[3, 4, 2][..], training, weight, bias));
        let call = |(x, training, weight, bias): (&[usize], bool, bool, bool)| {
            let channel = || SampleOperand::new(&[4]);
            let mut operands = vec![SampleOperand::new(x)];
            if !training {
                operands.extend([channel(), channel().positive()]);
            }
            operands.extend((0..usize::from(weight) + usize::from(bias)).map(|_| channel()));
            let epsilon = Scalar::Float(1e-3);
            Sample::new(BatchNorm { training, epsilon, weight, bias }, operands)
        };
        training.chain(given).chain(fewer).map(call).collect()
    }
}
