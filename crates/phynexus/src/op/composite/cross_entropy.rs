//! Softmax and the negative logarithm of the target's probability in one: one kernel over rows, forwards and back.

use super::{Composite, gradients_for};
use crate::{
    DType, Error, Result,
    op::{
        Axes, Combine,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

const CLASSES: usize = 1;

pub(super) fn check(composite: &Composite, weighted: bool, inputs: &[TensorType]) -> Result<(DType, Dims)> {
    composite.check_count(inputs, 2 + usize::from(weighted))?;
    let (logits, target) = (&inputs[0], &inputs[1]);
    composite.check_float(logits)?;
    let &[rows, classes] = logits.shape() else {
        return Err(Error::shape(composite.name(), &[logits.shape()], "logits must be (N, classes)"));
    };
    composite.check_shape(target, &[rows], "the target")?;
    if !target.dtype().is_integer() {
        return Err(Error::dtype(
            composite.name(),
            &[target.dtype()],
            "the target must be class indices, integers",
        ));
    }
    if let Some(weight) = inputs.get(2) {
        composite.check_shape(weight, &[classes], "the class weights")?;
        composite.check_dtype(weight, logits.dtype())?;
    }
    Ok((logits.dtype(), Dims::from_slice(&[rows])))
}

/// What the loss and its gradient have in common; all of them `[N, C]` or `[N, 1]`.
struct Rows {
    /// Logits less their row's maximum.
    shifted: Formula,
    /// The logarithm of the softmax's denominator, for the shifted logits.
    log_sum: Formula,
    /// Whether the column is the row's class.
    hit: Formula,
    /// Class weights `[1, C]`.
    weights: Option<Formula>,
    /// The weight of the row's class, 1 without weights.
    target_weight: Formula,
    /// Whether the target is to be left out.
    ignored: Option<Formula>,
    /// Whether the target is no class.
    outside: Formula,
}

fn rows(inputs: &[Term], ignore_index: Option<i64>) -> Rows {
    let axes = Axes::of([CLASSES]);
    let (rows, classes) = (inputs[0].shape()[0], inputs[0].shape()[1]);
    let dtype = inputs[0].dtype().compute();
    let x = Formula::of(&inputs[0]).cast(dtype);
    // The shift cancels in the derivative.
    let shifted = &x - x.reduce(Combine::Max, axes).detach();
    let log_sum = shifted.exp().sum(axes).log();
    let target = Formula::of(&inputs[1]).cast(DType::I64).reshape(&[rows, 1]);
    let hit = x.iota_like(DType::I64, CLASSES).eq(&target);
    let weights = inputs.get(2).map(|w| Formula::of(w).cast(dtype).reshape(&[1, classes]));
    let target_weight = match &weights {
        Some(weights) => weights.expand(&[rows, classes]).only_where(&hit).sum(axes),
        None => log_sum.like(1.0),
    };
    let ignored = ignore_index.map(|index| target.eq(&target.like(index)));
    let outside = target.lt(&target.like(0i64)).or(&target.like(classes as i64).le(&target));
    Rows { shifted, log_sum, hit, weights, target_weight, ignored, outside }
}

impl Rows {
    /// `value` with 0 for ignored rows and NaN for targets that are no class.
    fn guarded(&self, value: Formula) -> Formula {
        let stretch = |condition: &Formula| value.then(|v| condition.expand(v.shape()).term());
        let value = stretch(&self.outside).choose(&value.like(f64::NAN), &value);
        match &self.ignored {
            Some(ignored) => stretch(ignored).choose(&value.like(0.0), &value),
            None => value,
        }
    }
}

pub(super) fn body(inputs: &[Term], smoothing: f64, ignore_index: Option<i64>) -> Result<Term> {
    let axes = Axes::of([CLASSES]);
    let (count, classes) = (inputs[0].shape()[0], inputs[0].shape()[1]);
    let rows = rows(inputs, ignore_index);
    let picked = rows.shifted.only_where(&rows.hit).sum(axes);
    let mut loss = (&rows.log_sum - picked) * &rows.target_weight;
    if smoothing != 0.0 {
        let each = &rows.log_sum - &rows.shifted;
        let each = match &rows.weights {
            Some(weights) => each * weights,
            None => each,
        };
        loss = loss * (1.0 - smoothing) + each.sum(axes) * (smoothing / classes as f64);
    }
    rows.guarded(loss).reshape(&[count]).cast(inputs[0].dtype()).term()
}

/// `(1 - s) w_t (p - hit) + s / C (p sum(w) - w)` with the softmax p and the smoothing s.
pub(super) fn gradient(
    call: &Call,
    smoothing: f64,
    ignore_index: Option<i64>,
) -> Result<Option<InputGradients>> {
    if call.needs.get(2) == Some(&true) {
        return Ok(None);
    }
    let dtype = call.inputs[0].dtype();
    let (count, classes) = (call.inputs[0].shape()[0], call.inputs[0].shape()[1]);
    let rows = rows(call.inputs, ignore_index);
    let p = (&rows.shifted - &rows.log_sum).exp();
    let g = call.gradient().cast(dtype.compute()).reshape(&[count, 1]);
    let mut slope = (&p - rows.hit.cast(dtype.compute())) * &rows.target_weight;
    if smoothing != 0.0 {
        let spread = match &rows.weights {
            Some(weights) => p * weights.sum(Axes::of([CLASSES])) - weights,
            None => p * classes as f64 - 1.0,
        };
        slope = slope * (1.0 - smoothing) + spread * (smoothing / classes as f64);
    }
    let dx = rows.guarded(slope * g).cast(dtype).term()?;
    Ok(Some(gradients_for(call.inputs.len(), [(0, dx)])))
}
