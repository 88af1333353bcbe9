//! Composites against finite differences of their bodies.

use super::harness::{Fixed, check_with, fixed, values};
use crate::{
    DType, Result, Scalar, Tensor,
    op::{
        TensorType,
        composite::{Attention, Composite, CrossEntropy, Sample, SampleOperand, SampleValues, samples},
        formula::Formula,
    },
    oracle::generate::{Choice, random_operand},
    shape::element_count,
};

fn apply(composite: impl Into<Composite>, inputs: &[Tensor]) -> Result<Tensor> {
    Composite::apply(composite, &inputs.iter().collect::<Vec<_>>())
}

/// A sample in `float64`: the operands that are differentiated, the others, and where each one is.
struct Call {
    sample: Sample,
    inputs: Vec<(Vec<f64>, Vec<usize>)>,
    fixed: Vec<Fixed>,
    /// For each operand, its index in `inputs`, or otherwise in `fixed`.
    places: Vec<std::result::Result<usize, usize>>,
}

impl Call {
    fn new(sample: Sample) -> Call {
        let mut call = Call { sample, inputs: Vec::new(), fixed: Vec::new(), places: Vec::new() };
        let mut choice = Choice::new(11);
        for (place, operand) in call.sample.operands.iter().enumerate() {
            let shape = &operand.shape;
            // Operands of one rank must not have equal values.
            let high = 1.0 + 0.1 * place as f64;
            let (low, high) = match operand.values {
                SampleValues::Positive => (0.5, high + 0.5),
                SampleValues::Probability => (0.1, high * 0.8),
                _ if place == 0 => (-2.0, 2.3),
                _ => (-1.0, high),
            };
            if operand.dtype.for_tested(DType::F64) == DType::F64 {
                call.places.push(Ok(call.inputs.len()));
                call.inputs.push(values(shape, low, high));
            } else {
                call.places.push(Err(call.fixed.len()));
                call.fixed.push(if operand.dtype.for_tested(DType::F64) == DType::Bool {
                    mask(operand)
                } else {
                    Fixed::new(&random_operand(&mut choice, operand, DType::F64))
                });
            }
        }
        call
    }

    /// Whether it has a gradient, and few enough values to check it.
    fn is_checked(&self) -> bool {
        let types = self.sample.operands.iter();
        let types = types.map(|o| TensorType::new(o.dtype.for_tested(DType::F64), &o.shape));
        let (dtype, _) = self.sample.composite.check(&types.collect::<Vec<_>>()).unwrap();
        let small = self.sample.operands.iter().all(|operand| element_count(&operand.shape) <= 64);
        let differentiated: usize = self.inputs.iter().map(|(values, _)| values.len()).sum();
        small && dtype == DType::F64 && (1..=128).contains(&differentiated)
    }

    /// Checks a function of the composite's result.
    fn check(&self, order: usize, of: impl Fn(Tensor) -> Result<Tensor>) {
        println!("{} {}", self.sample.composite.name(), self.sample);
        check_with(&self.inputs, &self.fixed, order, &|x| {
            let operand = |place: &std::result::Result<usize, usize>| match *place {
                Ok(input) => x[input].clone(),
                Err(fixed) => x[self.inputs.len() + fixed].clone(),
            };
            let operands: Vec<Tensor> = self.places.iter().map(operand).collect();
            of(apply(self.sample.composite.clone(), &operands)?)
        });
    }
}

/// A mask in which every row may attend to its first key.
fn mask(operand: &SampleOperand) -> Fixed {
    let keys = operand.shape[operand.shape.len() - 1];
    let truths: Vec<bool> = (0..element_count(&operand.shape)).map(|i| i % keys == 0 || i % 3 == 1).collect();
    fixed(&truths, &operand.shape)
}

fn calls() -> impl Iterator<Item = Call> {
    samples().into_iter().map(Call::new).filter(Call::is_checked)
}

/// All of packed results, so that every part has a gradient.
#[test]
fn samples_have_the_gradients_of_their_bodies() {
    for call in calls() {
        let order = match call.sample.composite {
            Composite::Recurrent(_) | Composite::RecurrentGradient(_) | Composite::AttentionGradient(_) => 1,
            _ => 2,
        };
        call.check(order, Ok);
    }
}

/// The states only: what is saved has no gradient, so that the composite's own rule is used.
#[test]
fn states_of_recurrent_layers() {
    for call in calls() {
        let Composite::Recurrent(layer) = call.sample.composite else { continue };
        let (x, h0) = (&call.sample.operands[0].shape, &call.sample.operands[1].shape);
        let (steps, batch, hidden) = (x[0], x[1], h0[1]);
        let order = if layer.reverse && layer.save { 2 } else { 1 };
        call.check(order, |packed| {
            let (states, last, cell) = layer.unpack(&packed.term(), steps, batch, hidden)?;
            let mut sum = Formula::of(&states) * Formula::of(&last).reshape(&[1, batch, hidden]);
            if let Some(cell) = cell {
                sum = sum + Formula::of(&cell).reshape(&[1, batch, hidden]);
            }
            sum.tensor()
        });
    }
}

/// Without a gradient of the class weights, for which the composite has no rule of its own.
#[test]
fn cross_entropy_with_constant_weights_and_an_ignored_row() {
    for label_smoothing in [0.0, 0.2] {
        let label_smoothing = Scalar::Float(label_smoothing);
        let composite = CrossEntropy { label_smoothing, ignore_index: Some(-100), weighted: true };
        let others = [fixed(&[2i64, -100, 0, 1], &[4]), fixed(&[0.5, 1.2, 0.9], &[3])];
        check_with(&[values(&[4, 3], -2.0, 2.0)], &others, 2, &|x| apply(composite, x));
        let unweighted = CrossEntropy { weighted: false, ..composite };
        check_with(&[values(&[4, 3], -2.0, 2.0)], &others[..1], 2, &|x| apply(unweighted, x));
    }
}

#[test]
fn attention_of_a_row_that_may_attend_to_nothing() {
    let attention = Attention { causal: false, scale: Scalar::Float(0.7), mask: true };
    let operands = [
        values(&[1, 2, 3, 2], -1.0, 1.0),
        values(&[1, 2, 4, 2], -1.0, 1.1),
        values(&[1, 2, 4, 3], -1.0, 1.2),
    ];
    let nothing: Vec<bool> = (0..24).map(|i| i / 4 != 1 && i % 3 > 0).collect();
    check_with(&operands, &[fixed(&nothing, &[1, 2, 3, 4])], 1, &|x| {
        let packed = apply(attention, x)?;
        Formula::of(&packed).narrow(0, 0, 18).tensor()
    });
}
