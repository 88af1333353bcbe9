//! Conversions: of values and of bits.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need,
    same_shape,
};
use crate::{
    DType, Error, Result,
    op::{reference::elementwise, sample::ELEMENTWISE},
};

/// Converts the dtype, as [`Scalar::cast`](crate::Scalar::cast). Floats are truncated to integers: they saturate at 64
/// bits, then wrap, and NaN gives 0. Integers wrap. Conversion to `bool` is `!= 0`.
#[derive(Debug)]
pub struct Cast;

impl Operation for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let float8 = |dtype: DType| dtype.float8().is_some();
        if float8(call.output.dtype()) || float8(call.inputs[0].dtype()) {
            return Err(Error::NoGradient {
                op: "cast",
                hint: "a gradient in 8 bits needs a scale of its own: detach() the operand first".to_owned(),
            });
        }
        call.each(|i| call.gradient().cast(call.inputs[i].dtype()))
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        if inputs[0].dtype == node.dtype {
            return Ok(inputs[0].elements.clone());
        }
        Ok(inputs[0].elements.iter().map(|&x| elementwise::cast(x, node.dtype)).collect())
    }

    fn samples() -> Vec<Sample> {
        DType::ALL.into_iter().flat_map(|to| conversions(Op::Cast, to)).collect()
    }
}

/// Reinterprets the bits as another dtype of the same size.
#[derive(Debug)]
pub struct Bitcast;

impl Operation for Bitcast {
    fn name(&self) -> &'static str {
        "bitcast"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)?;
        need(inputs[0].dtype.size() == node.dtype.size(), "another size of element")
    }

    fn gradient(&self, _: &Call) -> Result<Option<InputGradients>> {
        Err(Error::NoGradient {
            op: "bitcast",
            hint: "bits do not vary smoothly: detach() the operand first".to_owned(),
        })
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let from = inputs[0].dtype;
        if from == node.dtype {
            return Ok(inputs[0].elements.clone());
        }
        Ok(inputs[0].elements.iter().map(|&x| elementwise::bitcast(x, from, node.dtype)).collect())
    }

    fn samples() -> Vec<Sample> {
        // The bits of a bool must be 0 or 1.
        let results = DType::ALL.into_iter().filter(|to| *to != DType::Bool);
        results.flat_map(|to| conversions(Op::Bitcast, to)).collect()
    }
}

fn conversions(op: Op, to: DType) -> [Sample; ELEMENTWISE.len()] {
    ELEMENTWISE.map(|shape| Sample::primitive(op.clone(), shape, [SampleOperand::new(shape)]).giving(to))
}
