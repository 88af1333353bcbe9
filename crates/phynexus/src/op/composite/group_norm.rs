//! Group normalisation.

use super::{
    Definition, check,
    normalization::{self, Plan},
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::{Dims, element_count},
};

/// Inputs x `[N, C, ..]`, then weight and bias `[C]` if there are any. Each group of channels of each sample is
/// normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupNorm {
    /// How many groups the channels form.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: Scalar,
    /// There is a weight.
    pub weight: bool,
    /// There is a bias.
    pub bias: bool,
}

impl GroupNorm {
    fn plan(&self, shape: &[usize]) -> Plan {
        let GroupNorm { groups, epsilon, weight, bias } = *self;
        let size = shape[1] / groups * element_count(&shape[2..]);
        Plan {
            view: Dims::from_slice(&[shape[0], groups, size]),
            axes: Axes::of([2]),
            centred: true,
            epsilon: epsilon.as_f64(),
            parameters: normalization::channels(shape),
            weight,
            bias,
        }
    }
}

impl Definition for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn attributes(&self) -> String {
        format!("groups={}, {}", self.groups, normalization::attributes(self.epsilon, self.weight, self.bias))
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let x = &operands[0];
        check::float(self.name(), x)?;
        normalization::check_channels(self.name(), x)?;
        let channels = x.shape()[1];
        if self.groups == 0 || !channels.is_multiple_of(self.groups) {
            let hint = format!("{channels} channels cannot form {} equal groups", self.groups);
            return Err(Error::shape(self.name(), &[x.shape()], hint));
        }
        let parameters = usize::from(self.weight) + usize::from(self.bias);
        normalization::check_parameters(self.name(), operands, parameters, &[channels])
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        normalization::body(&self.plan(operands[0].shape()), operands)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        normalization::gradient(&self.plan(call.inputs[0].shape()), call)
    }

    fn samples() -> Vec<Sample> {
        let shapes = [&[2, 4][..], &[3, 4, 5], &[1, 4, 6, 3]];
        let calls = shapes.into_iter().flat_map(|x| [(x, 2, true, true), (x, 1, false, false)]);
        let call = |(x, groups, weight, bias): (&[usize], usize, bool, bool)| {
            let parameters = usize::from(weight) + usize::from(bias);
            let operands = std::iter::once(x).chain(std::iter::repeat_n(&[4][..], parameters));
            let epsilon = Scalar::Float(1e-3);
            Sample::new(GroupNorm { groups, epsilon, weight, bias }, operands.map(SampleOperand::new))
        };
        calls.chain([(&[3, 4, 2][..], 2, true, false)]).map(call).collect()
    }
}
