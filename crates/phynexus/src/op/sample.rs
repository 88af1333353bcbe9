//! Calls of operations for tests: which operands, and what their values are. A test makes the values.

use std::fmt;

use smallvec::SmallVec;

use super::{Composite, Op, check::check_node, ir::IrNode, term::TensorType};
use crate::{DType, Result, shape::Dims};

/// An operation and operands that fit it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<SampleOperand>,
    /// The dtype and shape of a primitive's result. A composite computes them.
    result: (SampleDType, Dims),
    /// The dtypes to test, if the operation accepts them.
    dtypes: Vec<DType>,
}

/// An operand of a [`Sample`].
#[derive(Clone, Debug)]
pub struct SampleOperand {
    /// The shape.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: SampleDType,
    /// The range of the values.
    pub values: SampleValues,
}

/// The dtype of a [`SampleOperand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleDType {
    /// The floating-point dtype that is tested.
    Tested,
    /// The dtype in which bodies compute that one: `float32` for 16-bit floats.
    Compute,
    /// This one, whichever is tested.
    Fixed(DType),
}

/// The values of a [`SampleOperand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleValues {
    /// Small numbers of both signs; true and false.
    Signed,
    /// Small numbers above 0.
    Positive,
    /// Numbers from 0 to 1.
    Probability,
    /// Numbers of both signs, so small that their products with a row of small numbers have a small sum.
    Weights,
    /// Class indices: from 0 to one less than this number.
    Class(usize),
    /// Indices of this many rows, which may count from the last one: negative.
    Index(usize),
    /// Ascending numbers.
    Sorted,
}

impl Sample {
    /// Of a composite, in every floating-point dtype.
    pub(super) fn new(
        composite: impl Into<Composite>,
        operands: impl IntoIterator<Item = SampleOperand>,
    ) -> Sample {
        let op = Op::Composite(composite.into());
        Sample { dtypes: DType::FLOATS.to_vec(), ..Sample::primitive(op, &[], operands) }
    }

    /// Of a primitive with a result of this shape and of the tested dtype, in every dtype that it accepts.
    pub(super) fn primitive(
        op: Op,
        shape: &[usize],
        operands: impl IntoIterator<Item = SampleOperand>,
    ) -> Sample {
        let (result, dtypes) = ((SampleDType::Tested, shape.into()), DType::ALL.to_vec());
        Sample { op, operands: operands.into_iter().collect(), result, dtypes }
    }

    /// With a result of this dtype.
    pub(super) fn giving(self, dtype: DType) -> Sample {
        Sample { result: (SampleDType::Fixed(dtype), self.result.1), ..self }
    }

    /// In these dtypes only.
    pub(super) fn only(self, dtypes: &[DType]) -> Sample {
        Sample { dtypes: dtypes.to_vec(), ..self }
    }

    /// The dtypes to test; one if those of all operands are fixed.
    pub fn tested_dtypes(&self) -> Vec<DType> {
        let own = |operand: &SampleOperand| match operand.dtype {
            SampleDType::Fixed(dtype) => Some(dtype),
            _ => None,
        };
        match self.operands.iter().map(own).collect::<Option<Vec<DType>>>() {
            Some(own) if !own.is_empty() => own[..1].to_vec(),
            _ => self.dtypes.iter().copied().filter(|&tested| self.accepts(tested)).collect(),
        }
    }

    fn accepts(&self, tested: DType) -> bool {
        let leaf = |operand: &SampleOperand| IrNode {
            op: Op::Buffer,
            dtype: operand.dtype.for_tested(tested),
            shape: operand.shape.as_slice().into(),
            inputs: SmallVec::new(),
        };
        let operands: Vec<IrNode> = self.operands.iter().map(leaf).collect();
        let (dtype, shape) = (self.result.0.for_tested(tested), self.result.1.clone());
        let node = IrNode { op: self.op.clone(), dtype, shape, inputs: SmallVec::new() };
        check_node(&node, &operands.iter().collect::<Vec<_>>()).is_ok()
    }

    /// The dtype and shape of the result where this dtype is tested.
    ///
    /// # Errors
    /// If the operands do not fit a composite.
    pub fn result(&self, tested: DType) -> Result<(DType, Dims)> {
        let Op::Composite(composite) = &self.op else {
            return Ok((self.result.0.for_tested(tested), self.result.1.clone()));
        };
        let operands = self.operands.iter();
        let types = operands.map(|o| TensorType::new(o.dtype.for_tested(tested), &o.shape));
        composite.check(&types.collect::<Vec<_>>())
    }
}

impl fmt::Display for Sample {
    /// A composite's attributes or the primitive, then the operands' shapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = self.operands.iter().map(|operand| match operand.dtype {
            SampleDType::Fixed(dtype) => format!("{dtype} {:?}", operand.shape),
            _ => format!("{:?}", operand.shape),
        });
        let operands = operands.collect::<Vec<_>>().join(", ");
        match &self.op {
            Op::Composite(composite) => write!(f, "{} of [{operands}]", composite.attributes()),
            op if self.operands.is_empty() => write!(f, "{op:?} of shape {:?}", self.result.1),
            op => write!(f, "{op:?} of [{operands}]"),
        }
    }
}

impl SampleOperand {
    /// Of the tested dtype, with values of both signs.
    pub(super) fn new(shape: &[usize]) -> SampleOperand {
        SampleOperand { shape: shape.to_vec(), dtype: SampleDType::Tested, values: SampleValues::Signed }
    }
    /// In the dtype in which bodies compute.
    pub(super) fn compute(self) -> SampleOperand {
        SampleOperand { dtype: SampleDType::Compute, ..self }
    }
    /// In this dtype.
    pub(super) fn fixed(self, dtype: DType) -> SampleOperand {
        SampleOperand { dtype: SampleDType::Fixed(dtype), ..self }
    }
    pub(super) fn positive(self) -> SampleOperand {
        SampleOperand { values: SampleValues::Positive, ..self }
    }
    pub(super) fn weights(self) -> SampleOperand {
        SampleOperand { values: SampleValues::Weights, ..self }
    }
    pub(super) fn probability(self) -> SampleOperand {
        SampleOperand { values: SampleValues::Probability, ..self }
    }
    pub(super) fn class(self, classes: usize) -> SampleOperand {
        SampleOperand { values: SampleValues::Class(classes), ..self }
    }
    pub(super) fn index(self, rows: usize) -> SampleOperand {
        SampleOperand { values: SampleValues::Index(rows), ..self }
    }
    pub(super) fn sorted(self) -> SampleOperand {
        SampleOperand { values: SampleValues::Sorted, ..self }
    }
}

impl SampleDType {
    /// The dtype where this one is tested.
    pub fn for_tested(self, tested: DType) -> DType {
        match self {
            SampleDType::Tested => tested,
            SampleDType::Compute => tested.compute(),
            SampleDType::Fixed(dtype) => dtype,
        }
    }
}

/// Shapes that take different paths in kernels of elementwise functions: no axis, empty, one element, odd tails, rows,
/// more than a tile.
pub const ELEMENTWISE: [&[usize]; 8] = [&[], &[0], &[1], &[7], &[3, 0, 2], &[3, 1, 5], &[2, 515], &[4133]];

/// Shapes with one element, a short and a long last axis, and one that a GPU splits among groups.
pub(super) const SHAPES: [&[usize]; 5] = [&[1], &[7], &[3, 40], &[2, 3, 5], &[2, 1500]];

/// A function of single elements on every shape, empty ones and scalars too.
pub(super) fn elementwise(composite: impl Into<Composite>) -> Vec<Sample> {
    let composite = composite.into();
    let shapes = SHAPES.into_iter().chain([&[][..], &[0, 2]]);
    shapes.map(|shape| Sample::new(composite.clone(), [SampleOperand::new(shape)])).collect()
}

/// A function along an axis: every axis of every shape.
pub(super) fn along_axes<C: Into<Composite>>(composite: impl Fn(usize) -> C) -> Vec<Sample> {
    let axes = SHAPES.into_iter().flat_map(|shape| (0..shape.len()).map(move |axis| (shape, axis)));
    axes.map(|(shape, axis)| Sample::new(composite(axis), [SampleOperand::new(shape)])).collect()
}

#[cfg(test)]
mod tests {
    use crate::op::samples;

    #[test]
    fn every_sample_is_tested() {
        for sample in samples() {
            let tested = sample.tested_dtypes();
            assert!(!tested.is_empty(), "{} ({sample}): no dtype is accepted", sample.op.name());
            assert!(tested.into_iter().all(|dtype| sample.accepts(dtype)), "{} ({sample})", sample.op.name());
        }
    }
}
