//! ONNX's linear quantisation.

use super::Composite;
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Combine,
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Scale and zero point are scalars, or one element an index of the axis.
fn check_parameters(composite: &Composite, axis: Option<usize>, inputs: &[TensorType]) -> Result<()> {
    composite.check_count(inputs, 3)?;
    let (x, scale, zero_point) = (&inputs[0], &inputs[1], &inputs[2]);
    composite.check_float(scale)?;
    let expected: Dims = match axis {
        Some(axis) => {
            composite.check_axis(x, axis)?;
            [x.shape()[axis]].as_slice().into()
        }
        None => Dims::new(),
    };
    composite.check_shape(scale, &expected, "the scale")?;
    composite.check_shape(zero_point, &expected, "the zero point")
}

fn check_integer(composite: &Composite, tensor: &TensorType) -> Result<()> {
    if tensor.dtype().is_integer() {
        return Ok(());
    }
    Err(Error::dtype(
        composite.name(),
        &[tensor.dtype()],
        "quantised values and their zero point are integers",
    ))
}

pub(super) fn check_quantize(
    composite: &Composite,
    axis: Option<usize>,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    check_parameters(composite, axis, inputs)?;
    composite.check_dtype(&inputs[0], inputs[1].dtype())?;
    check_integer(composite, &inputs[2])?;
    // Limits of wider integers are not numbers of float32, so that values could not be saturated there.
    if inputs[2].dtype().size() > 2 {
        let hint = "values are quantised to integers of 8 or 16 bits, as in ONNX";
        return Err(Error::dtype(composite.name(), &[inputs[2].dtype()], hint));
    }
    Ok((inputs[2].dtype(), inputs[0].shape().into()))
}

pub(super) fn check_dequantize(
    composite: &Composite,
    axis: Option<usize>,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    check_parameters(composite, axis, inputs)?;
    check_integer(composite, &inputs[0])?;
    composite.check_dtype(&inputs[2], inputs[0].dtype())?;
    Ok((inputs[1].dtype(), inputs[0].shape().into()))
}

/// A parameter in a shape that stretches against `rank` axes.
fn along(parameter: &Formula, axis: Option<usize>, rank: usize) -> Formula {
    parameter.then(|p| {
        let mut shape = Dims::from_elem(1, rank);
        if let Some(axis) = axis {
            shape[axis] = p.len();
        }
        Formula::of(p).reshape(&shape).term()
    })
}

pub(super) fn quantize(inputs: &[Term], axis: Option<usize>) -> Result<Term> {
    let (target, rank) = (inputs[2].dtype(), inputs[0].rank());
    let wide = inputs[0].dtype().compute();
    let x = Formula::of(&inputs[0]).cast(wide);
    let scale = along(&Formula::of(&inputs[1]).cast(wide), axis, rank);
    let zero_point = along(&Formula::of(&inputs[2]).cast(wide), axis, rank);
    // A cast to a narrow integer may wrap, so the target's limits are applied first.
    let limit = |combine: Combine| match combine.identity(target) {
        Scalar::Int(i) => i as f64,
        other => other.as_f64(),
    };
    let rounded = (x / scale).round() + zero_point;
    let (low, high) = (rounded.like(limit(Combine::Max)), rounded.like(limit(Combine::Min)));
    rounded.max(&low).min(&high).cast(target).term()
}

pub(super) fn dequantize(inputs: &[Term], axis: Option<usize>) -> Result<Term> {
    let (target, rank) = (inputs[1].dtype(), inputs[0].rank());
    let wide = target.compute();
    let q = Formula::of(&inputs[0]).cast(wide);
    let zero_point = along(&Formula::of(&inputs[2]).cast(wide), axis, rank);
    let scale = along(&Formula::of(&inputs[1]).cast(wide), axis, rank);
    ((q - zero_point) * scale).cast(target).term()
}
