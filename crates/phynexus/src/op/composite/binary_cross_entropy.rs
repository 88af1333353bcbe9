//! The cross-entropy between two probabilities, with a gradient that is finite where the logarithms are not.

use super::{
    Definition, check, gradients_for,
    sample::{SHAPES, Sample, SampleOperand},
};
use crate::{
    DType, Result,
    op::{
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs x and target of one shape and dtype, probabilities: `-(target log(x) + (1 - target) log(1 - x))` with
/// logarithms of at least -100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BinaryCrossEntropy;

/// Logarithms below this count as this, as in PyTorch.
const LOWEST_LOGARITHM: f64 = -100.0;
/// The least `x (1 - x)` that a gradient is divided by: PyTorch's, which is 1e-12 in `float32`.
const LEAST_VARIANCE: f64 = 1e-12f32 as f64;

/// `log(x)` and `log(1 - x)`, bounded below; NaN stays NaN.
fn logarithms(x: &Formula) -> [Formula; 2] {
    [x.log(), (-x).log1p()].map(|logarithm| {
        let lowest = logarithm.like(LOWEST_LOGARITHM);
        logarithm.lt(&lowest).choose(&lowest, &logarithm)
    })
}

impl Definition for BinaryCrossEntropy {
    fn name(&self) -> &'static str {
        "binary_cross_entropy"
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 2)?;
        let (x, target) = (&operands[0], &operands[1]);
        check::float(self.name(), x)?;
        check::shape(self.name(), target, x.shape(), "the target")?;
        check::dtype(self.name(), target, x.dtype())?;
        Ok((x.dtype(), x.shape().into()))
    }

    /// `-(t log(x) + (1 - t) log(1 - x))`.
    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (x, t) = (Formula::wide(&operands[0]), Formula::wide(&operands[1]));
        let [yes, no] = logarithms(&x);
        ((&t - 1.0) * no - t * yes).cast(operands[0].dtype()).term()
    }

    /// `(x - t) / max(x (1 - x), 1e-12)` for the input, `log(1 - x) - log(x)` for the target. Both are bounded
    /// like the loss (PyTorch's are not: they are infinite at 0 and 1).
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (g, x, t) =
            (Formula::wide(call.gradient), Formula::wide(&call.inputs[0]), Formula::wide(&call.inputs[1]));
        let dtype = call.output.dtype();
        let mut found = Vec::new();
        if call.needs[0] {
            let variance = &x * (1.0 - &x);
            let least = variance.like(LEAST_VARIANCE);
            found.push((0, (&g * (&x - t) / variance.max(&least)).cast(dtype).term()?));
        }
        if call.needs[1] {
            let [yes, no] = logarithms(&x);
            found.push((1, (g * (no - yes)).cast(dtype).term()?));
        }
        Ok(Some(gradients_for(2, found)))
    }

    fn samples() -> Vec<Sample> {
        let operand = |shape| SampleOperand::new(shape).probability();
        SHAPES.map(|shape| Sample::new(BinaryCrossEntropy, [operand(shape), operand(shape)])).to_vec()
    }
}
