//! Another order of axes.

use smallvec::SmallVec;

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    same_dtype,
};
use crate::{Result, op::reference::every_coordinate};

/// Axis i of the result is axis `permutation[i]` of the input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permute(pub SmallVec<[u8; 8]>);

impl Operation for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let (rank, from) = (node.shape.len(), &inputs[0].shape);
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let all = from.len() == rank && sorted.iter().map(|&axis| usize::from(axis)).eq(0..rank);
        need(all, "not a permutation of the axes")?;
        let moved = self.0.iter().zip(&node.shape).all(|(&axis, &size)| from[usize::from(axis)] == size);
        need(moved, "the shape is not the permuted one")
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let mut inverse = vec![0; self.0.len()];
        self.0.iter().enumerate().for_each(|(place, &axis)| inverse[usize::from(axis)] = place);
        call.each(|_| call.gradient().permute(&inverse))
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let element = |at: crate::shape::Dims| {
            let mut source = at.clone();
            self.0.iter().zip(&at).for_each(|(&axis, &c)| source[usize::from(axis)] = c);
            inputs[0].at(&source)
        };
        Ok(every_coordinate(&node.shape).map(element).collect())
    }

    fn samples() -> Vec<Sample> {
        let calls: [(&[u8], &[usize], &[usize]); 3] =
            [(&[1, 0], &[31, 47], &[47, 31]), (&[2, 0, 1], &[2, 3, 5], &[5, 2, 3]), (&[0], &[4], &[4])];
        let sample = |(order, from, to): (&[u8], &[usize], &[usize])| {
            Sample::primitive(Op::Permute(Permute(order.into())), to, [SampleOperand::new(from)])
        };
        calls.map(sample).into()
    }
}
