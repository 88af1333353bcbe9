//! Copies to a device and to a row-major buffer.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand,
    same_dtype, same_shape,
};
use crate::{
    Result,
    op::{reference::elementwise::stored, term::Term},
};

/// Copies the data to the node's device.
#[derive(Debug)]
pub struct Copy;

impl Operation for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs).and(same_shape(node, inputs))
    }

    /// The gradient goes back to the operand's device.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let back =
            |i: usize, g: &Term| call.inputs[i].record_beside(Op::Copy, g.dtype(), g.shape().into(), &[g]);
        call.each(|i| call.gradient().then(|g| back(i, g)))
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        Ok(stored(inputs[0]))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::primitive(Op::Copy, &[3, 5], [SampleOperand::new(&[3, 5])])]
    }
}

/// Copies the values to a row-major buffer.
#[derive(Debug)]
pub struct Contiguous;

impl Operation for Contiguous {
    fn name(&self) -> &'static str {
        "contiguous"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs).and(same_shape(node, inputs))
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|_| call.gradient())
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        Ok(stored(inputs[0]))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::primitive(Op::Contiguous, &[3, 5], [SampleOperand::new(&[3, 5])])]
    }
}
