//! Softmax and the negative logarithm of the target's probability in one: one kernel over rows, forwards and back.

use super::{
    Definition, check, gradients_for,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes, Combine,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

const CLASSES: usize = 1;

/// Inputs logits `[N, C]`, target `[N]` (class indices, any integer dtype), then class weights `[C]` if there are any;
/// result `[N]`: `-log(softmax(logits))[target]`, weighted and smoothed. NaN for a target that is not a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropy {
    /// The part of the target spread over all classes.
    pub label_smoothing: Scalar,
    /// Rows with this target give 0.
    pub ignore_index: Option<i64>,
    /// There are class weights.
    pub weighted: bool,
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
    /// Whether the target is not a class.
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
    /// `value` with 0 for ignored rows and NaN for targets that are not classes.
    fn guarded(&self, value: Formula) -> Formula {
        let stretch = |condition: &Formula| value.then(|v| condition.expand(v.shape()).term());
        let value = stretch(&self.outside).choose(&value.like(f64::NAN), &value);
        match &self.ignored {
            Some(ignored) => stretch(ignored).choose(&value.like(0.0), &value),
            None => value,
        }
    }
}

impl Definition for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn attributes(&self) -> String {
        let ignored = self.ignore_index.map(|index| format!(", ignore_index={index}")).unwrap_or_default();
        let weighted = if self.weighted { ", weighted" } else { "" };
        format!("label_smoothing={}{ignored}{weighted}", self.label_smoothing)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 2 + usize::from(self.weighted))?;
        let (logits, target) = (&operands[0], &operands[1]);
        check::float(self.name(), logits)?;
        let &[rows, classes] = logits.shape() else {
            return Err(Error::shape(self.name(), &[logits.shape()], "logits must be (N, classes)"));
        };
        check::shape(self.name(), target, &[rows], "the target")?;
        if !target.dtype().is_integer() {
            let hint = "the target must be class indices, integers";
            return Err(Error::dtype(self.name(), &[target.dtype()], hint));
        }
        if let Some(weight) = operands.get(2) {
            check::shape(self.name(), weight, &[classes], "the class weights")?;
            check::dtype(self.name(), weight, logits.dtype())?;
        }
        Ok((logits.dtype(), Dims::from_slice(&[rows])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let axes = Axes::of([CLASSES]);
        let (count, classes) = (operands[0].shape()[0], operands[0].shape()[1]);
        let smoothing = self.label_smoothing.as_f64();
        let rows = rows(operands, self.ignore_index);
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
        rows.guarded(loss).reshape(&[count]).cast(operands[0].dtype()).term()
    }

    /// `(1 - s) w_t (p - hit) + s / C (p sum(w) - w)` with the softmax p and the smoothing s. By the body where the
    /// class weights need a gradient.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        if call.needs.get(2) == Some(&true) {
            return Ok(None);
        }
        let dtype = call.inputs[0].dtype();
        let (count, classes) = (call.inputs[0].shape()[0], call.inputs[0].shape()[1]);
        let smoothing = self.label_smoothing.as_f64();
        let rows = rows(call.inputs, self.ignore_index);
        let p = (&rows.shifted - &rows.log_sum).exp();
        let g = call.gradient().cast(dtype.compute()).reshape(&[count, 1]);
        let mut gradient = (&p - rows.hit.cast(dtype.compute())) * &rows.target_weight;
        if smoothing != 0.0 {
            let smoothed = match &rows.weights {
                Some(weights) => p * weights.sum(Axes::of([CLASSES])) - weights,
                None => p * classes as f64 - 1.0,
            };
            gradient = gradient * (1.0 - smoothing) + smoothed * (smoothing / classes as f64);
        }
        let dx = rows.guarded(gradient * g).cast(dtype).term()?;
        Ok(Some(gradients_for(call.inputs.len(), [(0, dx)])))
    }

    /// The ignored number is a class, so that it occurs.
    fn samples() -> Vec<Sample> {
        let sizes = [(1, 3, DType::U8), (6, 10, DType::U8), (4, 600, DType::U8), (3, 4, DType::I32)];
        let options = [(0.0, None, false), (0.1, Some(2), true), (0.0, Some(2), true), (0.2, None, false)];
        let call = |(count, classes, dtype), (smoothing, ignore_index, weighted): (f64, _, bool)| {
            let target = SampleOperand::new(&[count]).fixed(dtype).class(classes);
            let mut operands = vec![SampleOperand::new(&[count, classes]), target];
            operands.extend(weighted.then(|| SampleOperand::new(&[classes]).positive()));
            let label_smoothing = Scalar::Float(smoothing);
            Sample::new(CrossEntropy { label_smoothing, ignore_index, weighted }, operands)
        };
        options.into_iter().flat_map(|options| sizes.map(|size| call(size, options))).collect()
    }
}
