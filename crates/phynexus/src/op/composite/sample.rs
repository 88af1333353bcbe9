//! Calls of composites for tests: which operands, and what their values are. A test makes the values.

use std::fmt;

use super::Composite;
use crate::DType;

/// A composite and operands that fit it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The composite.
    pub composite: Composite,
    /// Its operands.
    pub operands: Vec<SampleOperand>,
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
    /// Class indices: from 0 to one less than this number.
    Class(usize),
}

impl Sample {
    pub(super) fn new(
        composite: impl Into<Composite>,
        operands: impl IntoIterator<Item = SampleOperand>,
    ) -> Sample {
        Sample { composite: composite.into(), operands: operands.into_iter().collect() }
    }

    /// The dtypes to test: every floating-point dtype, or only the operands' own where they are fixed.
    pub fn tested_dtypes(&self) -> Vec<DType> {
        let own = self.operands.iter().map(|operand| match operand.dtype {
            SampleDType::Fixed(dtype) => Some(dtype),
            _ => None,
        });
        match own.collect::<Option<Vec<DType>>>() {
            Some(own) => own.into_iter().take(1).collect(),
            None => DType::FLOATS.to_vec(),
        }
    }
}

impl fmt::Display for Sample {
    /// The attributes, then the operands' shapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = self.operands.iter().map(|operand| match operand.dtype {
            SampleDType::Fixed(dtype) => format!("{dtype} {:?}", operand.shape),
            _ => format!("{:?}", operand.shape),
        });
        let operands = operands.collect::<Vec<_>>().join(", ");
        write!(f, "{} of [{operands}]", self.composite.attributes())
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
    pub(super) fn probability(self) -> SampleOperand {
        SampleOperand { values: SampleValues::Probability, ..self }
    }
    pub(super) fn class(self, classes: usize) -> SampleOperand {
        SampleOperand { values: SampleValues::Class(classes), ..self }
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
