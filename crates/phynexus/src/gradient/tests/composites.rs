//! Composites whose gradients need more than their samples.

use super::{
    harness::{check_with, fixed, values},
    samples::calls,
};
use crate::{
    Result, Scalar, Tensor,
    op::{
        Op,
        composite::{Attention, Composite, CrossEntropy},
        formula::Formula,
    },
};

fn apply(composite: impl Into<Composite>, inputs: &[Tensor]) -> Result<Tensor> {
    Composite::apply(composite, &inputs.iter().collect::<Vec<_>>())
}

/// The states only: what is saved has no gradient, so that the composite's own rule is used.
#[test]
fn states_of_recurrent_layers() {
    for call in calls() {
        let Op::Composite(Composite::Recurrent(layer)) = call.sample.op else { continue };
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
    let attention = Attention { causal: false, scale: Scalar::Float(0.7), mask: true, dropout: 0 };
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
