//! The inverse of ONNX's linear quantisation.

use super::{
    Definition, check, quantize,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Result,
    op::{
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Inputs q, scale, zero point. `(q - zero_point) * scale`, in scale's dtype: ONNX's operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DequantizeLinear {
    /// The axis that scale and zero point vary along.
    pub axis: Option<usize>,
}

impl Definition for DequantizeLinear {
    fn name(&self) -> &'static str {
        "dequantize_linear"
    }

    fn attributes(&self) -> String {
        quantize::attributes(self.axis)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        quantize::check_parameters(self.name(), self.axis, operands)?;
        let q = &operands[0];
        quantize::check_integer(self.name(), q)?;
        check::dtype(self.name(), &operands[2], q.dtype())?;
        Ok((operands[1].dtype(), q.shape().into()))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (target, rank) = (operands[1].dtype(), operands[0].rank());
        let wide = target.compute();
        let q = Formula::of(&operands[0]).cast(wide);
        let zero_point = quantize::along(&Formula::of(&operands[2]).cast(wide), self.axis, rank);
        let scale = quantize::along(&Formula::of(&operands[1]).cast(wide), self.axis, rank);
        ((q - zero_point) * scale).cast(target).term()
    }

    fn samples() -> Vec<Sample> {
        quantize::samples(|axis, dtype| {
            (DequantizeLinear { axis }, SampleOperand::new(&quantize::SAMPLE_SHAPE).fixed(dtype))
        })
    }
}
