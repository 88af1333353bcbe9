//! Broadcasting.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    reduce::Axes, same_dtype,
};
use crate::{Result, op::reference::every_coordinate, shape::Dims};

/// Broadcasts axes of size 1 to the node's shape (of the same rank).
#[derive(Debug)]
pub struct Expand;

impl Operation for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let fits = inputs[0].shape.len() == node.shape.len()
            && inputs[0].shape.iter().zip(&node.shape).all(|(&from, &to)| from == to || from == 1);
        need(fits, "only axes of size 1 are repeated")
    }

    /// The sum over the axes that were expanded from 1.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let (from, to) = (call.inputs[0].shape(), call.gradient.shape());
        let axes = Axes::of((0..from.len()).filter(|&axis| from[axis] == 1 && to[axis] != 1));
        call.each(|_| if axes == Axes::default() { call.gradient() } else { call.gradient().sum(axes) })
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let element = |mut at: Dims| {
            at.iter_mut().zip(&inputs[0].shape).for_each(|(c, &size)| *c = if size == 1 { 0 } else { *c });
            inputs[0].at(&at)
        };
        Ok(every_coordinate(&node.shape).map(element).collect())
    }

    fn samples() -> Vec<Sample> {
        let shapes: [(&[usize], &[usize]); 2] = [(&[3, 1, 4], &[3, 5, 4]), (&[1, 1], &[0, 7])];
        shapes.map(|(from, to)| Sample::primitive(Op::Expand, to, [SampleOperand::new(from)])).into()
    }
}
