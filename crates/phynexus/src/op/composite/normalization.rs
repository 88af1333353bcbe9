//! What the normalisations have in common: each standardises `x` over some axes, then scales and shifts it.

use super::{Operands, check, gradients_for};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// What a normalisation does to operands of given shapes.
pub(super) struct Plan {
    /// x is seen in this shape,
    pub(super) view: Dims,
    /// standardised over these axes of it,
    pub(super) axes: Axes,
    /// its mean subtracted first (or not),
    pub(super) centred: bool,
    pub(super) epsilon: f64,
    /// and scaled by parameters of this shape, broadcast against x's.
    pub(super) parameters: Dims,
    pub(super) weight: bool,
    pub(super) bias: bool,
}

/// The attributes that they share, for listings.
pub(super) fn attributes(epsilon: Scalar, weight: bool, bias: bool) -> String {
    let (weight, bias) = (if weight { ", weight" } else { "" }, if bias { ", bias" } else { "" });
    format!("epsilon={epsilon}{weight}{bias}")
}

/// The last `count` axes of `x`.
pub(super) fn check_last_axes<'a>(op: &'static str, x: &TensorType<'a>, count: usize) -> Result<&'a [usize]> {
    if count == 0 || count > x.rank() {
        let hint = format!("there are no {count} last axes to normalise");
        return Err(Error::shape(op, &[x.shape()], hint));
    }
    Ok(&x.shape()[x.rank() - count..])
}

/// That `x` has channels.
pub(super) fn check_channels(op: &'static str, x: &TensorType) -> Result<()> {
    if x.rank() < 2 {
        return Err(Error::shape(op, &[x.shape()], "the input must be (N, C, ..)"));
    }
    Ok(())
}

/// `x`, then `parameters` tensors of shape `own`, each of x's dtype or of the one in which x is computed.
pub(super) fn check_parameters(
    op: &'static str,
    operands: &[TensorType],
    parameters: usize,
    own: &[usize],
) -> Result<(DType, Dims)> {
    let x = &operands[0];
    check::count(op, operands, 1 + parameters)?;
    for parameter in &operands[1..] {
        check::shape(op, parameter, own, "weight, bias and statistics")?;
        if parameter.dtype() != x.dtype().compute() {
            check::dtype(op, parameter, x.dtype())?;
        }
    }
    Ok((x.dtype(), x.shape().into()))
}

/// The last `count` of these axes, and the shape in which parameters of their shape stretch against all.
pub(super) fn last_axes(shape: &[usize], count: usize) -> (Axes, Dims) {
    let (rank, first) = (shape.len(), shape.len().saturating_sub(count));
    let parameters = (0..rank).map(|axis| if axis < first { 1 } else { shape[axis] }).collect();
    (Axes::of(first..rank), parameters)
}

/// The shape in which one parameter a channel stretches against all axes.
pub(super) fn channels(shape: &[usize]) -> Dims {
    (0..shape.len()).map(|axis| if axis == 1 { shape[1] } else { 1 }).collect()
}

/// `x` standardised, and the reciprocal deviation it was multiplied by (axes kept as size 1).
fn standardise(x: &Formula, plan: &Plan) -> (Formula, Formula) {
    let (x, square) = match plan.centred {
        true => {
            let (mean, variance) = x.moments(plan.axes);
            (x - mean, variance)
        }
        false => (x.clone(), (x * x).mean(plan.axes)),
    };
    let reciprocal = (square + plan.epsilon).rsqrt();
    (x * &reciprocal, reciprocal)
}

/// `y`, standardised, times the weight and plus the bias, in the dtype of the operands.
pub(super) fn scaled(plan: &Plan, mut y: Formula, parameters: &[Term], dtype: DType) -> Result<Term> {
    let mut parameters = Operands(parameters);
    if let Some(weight) = parameters.next_if(plan.weight)? {
        y = y * Formula::wide(weight).reshape(&plan.parameters);
    }
    if let Some(bias) = parameters.next_if(plan.bias)? {
        y = y + Formula::wide(bias).reshape(&plan.parameters);
    }
    y.cast(dtype).term()
}

/// The normalisation by x's own statistics.
pub(super) fn body(plan: &Plan, operands: &[Term]) -> Result<Term> {
    let (dtype, shape) = (operands[0].dtype(), operands[0].shape());
    let x = Formula::wide(&operands[0]).reshape(&plan.view);
    let y = standardise(&x, plan).0.reshape(shape);
    scaled(plan, y, &operands[1..], dtype)
}

/// With the standardised input z, the reciprocal deviation r and `h = g * weight`: the input's gradient is
/// `r (h - mean(h) - z mean(h z))` (without `mean(h)` if not centred), weight's is `sum(g z)`, bias's is `sum(g)`.
/// z and r are recorded again from x, so nothing but the operands is kept for this.
pub(super) fn gradient(plan: &Plan, call: &Call) -> Result<Option<InputGradients>> {
    let (dtype, shape) = (call.inputs[0].dtype(), call.inputs[0].shape());
    let g = Formula::wide(call.gradient);
    let (z, reciprocal) = standardise(&Formula::wide(&call.inputs[0]).reshape(&plan.view), plan);
    let weight_place = 1;
    let bias_place = 1 + usize::from(plan.weight);
    let spread = Axes::of((0..shape.len()).filter(|&axis| plan.parameters[axis] == 1));
    let to_parameter = |per_element: Formula, place: usize| -> Result<(usize, Term)> {
        let parameter = &call.inputs[place];
        let sum = per_element.sum(spread).reshape(parameter.shape());
        Ok((place, sum.cast(parameter.dtype()).term()?))
    };
    let mut found = Vec::with_capacity(3);
    if call.needs[0] {
        let weight = || Formula::wide(&call.inputs[weight_place]).reshape(&plan.parameters);
        // If the weight is the same for all that is summed, the sums are those of its own gradient and of the bias's.
        let is_outside = plan.weight && spread == plan.axes && plan.view[..] == *shape;
        let h = if plan.weight && !is_outside { &g * weight() } else { g.clone() }.reshape(&plan.view);
        let projection = &z * (&h * &z).mean(plan.axes);
        let centred = if plan.centred { &h - h.mean(plan.axes) } else { h };
        let mut dx = (centred - projection) * &reciprocal;
        if is_outside {
            dx = dx * weight();
        }
        found.push((0, dx.reshape(shape).cast(dtype).term()?));
    }
    if plan.weight && call.needs[weight_place] {
        found.push(to_parameter(&g * z.reshape(shape), weight_place)?);
    }
    if plan.bias && call.needs[bias_place] {
        found.push(to_parameter(g, bias_place)?);
    }
    Ok(Some(gradients_for(call.inputs.len(), found)))
}
