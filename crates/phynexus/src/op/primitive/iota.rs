//! Indices.

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, need};
use crate::{
    DType, Result,
    op::reference::{counted, every_coordinate},
};

/// Each element is its index along `axis`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The axis.
    pub axis: usize,
}

impl Operation for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn operands(&self) -> Option<usize> {
        Some(0)
    }

    fn check(&self, node: &IrNode, _: &[&IrNode]) -> Check {
        need(self.axis < node.shape.len(), "no such axis")?;
        need(node.dtype != DType::Bool, "bool cannot count")
    }

    fn reference(&self, node: &IrNode, _: &[&OracleArray]) -> Result<Vec<Number>> {
        Ok(every_coordinate(&node.shape).map(|at| counted(at[self.axis], node.dtype)).collect())
    }

    fn samples() -> Vec<Sample> {
        let calls: [(&[usize], usize); 5] =
            [(&[0], 0), (&[5], 0), (&[3, 300], 0), (&[3, 300], 1), (&[2, 3, 4], 1)];
        calls.map(|(shape, axis)| Sample::primitive(Op::Iota(Iota { axis }), shape, [])).into()
    }
}
