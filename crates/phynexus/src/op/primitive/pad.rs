//! Padding.

use smallvec::SmallVec;

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    same_dtype,
};
use crate::{
    DType, Result, Scalar,
    op::reference::{every_coordinate, from_scalar},
    shape::Dims,
};

/// Pads with a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// One `(before, after)` pair per axis.
    pub padding: SmallVec<[(usize, usize); 4]>,
    /// The value of the padding.
    pub value: Scalar,
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_dtype(node, inputs)?;
        let (rank, from) = (node.shape.len(), &inputs[0].shape);
        need(self.padding.len() == rank && from.len() == rank, "expected one padding per axis")?;
        let grown = |axis: usize| {
            let (before, after) = self.padding[axis];
            let size = before.checked_add(from[axis]).and_then(|size| size.checked_add(after));
            size == Some(node.shape[axis])
        };
        need((0..rank).all(grown), "not the padded shape")
    }

    /// Removes the padding.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let shape = call.inputs[0].shape();
        call.each(|_| {
            (0..shape.len())
                .fold(call.gradient(), |g, axis| g.narrow(axis, self.padding[axis].0, shape[axis]))
        })
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (x, value) = (inputs[0], from_scalar(self.value.cast(node.dtype)));
        let element = |at: Dims| {
            let unpadded = at.iter().zip(&self.padding).map(|(&c, &(before, _))| c.checked_sub(before));
            let inside = unpadded.zip(&x.shape).map(|(c, &size)| c.filter(|c| *c < size));
            inside.collect::<Option<Dims>>().map_or(value, |source| x.at(&source))
        };
        Ok(every_coordinate(&node.shape).map(element).collect())
    }

    fn samples() -> Vec<Sample> {
        let sample = |dtype: DType, padding: &[(usize, usize)], from: &[usize], to: &[usize]| {
            let pad = Pad { padding: padding.into(), value: Scalar::Int(1).cast(dtype) };
            Sample::primitive(Op::Pad(pad), to, [SampleOperand::new(from)]).only(&[dtype])
        };
        let samples = |dtype| {
            [
                sample(dtype, &[(1, 2)], &[5], &[8]),
                sample(dtype, &[(0, 0), (2, 1)], &[3, 300], &[3, 303]),
                sample(dtype, &[(1, 1)], &[0], &[2]),
            ]
        };
        DType::ALL.into_iter().flat_map(samples).collect()
    }
}
