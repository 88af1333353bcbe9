//! Positions of extremes.

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need};
use crate::{
    DType, Result,
    op::{
        Combine,
        reference::{every_coordinate, first_extreme},
    },
    shape::Dims,
};

/// The index (`int64`) of the maximum or minimum along an axis, which becomes size 1. The first of equal elements
/// wins; NaN counts as the extreme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    /// `Max` or `Min`.
    pub combine: Combine,
    /// The axis.
    pub axis: usize,
}

impl Operation for ArgReduce {
    fn name(&self) -> &'static str {
        if self.combine == Combine::Min { "argmin" } else { "argmax" }
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        need(matches!(self.combine, Combine::Max | Combine::Min), "only extremes have a place")?;
        need(node.dtype == DType::I64, "places are int64")?;
        need(self.axis < inputs[0].shape.len(), "no such axis")?;
        need(reduced(&inputs[0].shape, self.axis) == node.shape, "not the reduced shape")?;
        need(node.is_empty() || !inputs[0].is_empty(), "an empty axis has no maximum or minimum")
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let x = inputs[0];
        let place = |mut at: Dims| {
            let value = |i: usize| {
                at[self.axis] = i;
                x.at(&at)
            };
            let values: Vec<Number> = (0..x.shape[self.axis]).map(value).collect();
            first_extreme(self.combine, &values)
        };
        Ok(every_coordinate(&node.shape).map(place).collect())
    }

    fn samples() -> Vec<Sample> {
        let calls: [(&[usize], usize); 5] =
            [(&[1], 0), (&[300], 0), (&[4, 50], 1), (&[50, 4], 0), (&[3, 4, 5], 1)];
        let sample = |combine, (shape, axis): (&[usize], usize)| {
            let op = Op::ArgReduce(ArgReduce { combine, axis });
            let result = reduced(shape, axis);
            Sample::primitive(op, &result, [SampleOperand::new(shape)]).giving(DType::I64)
        };
        let extremes = [Combine::Max, Combine::Min];
        extremes.into_iter().flat_map(|combine| calls.map(|call| sample(combine, call))).collect()
    }
}

/// The shape with this axis reduced to size 1.
fn reduced(shape: &[usize], axis: usize) -> Dims {
    let mut reduced = Dims::from_slice(shape);
    reduced[axis] = 1;
    reduced
}
