//! Operations on tensors, on every device of this machine.

use std::f64::consts::PI;

use rnn::{
    Array2, GpuTensor, LossFunction, Result,
    gpu::{GpuContext, GpuOps, RecurrentKind, RecurrentParameters},
};

use super::{close, dense, flat, numbers, recurrence, sigmoid};
use crate::gpu::everywhere;

/// What `float32` leaves of the digits.
const NEAR: f64 = 1e-5;

/// A matrix's elements as a tensor of this shape.
fn tensor(values: &Array2<f64>, shape: &[usize], context: &mut GpuContext) -> Result<GpuTensor> {
    GpuTensor::from_values(&flat(values), shape, context)
}

/// The probability that a standard normal number is below another, by Simpson's rule.
fn below(x: f64) -> f64 {
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * PI).sqrt();
    let step = x / 1000.0;
    let sum: f64 = (0..=1000)
        .map(|i| {
            let weight = if i == 0 || i == 1000 { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) };
            weight * density(f64::from(i) * step)
        })
        .sum();
    0.5 + sum * step / 3.0
}

#[test]
fn activations_by_their_names() -> Result<()> {
    type Call = fn(&mut GpuContext, &GpuTensor) -> Result<GpuTensor>;
    type Formula = fn(f64) -> f64;
    let calls: [(&str, Call, Formula); 5] = [
        ("relu", |context, x| context.relu(x), |x| x.max(0.0)),
        ("sigmoid", |context, x| context.sigmoid(x), sigmoid),
        ("tanh", |context, x| context.tanh(x), f64::tanh),
        ("gelu", |context, x| context.gelu(x), |x| x * below(x)),
        ("swish", |context, x| context.swish(x), |x| x * sigmoid(x)),
    ];
    let values = Array2::from_shape_fn((5, 5), |(i, j)| 0.5 * (i * 5 + j) as f64 - 6.0);
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let x = tensor(&values, &[5, 5], context)?;
        for (name, call, function) in calls {
            let found = call(context, &x)?.to_values(context)?;
            let expected: Vec<f64> = values.iter().map(|x| function(*x)).collect();
            close(&found, &expected, NEAR, &format!("{name} on {device}"));
        }
        let found = context.softmax(&x)?.to_values(context)?;
        let sum = |row: usize| (0..5).map(|j| values[[row, j]].exp()).sum::<f64>();
        let expected = Array2::from_shape_fn((5, 5), |(i, j)| values[[i, j]].exp() / sum(i));
        close(&found, &flat(&expected), NEAR, &format!("softmax on {device}"));
        Ok(())
    })
}

#[test]
fn recurrences_of_every_kind() -> Result<()> {
    let (steps, sequences, features, units) = (5, 2, 3, 4);
    let x = numbers(steps * sequences, features, 1);
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let input = tensor(&x, &[steps, sequences, features], context)?;
        for (kind, gates) in [(RecurrentKind::Rnn, 1), (RecurrentKind::Lstm, 4), (RecurrentKind::Gru, 3)] {
            let rows = gates * units;
            let (of_input, of_state) = (numbers(rows, features, 2), numbers(rows, units, 3));
            let weight_ih = tensor(&of_input, &[rows, features], context)?;
            let weight_hh = tensor(&of_state, &[rows, units], context)?;
            let (first, second, none) = (numbers(1, rows, 4), numbers(1, rows, 5), Array2::zeros((1, rows)));
            let (ih, hh) = (tensor(&first, &[rows], context)?, tensor(&second, &[rows], context)?);
            for (with_ih, with_hh) in [(false, false), (true, true), (true, false), (false, true)] {
                let parameters = RecurrentParameters {
                    weight_ih: &weight_ih,
                    weight_hh: &weight_hh,
                    bias_ih: with_ih.then_some(&ih),
                    bias_hh: with_hh.then_some(&hh),
                };
                let output = context.recurrent(kind, &input, parameters)?;
                assert_eq!(output.shape(), [steps, sequences, units]);
                let biases = [if with_ih { &first } else { &none }, if with_hh { &second } else { &none }];
                let expected = recurrence(kind, &x, sequences, [&of_input, &of_state], biases);
                let what = format!("{kind:?} with biases {with_ih} {with_hh} on {device}");
                close(&output.to_values(context)?, &expected, NEAR, &what);
            }
        }
        Ok(())
    })
}

/// Predictions and targets that a loss takes, and what it makes of them.
fn judged(loss: LossFunction) -> (Array2<f64>, Array2<f64>, f64) {
    let (p, t) = (numbers(6, 3, 11), numbers(6, 3, 12));
    let probabilities = |x: &Array2<f64>| {
        let sum = |row: usize| (0..3).map(|j| x[[row, j]].exp()).sum::<f64>();
        Array2::from_shape_fn((6, 3), |(i, j)| x[[i, j]].exp() / sum(i))
    };
    let mean = |p: &Array2<f64>, t: &Array2<f64>, of: &dyn Fn(f64, f64) -> f64| {
        p.iter().zip(t).map(|(p, t)| of(*p, *t)).sum::<f64>() / p.len() as f64
    };
    let by_element = |p: Array2<f64>, t: Array2<f64>, of: &dyn Fn(f64, f64) -> f64| {
        let loss = mean(&p, &t, of);
        (p, t, loss)
    };
    let (likely, wanted) = (probabilities(&p), probabilities(&t));
    match loss {
        LossFunction::MeanSquaredError => by_element(p, t, &|p, t| (p - t).powi(2)),
        LossFunction::MeanAbsoluteError => by_element(p, t, &|p, t| (p - t).abs()),
        LossFunction::BinaryCrossEntropy => {
            by_element(likely, wanted, &|p, t| -(t * p.ln() + (1.0 - t) * (1.0 - p).ln()))
        }
        // The mean over rows is three times that over elements.
        LossFunction::CategoricalCrossEntropy => by_element(likely, wanted, &|p, t| -3.0 * t * p.ln()),
        LossFunction::SparseCategoricalCrossEntropy => {
            let classes = Array2::from_shape_fn((6, 1), |(row, _)| (row % 3) as f64);
            let loss = (0..6).map(|row| -likely[[row, row % 3]].ln()).sum::<f64>() / 6.0;
            (likely, classes, loss)
        }
        LossFunction::HuberLoss => by_element(2.0 * p, t, &|p, t| match (p - t).abs() {
            off if off < 1.0 => 0.5 * off * off,
            off => off - 0.5,
        }),
        LossFunction::HingeLoss => by_element(p, t.mapv(f64::signum), &|p, t| (1.0 - p * t).max(0.0)),
        LossFunction::SquaredHingeLoss => {
            by_element(p, t.mapv(f64::signum), &|p, t| (1.0 - p * t).max(0.0).powi(2))
        }
        LossFunction::KLDivergence => by_element(likely, wanted, &|p, t| t * (t / p).ln()),
        LossFunction::PoissonLoss => {
            by_element(p.mapv(|x| x + 1.5), t.mapv(|x| (3.0 * x.abs()).round()), &|p, t| p - t * p.ln())
        }
        LossFunction::CosineSimilarityLoss => {
            let product = |a: &Array2<f64>, b: &Array2<f64>, row: usize| {
                (0..3).map(|j| a[[row, j]] * b[[row, j]]).sum::<f64>()
            };
            let cosine =
                |row: usize| product(&p, &t, row) / (product(&p, &p, row) * product(&t, &t, row)).sqrt();
            let loss = (0..6).map(|row| 1.0 - cosine(row)).sum::<f64>() / 6.0;
            (p, t, loss)
        }
        LossFunction::LogCoshLoss => by_element(p, t, &|p, t| (p - t).cosh().ln()),
        LossFunction::QuantileLoss => by_element(p, t, &|p, t| 0.5 * (t - p).abs()),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn every_loss() -> Result<()> {
    everywhere(|context| {
        let device = context.device_name().to_owned();
        for loss in LossFunction::ALL {
            let (p, t, expected) = judged(loss);
            let predictions = tensor(&p, &[p.nrows(), p.ncols()], context)?;
            let targets = tensor(&t, &[t.nrows(), t.ncols()], context)?;
            let found = context.loss(loss, &predictions, &targets).and_then(|loss| loss.to_values(context));
            match found {
                Ok(found) => close(&found, &[expected], NEAR, &format!("{loss:?} on {device}")),
                // Numbers of classes are 64 bits wide, which some GPUs do not have: they say so.
                Err(error) => {
                    let sparse = loss == LossFunction::SparseCategoricalCrossEntropy;
                    assert!(sparse && error.to_string().contains("int64"), "{loss:?} on {device}: {error}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn channels_are_normalised_and_scaled() -> Result<()> {
    // Three images of two channels and two by three pixels.
    let x = numbers(3, 12, 6).mapv(|x| 2.0 * x + 1.0);
    let (weight, bias) = (numbers(1, 2, 7), numbers(1, 2, 8));
    let moment = |channel: usize, about: f64, power: i32| {
        let pixels = (0..3).flat_map(|image| (0..6).map(move |pixel| (image, 6 * channel + pixel)));
        pixels.map(|place| (x[place] - about).powi(power)).sum::<f64>() / 18.0
    };
    let epsilon = 0.1;
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let input = tensor(&x, &[3, 2, 2, 3], context)?;
        let (w, b) = (tensor(&weight, &[2], context)?, tensor(&bias, &[2], context)?);
        for (with_weight, with_bias) in [(true, true), (true, false), (false, true), (false, false)] {
            let found =
                context.batch_norm(&input, with_weight.then_some(&w), with_bias.then_some(&b), epsilon)?;
            let expected = Array2::from_shape_fn((3, 12), |(image, place)| {
                let channel = place / 6;
                let mean = moment(channel, 0.0, 1);
                let normal = (x[[image, place]] - mean) / (moment(channel, mean, 2) + epsilon).sqrt();
                let scale = if with_weight { weight[[0, channel]] } else { 1.0 };
                scale * normal + if with_bias { bias[[0, channel]] } else { 0.0 }
            });
            let what = format!("weight {with_weight}, bias {with_bias} on {device}");
            close(&found.to_values(context)?, &flat(&expected), NEAR, &what);
        }
        Ok(())
    })
}

#[test]
fn dense_layers_have_biases_or_none() -> Result<()> {
    let (x, weight, bias) = (numbers(4, 5, 1), numbers(3, 5, 2), numbers(1, 3, 3));
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let input = tensor(&x, &[4, 5], context)?;
        let (w, b) = (tensor(&weight, &[3, 5], context)?, tensor(&bias, &[3], context)?);
        let found = context.dense_forward(&input, &w, None)?;
        let expected = dense(&x, &weight, &Array2::zeros((1, 3)));
        close(&found.to_values(context)?, &flat(&expected), NEAR, &format!("without a bias on {device}"));
        let found = context.dense_forward(&input, &w, Some(&b))?;
        let expected = dense(&x, &weight, &bias);
        close(&found.to_values(context)?, &flat(&expected), NEAR, &format!("with a bias on {device}"));
        Ok(())
    })
}

#[test]
fn attention_weighs_values_by_products() -> Result<()> {
    // Two sequences of four positions: queries and keys of three numbers, values of two.
    let (q, k, v) = (numbers(8, 3, 1).mapv(|x| 3.0 * x), numbers(8, 3, 2), numbers(8, 2, 3));
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let query = tensor(&q, &[2, 4, 3], context)?;
        let (key, value) = (tensor(&k, &[2, 4, 3], context)?, tensor(&v, &[2, 4, 2], context)?);
        for causal in [false, true] {
            let found = context.attention(&query, &key, &value, causal)?;
            let expected = Array2::from_shape_fn((8, 2), |(row, column)| {
                let first = row / 4 * 4;
                let end = if causal { row + 1 } else { first + 4 };
                let weight = |other: usize| {
                    let product: f64 = (0..3).map(|i| q[[row, i]] * k[[other, i]]).sum();
                    (product / 3f64.sqrt()).exp()
                };
                let all: f64 = (first..end).map(weight).sum();
                (first..end).map(|other| weight(other) / all * v[[other, column]]).sum::<f64>()
            });
            let what = format!("causal {causal} on {device}");
            close(&found.to_values(context)?, &flat(&expected), NEAR, &what);
        }
        Ok(())
    })
}

#[test]
fn gradients_of_several_tensors() -> Result<()> {
    let (a, b, c) = (numbers(4, 3, 1), numbers(3, 2, 2), numbers(4, 2, 3));
    let divisor = numbers(1, 3, 4).mapv(|x| x + 2.0);
    // Of the sum of c σ(a b) the derivative at a b is s.
    let s = Array2::from_shape_fn((4, 2), |(i, j)| {
        let y = sigmoid((0..3).map(|k| a[[i, k]] * b[[k, j]]).sum());
        c[[i, j]] * y * (1.0 - y)
    });
    let of_a = Array2::from_shape_fn((4, 3), |(i, k)| (0..2).map(|j| s[[i, j]] * b[[k, j]]).sum::<f64>());
    let of_b = Array2::from_shape_fn((3, 2), |(k, j)| (0..4).map(|i| s[[i, j]] * a[[i, k]]).sum::<f64>());
    // Of the mean of a / divisor, whose row divides every row of a.
    let by_dividend = Array2::from_shape_fn((4, 3), |(_, k)| 1.0 / (12.0 * divisor[[0, k]]));
    let by_divisor = Array2::from_shape_fn((1, 3), |(_, k)| {
        (0..4).map(|i| -a[[i, k]] / (12.0 * divisor[[0, k]].powi(2))).sum::<f64>()
    });
    everywhere(|context| {
        let device = context.device_name().to_owned();
        let (x, y) = (tensor(&a, &[4, 3], context)?, tensor(&b, &[3, 2], context)?);
        let (weights, d) = (tensor(&c, &[4, 2], context)?, tensor(&divisor, &[3], context)?);
        let found = context.gradients(&[&x, &y], &mut |context, at| {
            let product = context.matmul(&at[0], &at[1])?;
            let curved = context.sigmoid(&product)?;
            let weighted = context.multiply(&curved, &weights)?;
            context.sum(&weighted, None)
        })?;
        close(&found[0].to_values(context)?, &flat(&of_a), NEAR, &format!("left factor on {device}"));
        close(&found[1].to_values(context)?, &flat(&of_b), NEAR, &format!("right factor on {device}"));
        let found = context.gradients(&[&x, &d], &mut |context, at| {
            let quotient = context.divide(&at[0], &at[1])?;
            context.mean(&quotient, None)
        })?;
        close(&found[0].to_values(context)?, &flat(&by_dividend), NEAR, &format!("dividend on {device}"));
        assert_eq!(found[1].shape(), [3]);
        close(&found[1].to_values(context)?, &flat(&by_divisor), NEAR, &format!("divisor on {device}"));
        // What the function does not depend on.
        let found = context.gradients(&[&x, &y], &mut |context, at| context.sum(&at[0], None))?;
        assert_eq!(found[0].to_values(context)?, [1.0; 12]);
        assert_eq!(found[1].to_values(context)?, [0.0; 6]);
        Ok(())
    })
}
