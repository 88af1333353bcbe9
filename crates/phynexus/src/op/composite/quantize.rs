//! What linear quantisation and its inverse have in common.

use super::{
    Composite, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result,
    op::{formula::Formula, term::TensorType},
    shape::Dims,
};

pub(super) fn attributes(axis: Option<usize>) -> String {
    axis.map(|axis| format!("axis={axis}")).unwrap_or_default()
}

/// Scale and zero point are scalars, or one element an index of the axis.
pub(super) fn check_parameters(op: &'static str, axis: Option<usize>, operands: &[TensorType]) -> Result<()> {
    check::count(op, operands, 3)?;
    let (x, scale, zero_point) = (&operands[0], &operands[1], &operands[2]);
    check::float(op, scale)?;
    let expected: Dims = match axis {
        Some(axis) => {
            check::axis(op, x, axis)?;
            [x.shape()[axis]].as_slice().into()
        }
        None => Dims::new(),
    };
    check::shape(op, scale, &expected, "the scale")?;
    check::shape(op, zero_point, &expected, "the zero point")
}

pub(super) fn check_integer(op: &'static str, tensor: &TensorType) -> Result<()> {
    if tensor.dtype().is_integer() {
        return Ok(());
    }
    Err(Error::dtype(op, &[tensor.dtype()], "quantised values and their zero point are integers"))
}

/// A parameter in a shape that stretches against `rank` axes.
pub(super) fn along(parameter: &Formula, axis: Option<usize>, rank: usize) -> Formula {
    parameter.then(|p| {
        let mut shape = Dims::from_elem(1, rank);
        if let Some(axis) = axis {
            shape[axis] = p.len();
        }
        Formula::of(p).reshape(&shape).term()
    })
}

/// The shape of the first operand in samples.
pub(super) const SAMPLE_SHAPE: [usize; 2] = [6, 9];

/// Calls with one scale for all, and with one an index of each axis; `call` makes the composite and its first operand
/// from the axis and the quantised dtype.
pub(super) fn samples<C: Into<Composite>>(
    call: impl Fn(Option<usize>, DType) -> (C, SampleOperand),
) -> Vec<Sample> {
    let parameters = [(None, DType::I8), (Some(1), DType::U8), (Some(0), DType::I8)];
    let with = |(axis, dtype): (Option<usize>, DType)| {
        let (composite, first) = call(axis, dtype);
        let shape: Vec<usize> = axis.map(|axis| SAMPLE_SHAPE[axis]).into_iter().collect();
        let parameter = || SampleOperand::new(&shape).positive();
        Sample::new(composite, [first, parameter(), parameter().fixed(dtype)])
    };
    parameters.map(with).to_vec()
}
