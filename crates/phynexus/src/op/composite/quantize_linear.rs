//! ONNX's linear quantisation.

use super::{
    Definition, check, quantize,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Combine,
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs x, scale, zero point (the result's dtype; like scale `[]`, or one an index of the axis). `round(x / scale) +
/// zero_point`, saturated: ONNX's operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuantizeLinear {
    /// The axis that scale and zero point vary along.
    pub axis: Option<usize>,
}

impl Definition for QuantizeLinear {
    fn name(&self) -> &'static str {
        "quantize_linear"
    }

    fn attributes(&self) -> String {
        quantize::attributes(self.axis)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        quantize::check_parameters(self.name(), self.axis, operands)?;
        let (x, zero_point) = (&operands[0], &operands[2]);
        check::dtype(self.name(), x, operands[1].dtype())?;
        quantize::check_integer(self.name(), zero_point)?;
        // Limits of wider integers are not numbers of float32, so that values could not be saturated there.
        if zero_point.dtype().size() > 2 {
            let hint = "values are quantised to integers of 8 or 16 bits, as in ONNX";
            return Err(Error::dtype(self.name(), &[zero_point.dtype()], hint));
        }
        Ok((zero_point.dtype(), x.shape().into()))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (target, rank) = (operands[2].dtype(), operands[0].rank());
        let wide = operands[0].dtype().compute();
        let x = Formula::of(&operands[0]).cast(wide);
        let scale = quantize::along(&Formula::of(&operands[1]).cast(wide), self.axis, rank);
        let zero_point = quantize::along(&Formula::of(&operands[2]).cast(wide), self.axis, rank);
        // A cast to a narrow integer may wrap, so the target's limits are applied first.
        let limit = |combine: Combine| match combine.identity(target) {
            Scalar::Int(i) => i as f64,
            other => other.as_f64(),
        };
        let rounded = (x / scale).round() + zero_point;
        let (low, high) = (rounded.like(limit(Combine::Max)), rounded.like(limit(Combine::Min)));
        rounded.max(&low).min(&high).cast(target).term()
    }

    fn samples() -> Vec<Sample> {
        quantize::samples(|axis, _| (QuantizeLinear { axis }, SampleOperand::new(&quantize::SAMPLE_SHAPE)))
    }
}
