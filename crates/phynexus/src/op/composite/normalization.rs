//! Normalisations: over the last axes, over groups of channels, over a batch. All of them standardise `x` over some
//! axes, then scale and shift.

use super::{Composite, Operands, gradients_for};
use crate::{
    DType, Error, Result,
    op::{
        Axes,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::{Dims, element_count},
};

/// What a normalisation does to operands of given shapes.
struct Plan {
    /// x is seen in this shape,
    view: Dims,
    /// standardised over these axes of it,
    axes: Axes,
    /// its mean subtracted first (or not),
    centred: bool,
    epsilon: f64,
    /// and scaled by parameters of this shape, broadcast against x's.
    parameters: Dims,
    weight: bool,
    bias: bool,
}

fn plan(composite: &Composite, shape: &[usize]) -> Result<Plan> {
    let rank = shape.len();
    let channels = || (0..rank).map(|axis| if axis == 1 { shape[1] } else { 1 }).collect::<Dims>();
    let last = |axes: usize| {
        let first = rank.saturating_sub(axes);
        let parameters = (0..rank).map(|axis| if axis < first { 1 } else { shape[axis] }).collect::<Dims>();
        (Axes::of(first..rank), parameters)
    };
    match *composite {
        Composite::LayerNorm { axes, epsilon, weight, bias } => {
            let (axes, parameters) = last(axes);
            Ok(Plan {
                view: shape.into(),
                axes,
                centred: true,
                epsilon: epsilon.as_f64(),
                parameters,
                weight,
                bias,
            })
        }
        Composite::RmsNorm { axes, epsilon, weight } => {
            let (axes, parameters) = last(axes);
            let epsilon = epsilon.as_f64();
            Ok(Plan { view: shape.into(), axes, centred: false, epsilon, parameters, weight, bias: false })
        }
        Composite::GroupNorm { groups, epsilon, weight, bias } => {
            let size = shape[1] / groups * element_count(&shape[2..]);
            let view = Dims::from_slice(&[shape[0], groups, size]);
            let epsilon = epsilon.as_f64();
            Ok(Plan {
                view,
                axes: Axes::of([2]),
                centred: true,
                epsilon,
                parameters: channels(),
                weight,
                bias,
            })
        }
        Composite::BatchNorm { epsilon, weight, bias, .. } => {
            let axes = Axes::of((0..rank).filter(|&axis| axis != 1));
            let epsilon = epsilon.as_f64();
            Ok(Plan {
                view: shape.into(),
                axes,
                centred: true,
                epsilon,
                parameters: channels(),
                weight,
                bias,
            })
        }
        _ => Err(Error::internal("normalization", composite.name())),
    }
}

pub(super) fn check(composite: &Composite, inputs: &[TensorType]) -> Result<(DType, Dims)> {
    let x = &inputs[0];
    let shape = x.shape();
    composite.check_float(x)?;
    let by_channel = matches!(composite, Composite::GroupNorm { .. } | Composite::BatchNorm { .. });
    if by_channel && x.rank() < 2 {
        return Err(Error::shape(composite.name(), &[shape], "the input must be (N, C, ..)"));
    }
    if let Composite::GroupNorm { groups, .. } = *composite
        && (groups == 0 || !shape[1].is_multiple_of(groups))
    {
        let hint = format!("{} channels cannot form {groups} equal groups", shape[1]);
        return Err(Error::shape(composite.name(), &[shape], hint));
    }
    if let Composite::LayerNorm { axes, .. } | Composite::RmsNorm { axes, .. } = *composite
        && (axes == 0 || axes > x.rank())
    {
        return Err(Error::shape(
            composite.name(),
            &[shape],
            format!("there are no {axes} last axes to normalise"),
        ));
    }
    let plan = plan(composite, shape)?;
    let given = matches!(composite, Composite::BatchNorm { training: false, .. });
    let expected = 1 + 2 * usize::from(given) + usize::from(plan.weight) + usize::from(plan.bias);
    composite.check_count(inputs, expected)?;
    let own: Dims = match *composite {
        Composite::LayerNorm { axes, .. } | Composite::RmsNorm { axes, .. } => {
            shape[x.rank() - axes..].into()
        }
        _ => shape[1..2].into(),
    };
    for parameter in &inputs[1..] {
        composite.check_shape(parameter, &own, "weight, bias and statistics")?;
        composite.check_dtype(parameter, x.dtype())?;
    }
    Ok((x.dtype(), shape.into()))
}

/// `x` standardised, and the reciprocal deviation it was multiplied by (axes kept as size 1).
fn standardise(x: &Formula, axes: Axes, centred: bool, epsilon: f64) -> (Formula, Formula) {
    let x = if centred { x - x.mean(axes) } else { x.clone() };
    let reciprocal = ((&x * &x).mean(axes) + epsilon).rsqrt();
    (x * &reciprocal, reciprocal)
}

pub(super) fn body(composite: &Composite, inputs: &[Term]) -> Result<Term> {
    let (dtype, shape) = (inputs[0].dtype(), inputs[0].shape());
    let plan = plan(composite, shape)?;
    let mut operands = Operands(inputs);
    let wide = |t: &Term| Formula::of(t).cast(dtype.compute());
    let x = wide(operands.next()?);
    let mut y = if let Composite::BatchNorm { training: false, .. } = composite {
        let mean = wide(operands.next()?).reshape(&plan.parameters);
        let variance = wide(operands.next()?).reshape(&plan.parameters);
        (x - mean) * (variance + plan.epsilon).rsqrt()
    } else {
        standardise(&x.reshape(&plan.view), plan.axes, plan.centred, plan.epsilon).0.reshape(shape)
    };
    if let Some(weight) = operands.next_if(plan.weight)? {
        y = y * wide(weight).reshape(&plan.parameters);
    }
    if let Some(bias) = operands.next_if(plan.bias)? {
        y = y + wide(bias).reshape(&plan.parameters);
    }
    y.cast(dtype).term()
}

/// With the standardised input z, the reciprocal deviation r and `h = g * weight`: the input's gradient is
/// `r (h - mean(h) - z mean(h z))` (without `mean(h)` if not centred), weight's is `sum(g z)`, bias's is `sum(g)`.
/// z and r are recorded anew from x, so nothing but the operands is kept for this.
pub(super) fn gradient(composite: &Composite, call: &Call) -> Result<InputGradients> {
    let (dtype, shape) = (call.inputs[0].dtype(), call.inputs[0].shape());
    let plan = plan(composite, shape)?;
    let wide = |t: &Term| Formula::of(t).cast(dtype.compute());
    let g = wide(call.gradient);
    let (z, reciprocal) =
        standardise(&wide(&call.inputs[0]).reshape(&plan.view), plan.axes, plan.centred, plan.epsilon);
    let weight_place = 1;
    let bias_place = 1 + usize::from(plan.weight);
    let spread = Axes::of((0..shape.len()).filter(|&axis| plan.parameters[axis] == 1));
    let to_parameter = |per_element: Formula, place: usize| -> Result<(usize, Term)> {
        let sum = per_element.sum(spread).reshape(call.inputs[place].shape());
        Ok((place, sum.cast(dtype).term()?))
    };
    let mut found = Vec::with_capacity(3);
    if call.needs[0] {
        let scaled = if plan.weight {
            &g * wide(&call.inputs[weight_place]).reshape(&plan.parameters)
        } else {
            g.clone()
        };
        let h = scaled.reshape(&plan.view);
        let projection = &z * (&h * &z).mean(plan.axes);
        let centred = if plan.centred { &h - h.mean(plan.axes) } else { h };
        let dx = (centred - projection) * &reciprocal;
        found.push((0, dx.reshape(shape).cast(dtype).term()?));
    }
    if plan.weight && call.needs[weight_place] {
        found.push(to_parameter(&g * z.reshape(shape), weight_place)?);
    }
    if plan.bias && call.needs[bias_place] {
        found.push(to_parameter(g, bias_place)?);
    }
    Ok(gradients_for(call.inputs.len(), found))
}
