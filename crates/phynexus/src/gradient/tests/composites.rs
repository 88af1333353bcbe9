//! Composites against finite differences of their bodies.

use super::harness::{check, check_with, fixed, values};
use crate::{
    Scalar, Tensor,
    op::{
        composite::{AttentionAttributes, Cell, Composite, Recurrence},
        formula::Formula,
    },
};

fn apply(composite: &Composite, inputs: &[Tensor]) -> crate::Result<Tensor> {
    composite.clone().apply(&inputs.iter().collect::<Vec<_>>())
}

#[test]
fn softmax_and_activations() {
    let composites = [
        Composite::Softmax { axis: 0 },
        Composite::LogSoftmax { axis: 1 },
        Composite::Gelu { tanh: true },
        Composite::Gelu { tanh: false },
        Composite::Silu,
        Composite::Softplus { beta: Scalar::Float(1.5), threshold: Scalar::Float(2.0) },
        Composite::Mish,
    ];
    for composite in composites {
        check(&[values(&[3, 4], -2.0, 2.3)], 2, &|x| apply(&composite, x));
    }
}

#[test]
fn normalizations() {
    let epsilon = Scalar::Float(1e-2);
    let x = || values(&[3, 4, 2], -1.0, 2.0);
    for (weight, bias) in [(false, false), (true, false), (true, true)] {
        let parameters = |shape: &[usize]| {
            let mut inputs = vec![x()];
            inputs.extend(weight.then(|| values(shape, 0.5, 1.5)));
            inputs.extend(bias.then(|| values(shape, -0.5, 0.5)));
            inputs
        };
        let layer = Composite::LayerNorm { axes: 2, epsilon, weight, bias };
        check(&parameters(&[4, 2]), 2, &|x| apply(&layer, x));
        let group = Composite::GroupNorm { groups: 2, epsilon, weight, bias };
        check(&parameters(&[4]), 2, &|x| apply(&group, x));
        let batch = Composite::BatchNorm { training: true, epsilon, weight, bias };
        check(&parameters(&[4]), 2, &|x| apply(&batch, x));
        let mut inputs = parameters(&[4]);
        inputs.splice(1..1, [values(&[4], -0.3, 0.3), values(&[4], 0.5, 1.5)]);
        let inference = Composite::BatchNorm { training: false, epsilon, weight, bias };
        check(&inputs, 2, &|x| apply(&inference, x));
        if !bias {
            check(&parameters(&[2]), 2, &|x| apply(&Composite::RmsNorm { axes: 1, epsilon, weight }, x));
        }
    }
}

#[test]
fn binary_cross_entropy() {
    let operands = [values(&[3, 2], 0.1, 0.8), values(&[3, 2], 0.0, 1.0)];
    check(&operands, 2, &|x| apply(&Composite::BinaryCrossEntropy, x));
}

#[test]
fn cross_entropy() {
    for label_smoothing in [0.0, 0.2] {
        for weighted in [false, true] {
            let composite = Composite::CrossEntropy {
                label_smoothing: Scalar::Float(label_smoothing),
                ignore_index: Some(-100),
                weighted,
            };
            let mut inputs = vec![values(&[4, 3], -2.0, 2.0)];
            inputs.extend(weighted.then(|| values(&[3], 0.5, 1.5)));
            check_with(&inputs, &[fixed(&[2i64, -100, 0, 1], &[4])], 2, &|x| match x {
                [logits, weights, target] => {
                    apply(&composite, &[logits.clone(), target.clone(), weights.clone()])
                }
                _ => apply(&composite, x),
            });
        }
    }
}

#[test]
fn attention() {
    let attributes = |causal, mask| AttentionAttributes { causal, scale: Scalar::Float(0.7), mask };
    let operands = || {
        vec![
            values(&[1, 2, 3, 2], -1.0, 1.0),
            values(&[1, 2, 4, 2], -1.0, 1.1),
            values(&[1, 2, 4, 3], -1.0, 1.2),
        ]
    };
    for causal in [false, true] {
        // Use the whole packed result, so the logarithms have a gradient too.
        check(&operands(), 2, &|x| apply(&Composite::Attention(attributes(causal, false)), x));
        let truths: Vec<bool> = (0..24).map(|i| i % 4 == 0 || i % 3 == 1).collect();
        check_with(&operands(), &[fixed(&truths, &[1, 2, 3, 4])], 2, &|x| {
            apply(&Composite::Attention(attributes(causal, true)), x)
        });
    }
    let mut inputs = operands();
    inputs.push(values(&[1, 2, 3, 4], -1.0, 1.0));
    check(&inputs, 2, &|x| apply(&Composite::Attention(attributes(false, true)), x));
    // With a row that may not attend to anything.
    let nothing: Vec<bool> = (0..24).map(|i| i / 4 != 1 && i % 3 > 0).collect();
    check_with(&operands(), &[fixed(&nothing, &[1, 2, 3, 4])], 1, &|x| {
        let packed = apply(&Composite::Attention(attributes(false, true)), x)?;
        Formula::of(&packed).narrow(0, 0, 18).tensor()
    });
}

#[test]
fn recurrent_layers() {
    let (steps, batch, width, hidden) = (3, 2, 2, 2);
    for cell in [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu] {
        for (reverse, bias, save) in [(false, true, true), (true, false, true), (true, true, false)] {
            let recurrence = Recurrence { cell, reverse, bias, save };
            let rows = cell.gates() * hidden;
            let mut inputs =
                vec![values(&[steps, batch, width], -1.0, 1.0), values(&[batch, hidden], -1.0, 1.0)];
            if cell.has_cell_state() {
                inputs.push(values(&[batch, hidden], -0.9, 1.0));
            }
            inputs.extend([values(&[rows, width], -0.8, 1.0), values(&[rows, hidden], -0.7, 1.0)]);
            if bias {
                inputs.extend([values(&[rows], -0.6, 1.0), values(&[rows], -0.5, 1.0)]);
            }
            let order = if reverse && save { 2 } else { 1 };
            check(&inputs, order, &|x| {
                let packed = apply(&Composite::Recurrent(recurrence), x)?;
                let (states, last, cell) = recurrence.unpack(&packed.term(), steps, batch, hidden)?;
                let mut sum = Formula::of(&states) * Formula::of(&last).reshape(&[1, batch, hidden]);
                if let Some(cell) = cell {
                    sum = sum + Formula::of(&cell).reshape(&[1, batch, hidden]);
                }
                sum.tensor()
            });
            // Use the whole packed result, so the saved values have a gradient too.
            check(&inputs, 1, &|x| apply(&Composite::Recurrent(recurrence), x));
        }
    }
}

#[test]
fn dequantisation() {
    let (q, zero_point) = (fixed(&[3i8, -7, 0, 120, 5, -128], &[3, 2]), fixed(&[1i8, -2], &[2]));
    check_with(&[values(&[2], 0.1, 0.4)], &[q, zero_point], 2, &|x| {
        apply(&Composite::DequantizeLinear { axis: Some(1) }, &[x[1].clone(), x[0].clone(), x[2].clone()])
    });
}
