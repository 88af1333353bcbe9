//! A tensor of equal elements.

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample};
use crate::{DType, DTypeKind, Result, Scalar};

/// A tensor filled with this scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant(pub Scalar);

impl Constant {
    /// Returns whether plans treat the number as one that may differ from run to run. Others decide algebra: a product
    /// with 1 or a sum with 0 is no operation, and 0.5 or 2 as an exponent is a root or a square.
    pub(crate) fn may_vary(&self) -> bool {
        let number = self.0.as_f64();
        self.0.kind() != DTypeKind::Bool
            && number.is_finite()
            && ![0.0, 0.5, 1.0, 2.0].contains(&number.abs())
    }
}

impl Operation for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn operands(&self) -> Option<usize> {
        Some(0)
    }

    fn check(&self, _: &IrNode, _: &[&IrNode]) -> Check {
        Ok(())
    }

    fn reference(&self, node: &IrNode, _: &[&OracleArray]) -> Result<Vec<Number>> {
        Ok(OracleArray::filled(self.0, node.dtype, &node.shape).elements)
    }

    fn samples() -> Vec<Sample> {
        let sample = |dtype: DType, shape: &[usize]| {
            let value = if dtype.is_float() { Scalar::Float(-2.5) } else { Scalar::Int(100) };
            Sample::primitive(Op::Constant(Constant(value.cast(dtype))), shape, []).only(&[dtype])
        };
        let shapes: [&[usize]; 4] = [&[], &[0], &[5], &[3, 300]];
        DType::ALL.into_iter().flat_map(|dtype| shapes.map(|shape| sample(dtype, shape))).collect()
    }
}
