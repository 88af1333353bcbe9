//! Checks of operands. `op` is the composite's name in messages.

use crate::{DType, Error, Result, op::term::TensorType, shape::Dims, text::show_shape};

pub(super) fn count(op: &'static str, operands: &[TensorType], expected: usize) -> Result<()> {
    if operands.len() == expected {
        return Ok(());
    }
    Err(Error::argument(op, format!("takes {expected} tensors, {} were given", operands.len())))
}

pub(super) fn axis(op: &'static str, x: &TensorType, axis: usize) -> Result<()> {
    if axis < x.rank() {
        return Ok(());
    }
    Err(Error::Axis { op, axis: axis as i64, shape: x.shape().to_vec() })
}

pub(super) fn float(op: &'static str, x: &TensorType) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::dtype(op, &[x.dtype()], "convert to a floating-point dtype with .to_dtype()"))
}

pub(super) fn dtype(op: &'static str, x: &TensorType, expected: DType) -> Result<()> {
    if x.dtype() == expected {
        return Ok(());
    }
    Err(Error::dtype(op, &[x.dtype(), expected], "operands have one dtype: convert with .to_dtype()"))
}

/// `what` is the tensor's name in the message.
pub(super) fn shape(op: &'static str, x: &TensorType, expected: &[usize], what: &str) -> Result<()> {
    if x.shape() == expected {
        return Ok(());
    }
    Err(Error::shape(op, &[x.shape()], format!("{what} must have shape {}", show_shape(expected))))
}

/// One operand of a floating-point dtype; the result has its dtype and shape.
pub(super) fn one_float(op: &'static str, operands: &[TensorType]) -> Result<(DType, Dims)> {
    count(op, operands, 1)?;
    float(op, &operands[0])?;
    Ok((operands[0].dtype(), operands[0].shape().into()))
}

/// One operand of a floating-point dtype that has this axis; the result has its dtype and shape.
pub(super) fn one_float_with_axis(
    op: &'static str,
    operands: &[TensorType],
    axis: usize,
) -> Result<(DType, Dims)> {
    count(op, operands, 1)?;
    self::axis(op, &operands[0], axis)?;
    one_float(op, operands)
}
