//! Softplus.

use super::{
    Definition, check,
    sample::{Sample, elementwise},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// `log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x` exceeds the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softplus {
    /// The steepness.
    pub beta: Scalar,
    /// Where `beta * x` exceeds it, the function is the identity.
    pub threshold: Scalar,
}

/// Softplus in its computing dtype.
pub(super) fn softplus(x: &Formula, beta: f64, threshold: f64) -> Formula {
    let scaled = x * beta;
    let limit = scaled.like(threshold);
    limit.lt(&scaled).choose(x, &(scaled.min(&limit).exp().log1p() * (1.0 / beta)))
}

impl Definition for Softplus {
    fn name(&self) -> &'static str {
        "softplus"
    }

    fn attributes(&self) -> String {
        format!("beta={}, threshold={}", self.beta, self.threshold)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let beta = self.beta.as_f64();
        if beta.is_nan() || beta <= 0.0 {
            return Err(Error::argument("softplus", format!("beta must be positive, not {beta}")));
        }
        check::one_float(self.name(), operands)
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let x = Formula::wide(&operands[0]);
        softplus(&x, self.beta.as_f64(), self.threshold.as_f64()).cast(operands[0].dtype()).term()
    }

    /// `sigmoid(beta x)`, and 1 beyond the threshold.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, x) = (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]));
        let scaled = x * self.beta.as_f64();
        let dx = scaled.like(self.threshold.as_f64()).lt(&scaled).choose(&g, &(&g * scaled.sigmoid()));
        call.each(|_| dx.cast(call.output.dtype()))
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    /// With a threshold that no value exceeds, and with one that some do.
    fn samples() -> Vec<Sample> {
        let with = |beta, threshold| {
            elementwise(Softplus { beta: Scalar::Float(beta), threshold: Scalar::Float(threshold) })
        };
        [with(2.0, 20.0), with(1.5, 2.0)].concat()
    }
}
