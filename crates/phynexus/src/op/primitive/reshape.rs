//! Another shape of the same elements.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    same_dtype,
};
use crate::Result;

/// Changes the shape; elements keep their row-major order.
#[derive(Debug)]
pub struct Reshape;

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        need(inputs[0].len() == node.len(), "another number of elements")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|i| call.gradient().reshape(call.inputs[i].shape()))
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        Ok(inputs[0].elements.clone())
    }

    fn samples() -> Vec<Sample> {
        let shapes: [(&[usize], &[usize]); 4] =
            [(&[4, 6], &[2, 12]), (&[6], &[1, 6, 1]), (&[], &[1, 1]), (&[0, 3], &[3, 0, 5])];
        shapes.map(|(from, to)| Sample::primitive(Op::Reshape, to, [SampleOperand::new(from)])).into()
    }
}
