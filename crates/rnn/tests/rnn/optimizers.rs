//! Every optimiser against its formula, over several steps and several tensors, in `float64`.

use rnn::{
    ActivationFunction, Array2, LayerBuilder, Network, Optimizer, OptimizerConfig, OptimizerType, Precision,
    Result, TrainingConfig,
};

use super::methods::flat;

/// What an optimiser keeps of one number.
#[derive(Clone, Copy, Default)]
struct State {
    first: f64,
    second: f64,
    third: f64,
    steps: i32,
}

/// The new value by the formulas of the optimisers' papers (PyTorch's forms of them).
fn formula(
    kind: OptimizerType,
    config: &OptimizerConfig,
    value: f64,
    gradient: f64,
    state: &mut State,
) -> f64 {
    let (rate, epsilon) = (config.learning_rate, config.epsilon);
    let (b1, b2) = (config.beta1.unwrap(), config.beta2.unwrap());
    let g = gradient + config.weight_decay.unwrap_or(0.0) * value;
    state.steps += 1;
    let t = state.steps;
    let State { first, second, third, .. } = state;
    let (c1, c2) = (1.0 - b1.powi(t), 1.0 - b2.powi(t));
    match kind {
        OptimizerType::SGD => value - rate * g,
        OptimizerType::Momentum => {
            *first = 0.9 * *first + g;
            value - rate * *first
        }
        OptimizerType::Nesterov => {
            *first = 0.9 * *first + g;
            value - rate * (g + 0.9 * *first)
        }
        OptimizerType::Adagrad => {
            *first += g * g;
            value - rate * g / (first.sqrt() + epsilon)
        }
        OptimizerType::Adadelta => {
            *first = 0.95 * *first + 0.05 * g * g;
            let change = (*second + epsilon).sqrt() / (*first + epsilon).sqrt() * g;
            *second = 0.95 * *second + 0.05 * change * change;
            value - rate * change
        }
        OptimizerType::RMSprop => {
            *first = 0.9 * *first + 0.1 * g * g;
            value - rate * g / (first.sqrt() + epsilon)
        }
        OptimizerType::Adam | OptimizerType::AMSGrad | OptimizerType::AdaBound => {
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            *third = third.max(*second);
            if kind == OptimizerType::AdaBound {
                let (low, high) =
                    (0.1 - 0.1 / (1e-3 * f64::from(t) + 1.0), 0.1 + 0.1 / (1e-3 * f64::from(t)));
                let own = rate * c2.sqrt() / c1 / (second.sqrt() + epsilon);
                return value - own.clamp(low, high) * *first;
            }
            let square = if kind == OptimizerType::AMSGrad { *third } else { *second };
            value - rate / c1 * *first / ((square / c2).sqrt() + epsilon)
        }
        OptimizerType::AdaMax => {
            *first = b1 * *first + (1.0 - b1) * g;
            *second = (b2 * *second).max(g.abs() + epsilon);
            value - rate / c1 * *first / *second
        }
        OptimizerType::Nadam => {
            let mu = |t: i32| b1 * (1.0 - 0.5 * 0.96f64.powf(f64::from(t) * 4e-3));
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            *third = if t == 1 { mu(1) } else { *third * mu(t) };
            let root = (*second / c2).sqrt() + epsilon;
            let direction =
                (1.0 - mu(t)) * g / (1.0 - *third) + mu(t + 1) * *first / (1.0 - *third * mu(t + 1));
            value - rate * direction / root
        }
        other => unreachable!("{other:?}"),
    }
}

fn network(optimizer: Optimizer) -> Result<Network> {
    Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(4).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .optimizer(optimizer)
        .precision(Precision::Float64)
        .device("cpu")
        .seed(3)
        .build()
}

fn data() -> (Array2<f64>, Array2<f64>) {
    let x = Array2::from_shape_fn((6, 3), |(i, j)| ((i * 3 + j) as f64 * 0.7).sin());
    let y = Array2::from_shape_fn((6, 2), |(i, j)| ((i * 2 + j) as f64 * 1.3).cos());
    (x, y)
}

#[test]
fn every_optimiser_takes_the_steps_of_its_formula() -> Result<()> {
    let (x, y) = data();
    // These two have directions of all weights together.
    let own = |kind: &OptimizerType| !matches!(kind, OptimizerType::LBFGS | OptimizerType::Newton);
    for kind in OptimizerType::ALL.into_iter().filter(own) {
        for weight_decay in [None, Some(0.1)] {
            let config = OptimizerConfig { learning_rate: 0.05, weight_decay, ..OptimizerConfig::default() };
            let optimizer = Optimizer::new(kind, config.clone())?;
            let mut trained = network(optimizer.clone())?;
            let mut by_hand = network(optimizer)?;
            let mut states: Vec<Vec<State>> =
                by_hand.get_weights()?.iter().map(|w| vec![State::default(); w.len()]).collect();
            for _ in 0..6 {
                let (_, gradients) = by_hand.loss_and_gradients(&x, &y)?;
                let mut weights = by_hand.get_weights()?;
                for ((weight, gradient), states) in weights.iter_mut().zip(&gradients).zip(&mut states) {
                    for ((w, g), state) in weight.iter_mut().zip(gradient).zip(states) {
                        *w = formula(kind, &config, *w, *g, state);
                    }
                }
                by_hand.set_weights(&weights)?;
            }
            // Six epochs of one batch are six steps.
            let training = TrainingConfig {
                max_epochs: 6,
                batch_size: 6,
                validation_split: 0.0,
                shuffle: false,
                early_stopping_patience: None,
                verbose: false,
                ..TrainingConfig::default()
            };
            let history = trained.train(&x, &y, &training)?;
            assert_eq!(history.steps, 6);
            for (found, expected) in trained.get_weights()?.iter().zip(&by_hand.get_weights()?) {
                for (found, expected) in found.iter().zip(expected) {
                    let close = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
                    assert!(close, "{} {weight_decay:?}: {found} is not {expected}", kind.name());
                }
            }
        }
    }
    Ok(())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse of the curvature as a matrix, pair by pair: `(1 - r s y') H (1 - r y s') + r s s'`.
fn inverse(pairs: &[(Vec<f64>, Vec<f64>)], count: usize) -> Vec<Vec<f64>> {
    let scale = pairs.last().map_or(1.0, |(s, y)| dot(s, y) / dot(y, y));
    let one = |i: usize, j: usize| f64::from(u8::from(i == j));
    let mut matrix: Vec<Vec<f64>> =
        (0..count).map(|i| (0..count).map(|j| scale * one(i, j)).collect()).collect();
    for (s, y) in pairs {
        let r = 1.0 / dot(s, y);
        // H (1 - r y s'), then (1 - r s y') times that.
        let turned: Vec<f64> = matrix.iter().map(|row| dot(row, y)).collect();
        let half: Vec<Vec<f64>> =
            (0..count).map(|i| (0..count).map(|j| matrix[i][j] - r * turned[i] * s[j]).collect()).collect();
        let above: Vec<f64> =
            (0..count).map(|j| (0..count).map(|i| y[i] * half[i][j]).sum::<f64>()).collect();
        matrix = (0..count)
            .map(|i| (0..count).map(|j| half[i][j] - r * s[i] * above[j] + r * s[i] * s[j]).collect())
            .collect();
    }
    matrix
}

#[test]
fn lbfgs_takes_the_steps_of_its_formula() -> Result<()> {
    let (x, y) = data();
    for (memory_size, weight_decay) in [(Some(20), None), (Some(2), Some(0.1))] {
        let config =
            OptimizerConfig { learning_rate: 0.3, memory_size, weight_decay, ..OptimizerConfig::default() };
        let optimizer = Optimizer::new(OptimizerType::LBFGS, config)?;
        let (mut trained, mut by_hand) = (network(optimizer.clone())?, network(optimizer)?);
        let mut pairs: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
        let mut before: Option<(Vec<f64>, Vec<f64>)> = None;
        for _ in 0..6 {
            let mut weights = by_hand.get_weights()?;
            let w = flat(&weights);
            let mut g = flat(&by_hand.loss_and_gradients(&x, &y)?.1);
            g.iter_mut().zip(&w).for_each(|(g, w)| *g += weight_decay.unwrap_or(0.0) * w);
            if let Some((old_w, old_g)) = before.take() {
                let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect();
                pairs.push((minus(&w, &old_w), minus(&g, &old_g)));
                pairs.drain(..pairs.len().saturating_sub(memory_size.unwrap()));
            }
            let first =
                if pairs.is_empty() { (1.0 / g.iter().map(|g| g.abs()).sum::<f64>()).min(1.0) } else { 1.0 };
            let inverse = inverse(&pairs, w.len());
            let next = w.iter().zip(&inverse).map(|(w, row)| w - 0.3 * first * dot(row, &g));
            weights
                .iter_mut()
                .flat_map(|weight| weight.iter_mut())
                .zip(next)
                .for_each(|(to, next)| *to = next);
            by_hand.set_weights(&weights)?;
            before = Some((w, g));
        }
        let training = TrainingConfig {
            max_epochs: 6,
            batch_size: 6,
            validation_split: 0.0,
            shuffle: false,
            early_stopping_patience: None,
            verbose: false,
            ..TrainingConfig::default()
        };
        assert_eq!(trained.train(&x, &y, &training)?.steps, 6);
        for (found, expected) in flat(&trained.get_weights()?).iter().zip(flat(&by_hand.get_weights()?)) {
            assert!((found - expected).abs() <= 1e-8 * (1.0 + expected.abs()), "{found} is not {expected}");
        }
    }
    Ok(())
}

#[test]
fn gradients_are_clipped_together() -> Result<()> {
    for kind in [OptimizerType::SGD, OptimizerType::LBFGS] {
        clipped(kind)?;
    }
    Ok(())
}

fn clipped(kind: OptimizerType) -> Result<()> {
    let (x, y) = data();
    let config =
        OptimizerConfig { learning_rate: 1.0, gradient_clip: Some(0.01), ..OptimizerConfig::default() };
    let mut network = network(Optimizer::new(kind, config)?)?;
    let before = network.get_weights()?;
    let training = TrainingConfig {
        max_epochs: 1,
        batch_size: 6,
        validation_split: 0.0,
        verbose: false,
        ..TrainingConfig::default()
    };
    network.train(&x, &y, &training)?;
    let after = network.get_weights()?;
    let squares = before.iter().zip(&after).map(|(b, a)| (a - b).mapv(|x| x * x).sum());
    let length = squares.sum::<f64>().sqrt();
    assert!((length - 0.01).abs() < 1e-5, "{length}");
    Ok(())
}
