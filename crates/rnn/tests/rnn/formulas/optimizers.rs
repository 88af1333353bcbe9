//! Optimisers with other numbers than the usual ones, on a linear network whose gradient is written out here.

use rnn::{Array2, Optimizer, OptimizerConfig, OptimizerType, Precision, Result};

use super::{close, dense_gradients, epochs, flat, linear, numbers};

/// What an optimiser keeps of one number.
#[derive(Clone, Copy, Default)]
struct State {
    first: f64,
    second: f64,
    third: f64,
    steps: i32,
}

/// The new value by the formulas of the optimisers' papers (PyTorch's forms of them).
fn formula(optimizer: &Optimizer, value: f64, gradient: f64, state: &mut State) -> f64 {
    let config = optimizer.config();
    let (rate, epsilon) = (config.learning_rate, config.epsilon);
    let (b1, b2) = (config.beta1.unwrap(), config.beta2.unwrap());
    let g = gradient + config.weight_decay.unwrap_or(0.0) * value;
    let momentum = config.momentum.unwrap_or(0.0);
    state.steps += 1;
    let t = f64::from(state.steps);
    let is_first = state.steps == 1;
    let State { first, second, third, .. } = state;
    let (c1, c2) = (1.0 - b1.powf(t), 1.0 - b2.powf(t));
    match optimizer.optimizer_type() {
        OptimizerType::Momentum => {
            *first = momentum * *first + g;
            value - rate * *first
        }
        OptimizerType::Nesterov => {
            *first = momentum * *first + g;
            value - rate * (g + momentum * *first)
        }
        OptimizerType::Adagrad => {
            *first += g * g;
            let decay = config.decay.unwrap_or(0.0);
            value - rate / (1.0 + (t - 1.0) * decay) * g / (first.sqrt() + epsilon)
        }
        OptimizerType::Adadelta => {
            let kept = config.decay.unwrap();
            *first = kept * *first + (1.0 - kept) * g * g;
            let change = (*second + epsilon).sqrt() / (*first + epsilon).sqrt() * g;
            *second = kept * *second + (1.0 - kept) * change * change;
            value - rate * change
        }
        OptimizerType::RMSprop => {
            let kept = config.decay.unwrap();
            *first = kept * *first + (1.0 - kept) * g * g;
            *second = momentum * *second + g / (first.sqrt() + epsilon);
            value - rate * *second
        }
        OptimizerType::AdaMax => {
            *first = b1 * *first + (1.0 - b1) * g;
            *second = (b2 * *second).max(g.abs() + epsilon);
            value - rate / c1 * *first / *second
        }
        OptimizerType::Nadam => {
            let mu = |t: f64| b1 * (1.0 - 0.5 * 0.96f64.powf(t * config.decay.unwrap()));
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            // The product of all mu so far.
            *third = if is_first { mu(1.0) } else { *third * mu(t) };
            let ahead = mu(t + 1.0) * *first / (1.0 - *third * mu(t + 1.0));
            let direction = (1.0 - mu(t)) * g / (1.0 - *third) + ahead;
            value - rate * direction / ((*second / c2).sqrt() + epsilon)
        }
        OptimizerType::AdaBound => {
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            let (last, gamma) = (config.final_lr.unwrap(), config.gamma.unwrap());
            let (low, high) = (last * (1.0 - 1.0 / (gamma * t + 1.0)), last * (1.0 + 1.0 / (gamma * t)));
            let own = rate * c2.sqrt() / c1 / (second.sqrt() + epsilon);
            value - own.clamp(low, high) * *first
        }
        OptimizerType::Adam | OptimizerType::AMSGrad => {
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            *third = third.max(*second);
            let greatest = optimizer.optimizer_type() == OptimizerType::AMSGrad;
            let square = if greatest { *third } else { *second };
            value - rate / c1 * *first / ((square / c2).sqrt() + epsilon)
        }
        other => unreachable!("{other:?}"),
    }
}

/// Optimisers whose every setting differs from what it is without.
fn optimizers() -> Result<Vec<Optimizer>> {
    let base = OptimizerConfig { learning_rate: 0.05, ..OptimizerConfig::default() };
    let with = Optimizer::new;
    let moments = OptimizerConfig { beta1: Some(0.6), beta2: Some(0.9), epsilon: 1e-3, ..base.clone() };
    use OptimizerType::*;
    Ok(vec![
        Optimizer::momentum(0.05, 0.5)?,
        Optimizer::rmsprop(0.05, 0.6)?,
        Optimizer::adagrad(0.05)?,
        Optimizer::adam_with_params(0.05, 0.6, 0.9, 1e-3)?,
        with(Nesterov, OptimizerConfig { momentum: Some(0.5), ..base.clone() })?,
        with(
            RMSprop,
            OptimizerConfig { decay: Some(0.6), momentum: Some(0.7), epsilon: 1e-3, ..base.clone() },
        )?,
        with(Adadelta, OptimizerConfig { decay: Some(0.6), epsilon: 1e-3, ..base.clone() })?,
        with(Adagrad, OptimizerConfig { decay: Some(0.3), epsilon: 1e-3, ..base.clone() })?,
        with(Nadam, OptimizerConfig { decay: Some(0.5), ..moments.clone() })?,
        with(AMSGrad, moments.clone())?,
        with(AdaMax, moments.clone())?,
        // Rates within the bounds, and rates that are cut to them.
        with(AdaBound, OptimizerConfig { final_lr: Some(0.2), gamma: Some(0.3), ..moments.clone() })?,
        with(AdaBound, OptimizerConfig { final_lr: Some(0.01), gamma: Some(0.9), ..moments.clone() })?,
        with(AMSGrad, OptimizerConfig { weight_decay: Some(0.3), ..moments })?,
        with(RMSprop, OptimizerConfig { decay: Some(0.6), weight_decay: Some(0.3), ..base })?,
    ])
}

#[test]
fn steps_follow_every_setting() -> Result<()> {
    let (x, y) = (numbers(8, 3, 1), numbers(8, 2, 2));
    for optimizer in optimizers()? {
        let what = format!("{optimizer:?}");
        let mut network = linear(3, 2)?.optimizer(optimizer.clone()).precision(Precision::Float64).build()?;
        let mut weights = network.get_weights()?;
        let mut states: Vec<Vec<State>> =
            weights.iter().map(|weight| vec![State::default(); weight.len()]).collect();
        for _ in 0..8 {
            let gradients = dense_gradients(&x, &weights[0], &weights[1], &y);
            for ((weight, gradient), states) in weights.iter_mut().zip(&gradients).zip(&mut states) {
                for ((w, g), state) in weight.iter_mut().zip(gradient).zip(states) {
                    *w = formula(&optimizer, *w, *g, state);
                }
            }
        }
        let history = network.train(&x, &y, &epochs(8))?;
        assert_eq!(history.steps, 8, "{what}");
        for (found, expected) in network.get_weights()?.iter().zip(&weights) {
            close(&flat(found), &flat(expected), 1e-9, &what);
        }
    }
    Ok(())
}

#[test]
fn constructors_keep_their_numbers() -> Result<()> {
    let usual = OptimizerConfig::default();
    let of = |optimizer: &Optimizer| (optimizer.optimizer_type(), optimizer.config().clone());
    let rate = |learning_rate: f64| OptimizerConfig { learning_rate, ..usual.clone() };
    assert_eq!(of(&Optimizer::sgd(0.2)?), (OptimizerType::SGD, rate(0.2)));
    assert_eq!(of(&Optimizer::adam(0.2)?), (OptimizerType::Adam, rate(0.2)));
    assert_eq!(of(&Optimizer::adagrad(0.2)?), (OptimizerType::Adagrad, rate(0.2)));
    let expected = OptimizerConfig { momentum: Some(0.7), ..rate(0.2) };
    assert_eq!(of(&Optimizer::momentum(0.2, 0.7)?), (OptimizerType::Momentum, expected));
    let expected = OptimizerConfig { decay: Some(0.7), ..rate(0.2) };
    assert_eq!(of(&Optimizer::rmsprop(0.2, 0.7)?), (OptimizerType::RMSprop, expected));
    let expected = OptimizerConfig { damping: Some(3.0), ..rate(0.2) };
    assert_eq!(of(&Optimizer::newton(0.2, 3.0)?), (OptimizerType::Newton, expected));
    let mut optimizer = Optimizer::rmsprop(0.2, 0.7)?;
    optimizer.update_learning_rate(0.1)?;
    assert_eq!((optimizer.get_learning_rate(), optimizer.config().decay), (0.1, Some(0.7)));
    Ok(())
}

/// Solves a system whose matrix is symmetric and positive by elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for column in 0..count {
        let (pivot, own) = (matrix[column].clone(), right[column]);
        for row in column + 1..count {
            let factor = matrix[row][column] / pivot[column];
            (0..count).for_each(|i| matrix[row][i] -= factor * pivot[i]);
            right[row] -= factor * own;
        }
    }
    for row in (0..count).rev() {
        let rest: f64 = (row + 1..count).map(|i| matrix[row][i] * right[i]).sum();
        right[row] = (right[row] - rest) / matrix[row][row];
    }
    right
}

#[test]
fn newtons_direction_has_its_damping() -> Result<()> {
    let (x, y) = (numbers(12, 3, 3), numbers(12, 2, 4));
    let (rate, damping) = (0.5, 0.3);
    let mut network =
        linear(3, 2)?.optimizer(Optimizer::newton(rate, damping)?).precision(Precision::Float64).build()?;
    let mut weights = network.get_weights()?;
    // Second derivatives of the mean over 24 squares: those of different outputs are 0, and of each they are the same.
    let input = |row: usize, i: usize| if i < 3 { x[[row, i]] } else { 1.0 };
    let second = |i: usize, j: usize| {
        let sum: f64 = (0..12).map(|row| input(row, i) * input(row, j)).sum();
        2.0 / 24.0 * sum + if i == j { damping } else { 0.0 }
    };
    for _ in 0..3 {
        let gradients: [Array2<f64>; 2] = dense_gradients(&x, &weights[0], &weights[1], &y);
        for unit in 0..2 {
            let matrix = (0..4).map(|i| (0..4).map(|j| second(i, j)).collect()).collect();
            let derivative = |i: usize| if i < 3 { gradients[0][[unit, i]] } else { gradients[1][[0, unit]] };
            let step = solve(matrix, (0..4).map(derivative).collect());
            (0..3).for_each(|i| weights[0][[unit, i]] -= rate * step[i]);
            weights[1][[0, unit]] -= rate * step[3];
        }
    }
    assert_eq!(network.train(&x, &y, &epochs(3))?.steps, 3);
    for (found, expected) in network.get_weights()?.iter().zip(&weights) {
        close(&flat(found), &flat(expected), 1e-9, "Newton");
    }
    Ok(())
}
