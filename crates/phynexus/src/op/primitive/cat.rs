//! Concatenation.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    same_dtype,
};
use crate::{
    Result,
    op::{reference::every_coordinate, term::Term},
    shape::Dims,
};

/// Concatenates the inputs along `axis`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cat {
    /// The axis.
    pub axis: usize,
}

impl Operation for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }

    fn operands(&self) -> Option<usize> {
        None
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let (axis, rank) = (self.axis, node.shape.len());
        need(!inputs.is_empty() && axis < rank, "nothing to concatenate")?;
        let fits = |i: &&IrNode| {
            i.shape.len() == rank && (0..rank).all(|a| a == axis || i.shape[a] == node.shape[a])
        };
        need(inputs.iter().all(fits), "other axes differ")?;
        let size = inputs.iter().try_fold(0usize, |size, i| size.checked_add(i.shape[axis]));
        need(size == Some(node.shape[axis]), "sizes do not add up")
    }

    /// Each input gets its slice of the gradient.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let size = |part: &Term| part.shape()[self.axis];
        let mut end = 0;
        let ends: Vec<usize> = call
            .inputs
            .iter()
            .map(|part| {
                end += size(part);
                end
            })
            .collect();
        call.each(|i| {
            let size = size(&call.inputs[i]);
            call.gradient().narrow(self.axis, ends[i] - size, size)
        })
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let axis = self.axis;
        let element = |mut at: Dims| {
            let mut part = 0;
            while at[axis] >= inputs[part].shape[axis] {
                at[axis] -= inputs[part].shape[axis];
                part += 1;
            }
            inputs[part].at(&at)
        };
        Ok(every_coordinate(&node.shape).map(element).collect())
    }

    fn samples() -> Vec<Sample> {
        let sample = |axis, to: &[usize], parts: &[&[usize]]| {
            Sample::primitive(Op::Cat(Cat { axis }), to, parts.iter().map(|part| SampleOperand::new(part)))
        };
        vec![
            sample(0, &[5], &[&[2], &[0], &[3]]),
            sample(1, &[3, 303], &[&[3, 300], &[3, 3]]),
            sample(1, &[2, 4, 5], &[&[2, 1, 5], &[2, 3, 5]]),
            sample(0, &[4, 2], &[&[4, 2]]),
        ]
    }
}
