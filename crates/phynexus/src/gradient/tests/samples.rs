//! The samples of all operations against finite differences: of a primitive's definition, of a composite's body.

use super::harness::{Fixed, check_with, fixed, values};
use crate::{
    DType, Result, Tensor,
    op::{Composite, Op, Sample, SampleOperand, SampleValues, formula::Formula, samples},
    oracle::generate::{Choice, Distribution, random_operand},
    shape::element_count,
};

/// A sample in `float64`: the operands that are differentiated, the others, and where each one is.
pub(super) struct Call {
    pub(super) sample: Sample,
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
                _ if place == 0 && matches!(call.sample.op, Op::Composite(_)) => (-2.0, 2.3),
                _ => (-1.0, high),
            };
            match operand.dtype.for_tested(DType::F64) {
                DType::F64 => {
                    call.places.push(Ok(call.inputs.len()));
                    call.inputs.push(values(shape, low, high));
                    continue;
                }
                DType::Bool => call.fixed.push(mask(operand)),
                _ => {
                    let array = random_operand(&mut choice, operand, DType::F64, Distribution::Tame);
                    call.fixed.push(Fixed::new(&array));
                }
            }
            call.places.push(Err(call.fixed.len() - 1));
        }
        call
    }

    /// Whether it has a gradient, and few enough values to check it.
    fn is_checked(&self) -> bool {
        // Not all composites take `float64`.
        let Ok((dtype, _)) = self.sample.result(DType::F64) else { return false };
        let small = self.sample.operands.iter().all(|operand| element_count(&operand.shape) <= 64);
        let differentiated: usize = self.inputs.iter().map(|(values, _)| values.len()).sum();
        let tested =
            self.sample.tested_dtypes().contains(&DType::F64) || matches!(self.sample.op, Op::Composite(_));
        tested
            && small
            && dtype == DType::F64
            && (1..=128).contains(&differentiated)
            && self.sample.op != Op::Bitcast
    }

    /// Checks a function of the result.
    pub(super) fn check(&self, order: usize, of: impl Fn(Tensor) -> Result<Tensor>) {
        println!("{} {}", self.sample.op.name(), self.sample);
        check_with(&self.inputs, &self.fixed, order, &|x| {
            let operand = |place: &std::result::Result<usize, usize>| match *place {
                Ok(input) => &x[input],
                Err(fixed) => &x[self.inputs.len() + fixed],
            };
            let operands: Vec<&Tensor> = self.places.iter().map(operand).collect();
            let (dtype, shape) = self.sample.result(DType::F64)?;
            of(Tensor::record(self.sample.op.clone(), dtype, shape, &operands)?)
        });
    }
}

/// A condition or mask in which every row may attend to its first key.
fn mask(operand: &SampleOperand) -> Fixed {
    let keys = operand.shape.last().copied().unwrap_or(1);
    let bools: Vec<bool> = (0..element_count(&operand.shape)).map(|i| i % keys == 0 || i % 3 == 1).collect();
    fixed(&bools, &operand.shape)
}

pub(super) fn calls() -> impl Iterator<Item = Call> {
    samples().into_iter().map(Call::new).filter(Call::is_checked)
}

/// All of packed results, so that every part has a gradient.
#[test]
fn composites_have_the_gradients_of_their_bodies() {
    for call in calls() {
        let Op::Composite(composite) = &call.sample.op else { continue };
        let order = match composite {
            Composite::Recurrent(_) | Composite::RecurrentGradient(_) | Composite::AttentionGradient(_) => 1,
            _ => 2,
        };
        call.check(order, Ok);
    }
}

/// Of the squares of results, since most primitives are linear.
#[test]
fn primitives_have_the_gradients_of_their_definitions() {
    for call in calls().filter(|call| !matches!(call.sample.op, Op::Composite(_))) {
        call.check(2, |y| (Formula::of(&y) * Formula::of(&y)).tensor());
    }
}
