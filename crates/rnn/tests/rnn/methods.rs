//! Methods that look at all rows at once: known optima, steps by their formulas, what they leave alone, what they refuse.

use rnn::{
    ActivationFunction, Array2, DataAugmentationConfig, DistributedTraining, LayerBuilder,
    LearningRateSchedule, LossFunction, Network, Optimizer, OptimizerConfig, OptimizerType, Precision,
    RegularizationConfig, Result, TrainingCallback, TrainingConfig, TrainingHistory, TrainingMethod,
    TrainingState,
};

use super::formulas::close;

use TrainingMethod::*;

const BY_GRADIENTS: [TrainingMethod; 4] = [Newton, QuasiNewton, ConjugateGradient, LevenbergMarquardt];
const AT_RANDOM: [TrainingMethod; 4] = [Evolutionary, ParticleSwarm, GeneticAlgorithm, SimulatedAnnealing];

fn data() -> (Array2<f64>, Array2<f64>) {
    // Sines alone would depend on each other.
    let x = Array2::from_shape_fn((20, 3), |(i, j)| {
        ((i * 3 + j) as f64 * 0.7).sin() + 0.5 * ((i * i + 5 * j * j) as f64).cos()
    });
    let y = Array2::from_shape_fn((20, 2), |(i, j)| ((i * 2 + j) as f64 * 1.3).cos());
    (x, y)
}

fn line(precision: Precision) -> Result<Network> {
    Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .precision(precision)
        .device("cpu")
        .seed(3)
        .build()
}

fn curved() -> Result<Network> {
    Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(5).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .precision(Precision::Float64)
        .device("cpu")
        .seed(3)
        .build()
}

fn base(method: TrainingMethod) -> TrainingConfig {
    TrainingConfig {
        method,
        max_epochs: 100,
        seed: Some(1),
        verbose: false,
        validation_split: 0.0,
        early_stopping_patience: None,
        ..TrainingConfig::default()
    }
}

/// Solves a system by elimination with pivots.
fn eliminate(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for column in 0..count {
        let size = |row: &usize| matrix[*row][column].abs();
        let pivot = (column..count).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (pivot, own) = (matrix[column].clone(), right[column]);
        for (row, right) in matrix.iter_mut().zip(&mut right).skip(column + 1) {
            let factor = row[column] / pivot[column];
            row.iter_mut().zip(&pivot).for_each(|(x, pivot)| *x -= factor * pivot);
            *right -= factor * own;
        }
    }
    for row in (0..count).rev() {
        let rest: f64 = (row + 1..count).map(|k| matrix[row][k] * right[k]).sum();
        right[row] = (right[row] - rest) / matrix[row][row];
    }
    right
}

/// The weights of a linear network with the least mean squared error plus a penalty on the squares of weights: the normal
/// equations.
fn least_squares(penalty: f64) -> (Array2<f64>, Array2<f64>) {
    let (x, y) = data();
    let at = |row: usize, i: usize| if i < 3 { x[[row, i]] } else { 1.0 };
    let (mut weight, mut bias) = (Array2::zeros((2, 3)), Array2::zeros((1, 2)));
    for output in 0..2 {
        let product = |i: usize, j: usize| (0..20).map(|row| at(row, i) * at(row, j)).sum::<f64>() / 40.0;
        let matrix = (0..4)
            .map(|i| (0..4).map(|j| product(i, j) + if i == j && i < 3 { penalty } else { 0.0 }).collect())
            .collect();
        let right = (0..4).map(|i| (0..20).map(|row| at(row, i) * y[[row, output]]).sum::<f64>() / 40.0);
        let solution = eliminate(matrix, right.collect());
        (0..3).for_each(|i| weight[[output, i]] = solution[i]);
        bias[[0, output]] = solution[3];
    }
    (weight, bias)
}

fn distance(network: &Network, expected: &(Array2<f64>, Array2<f64>)) -> Result<f64> {
    let weights = network.get_weights()?;
    let own = |found: &Array2<f64>, expected: &Array2<f64>| {
        (found - expected).iter().fold(0.0, |most: f64, x| most.max(x.abs()))
    };
    Ok(own(&weights[0], &expected.0).max(own(&weights[1], &expected.1)))
}

#[test]
fn least_squares_are_those_of_the_normal_equations() -> Result<()> {
    let (x, y) = data();
    for method in BY_GRADIENTS {
        for (precision, near) in [(Precision::Float64, 1e-6), (Precision::Float32, 2e-3)] {
            let mut network = line(precision)?;
            // Rows in parts are the same as all at once.
            let history = network.train(&x, &y, &TrainingConfig { batch_size: 7, ..base(method) })?;
            let off = distance(&network, &least_squares(0.0))?;
            assert!(off < near, "{method:?} in {precision:?}: {off} after {} epochs", history.epochs());
            // The run ends where nothing better is found.
            assert!(history.epochs() < 100 && history.steps == history.epochs(), "{method:?}");
        }
    }
    for method in [Newton, QuasiNewton, ConjugateGradient] {
        let mut network = line(Precision::Float64)?;
        let regularization = RegularizationConfig { l2_lambda: Some(0.1), ..RegularizationConfig::default() };
        network.train(&x, &y, &TrainingConfig { regularization, ..base(method) })?;
        let off = distance(&network, &least_squares(0.1))?;
        assert!(off < 1e-6, "{method:?} with a penalty: {off}");
        assert!(distance(&network, &least_squares(0.0))? > 1e-2);
    }
    Ok(())
}

#[test]
fn searches_at_random_come_near_the_normal_equations() -> Result<()> {
    let (x, y) = data();
    let mut best = line(Precision::Float64)?;
    best.train(&x, &y, &base(Newton))?;
    let least = best.evaluate(&x, &y)?["loss"];
    for (method, max_epochs) in
        [(Evolutionary, 200), (ParticleSwarm, 80), (GeneticAlgorithm, 80), (SimulatedAnnealing, 120)]
    {
        let mut network = line(Precision::Float64)?;
        let before = network.evaluate(&x, &y)?["loss"];
        let history = network.train(&x, &y, &TrainingConfig { max_epochs, ..base(method) })?;
        let found = history.train_loss.last().copied().unwrap();
        assert!(found - least < 0.01 * (before - least), "{method:?}: {before} to {found}, least {least}");
        assert!(history.train_loss.windows(2).all(|pair| pair[1] <= pair[0] + 1e-15), "{method:?}");
    }
    Ok(())
}

#[test]
fn exclusive_or_is_learnt() -> Result<()> {
    let x = Array2::from_shape_vec((4, 2), vec![0., 0., 0., 1., 1., 0., 1., 1.]).unwrap();
    let y = Array2::from_shape_vec((4, 1), vec![0., 1., 1., 0.]).unwrap();
    for method in BY_GRADIENTS.into_iter().chain([Evolutionary, ParticleSwarm]) {
        let mut network = Network::with_input_size(2)?
            .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
            .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Linear))
            .precision(Precision::Float64)
            .device("cpu")
            .seed(2)
            .build()?;
        let config = TrainingConfig { max_epochs: 250, metrics: vec!["accuracy".into()], ..base(method) };
        let history = network.train(&x, &y, &config)?;
        assert_eq!(history.train_metrics["accuracy"].last(), Some(&1.0), "{method:?}");
        let loss = history.train_loss.last().copied().unwrap();
        assert!(loss < 0.05, "{method:?}: {loss}");
    }
    Ok(())
}

/// Weights one after another.
pub(crate) fn flat(weights: &[Array2<f64>]) -> Vec<f64> {
    weights.iter().flat_map(|weight| weight.iter().copied()).collect()
}

fn moved(network: &Network, at: &[f64]) -> Result<Network> {
    let mut moved = network.try_clone()?;
    let mut weights = moved.get_weights()?;
    weights.iter_mut().flat_map(|weight| weight.iter_mut()).zip(at).for_each(|(to, from)| *to = *from);
    moved.set_weights(&weights)?;
    Ok(moved)
}

/// Differences of a function of a network along each weight.
fn differences(network: &Network, function: impl Fn(&Network) -> Result<Vec<f64>>) -> Result<Vec<Vec<f64>>> {
    let at = flat(&network.get_weights()?);
    let along = |i: usize| -> Result<Vec<f64>> {
        let value = |by: f64| {
            let mut at = at.clone();
            at[i] += by;
            function(&moved(network, &at)?)
        };
        Ok(value(1e-5)?.iter().zip(value(-1e-5)?).map(|(after, before)| (after - before) / 2e-5).collect())
    };
    (0..at.len()).map(along).collect()
}

#[test]
fn a_step_of_levenberg_and_marquardt_is_their_formula() -> Result<()> {
    let (x, y) = data();
    let mut network = curved()?;
    let before = flat(&network.get_weights()?);
    let derivatives = differences(&network, |network| Ok(network.predict(&x)?.iter().copied().collect()))?;
    let gradient = flat(&network.loss_and_gradients(&x, &y)?.1);
    let product = |i: usize, j: usize| {
        2.0 / 40.0 * derivatives[i].iter().zip(&derivatives[j]).map(|(a, b)| a * b).sum::<f64>()
    };
    let damping = 0.3;
    let matrix = (0..before.len())
        .map(|i| {
            let scale = |j: usize| if i == j { 1.0 + damping } else { 1.0 };
            (0..before.len()).map(|j| product(i, j) * scale(j)).collect()
        })
        .collect();
    let step = eliminate(matrix, gradient);
    let expected: Vec<f64> = before.iter().zip(&step).map(|(weight, step)| weight - step).collect();
    let config = OptimizerConfig { damping: Some(damping), ..OptimizerConfig::default() };
    let config = TrainingConfig {
        optimizer: Some(Optimizer::new(OptimizerType::Adam, config)?),
        max_epochs: 1,
        batch_size: 8,
        ..base(LevenbergMarquardt)
    };
    network.train(&x, &y, &config)?;
    close(&flat(&network.get_weights()?), &expected, 1e-5, "weights");
    Ok(())
}

#[test]
fn steps_of_the_optimiser_newton_are_its_formula() -> Result<()> {
    let (x, y) = data();
    let (rate, damping, decay) = (0.5, 2.0, 0.1);
    for weight_decay in [None, Some(decay)] {
        let config = OptimizerConfig {
            learning_rate: rate,
            damping: Some(damping),
            weight_decay,
            ..OptimizerConfig::default()
        };
        let optimizer = Optimizer::new(OptimizerType::Newton, config)?;
        let (mut network, mut by_hand) = (curved()?, curved()?);
        for _ in 0..3 {
            let weights = flat(&by_hand.get_weights()?);
            let decay = weight_decay.unwrap_or(0.0);
            let derivative = |network: &Network| Ok(flat(&network.loss_and_gradients(&x, &y)?.1));
            let mut second = differences(&by_hand, derivative)?;
            (0..weights.len()).for_each(|i| second[i][i] += damping + decay);
            let gradient = derivative(&by_hand)?.iter().zip(&weights).map(|(g, w)| g + decay * w).collect();
            let step = eliminate(second, gradient);
            let next: Vec<f64> =
                weights.iter().zip(&step).map(|(weight, step)| weight - rate * step).collect();
            by_hand = moved(&by_hand, &next)?;
        }
        let config = TrainingConfig {
            optimizer: Some(optimizer),
            max_epochs: 3,
            batch_size: 20,
            shuffle: false,
            ..base(Backpropagation)
        };
        let history = network.train(&x, &y, &config)?;
        assert_eq!(history.steps, 3);
        close(&flat(&network.get_weights()?), &flat(&by_hand.get_weights()?), 1e-6, "weights");
    }
    Ok(())
}

#[test]
fn the_same_seed_finds_the_same() -> Result<()> {
    let (x, y) = data();
    let run = |method, seed| -> Result<(Vec<Array2<f64>>, TrainingHistory)> {
        let mut network = curved()?;
        let config = TrainingConfig { seed: Some(seed), max_epochs: 3, ..base(method) };
        let history = network.train(&x, &y, &config)?;
        Ok((network.get_weights()?, history))
    };
    for method in AT_RANDOM {
        let ((first, history), (second, _), (third, _)) = (run(method, 1)?, run(method, 1)?, run(method, 2)?);
        assert_eq!(first, second, "{method:?}");
        assert_ne!(first, third, "{method:?}");
        assert_eq!((history.epochs(), history.steps), (3, 3));
    }
    Ok(())
}

#[test]
fn frozen_layers_stay() -> Result<()> {
    let (x, y) = data();
    for method in TrainingMethod::ALL {
        let mut network = curved()?;
        network.freeze_layers(&[0])?;
        let before = network.get_weights()?;
        network.train(&x, &y, &TrainingConfig { max_epochs: 2, ..base(method) })?;
        let after = network.get_weights()?;
        assert_eq!(before[..2], after[..2], "{method:?}");
        assert_ne!(before[2..], after[2..], "{method:?}");
    }
    Ok(())
}

#[test]
fn dropouts_do_not_drop_and_validation_is_measured() -> Result<()> {
    let (x, y) = data();
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(4).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dropout(0.5)?)
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .seed(1)
        .build()?;
    struct Told(Vec<usize>);
    impl TrainingCallback for Told {
        fn on_batch_begin(&mut self, batch: usize, _: &TrainingState) {
            self.0.push(batch);
        }
        fn on_batch_end(&mut self, batch: usize, _: &mut TrainingState) {
            self.0.push(batch + 10);
        }
    }
    let mut told = Told(Vec::new());
    let config = TrainingConfig { validation_split: 0.25, max_epochs: 4, ..base(QuasiNewton) };
    let history = network.train_with_callbacks(&x, &y, None, None, &config, &mut [&mut told])?;
    assert_eq!(told.0, [0, 10, 0, 10, 0, 10, 0, 10]);
    let rows = |from: usize, to: usize| {
        let part = |a: &Array2<f64>| a.slice(ndarray::s![from..to, ..]).to_owned();
        (part(&x), part(&y))
    };
    let (train, validation) = (rows(0, 15), rows(15, 20));
    let after =
        |(x, y): &(Array2<f64>, Array2<f64>)| Ok::<_, rnn::NetworkError>(network.evaluate(x, y)?["loss"]);
    assert!((after(&train)? - history.train_loss[3]).abs() < 1e-6);
    assert!((after(&validation)? - history.val_loss[3]).abs() < 1e-6);
    Ok(())
}

#[test]
fn what_a_method_cannot_do_is_refused() -> Result<()> {
    let (x, y) = data();
    let words = |network: &mut Network, config: &TrainingConfig| {
        network.train(&x, &y, config).map(drop).expect_err("it must be refused").to_string()
    };
    let with = |regularization| TrainingConfig { regularization, ..base(QuasiNewton) };
    let plain = RegularizationConfig::default;
    for config in [
        TrainingConfig {
            lr_schedule: Some(LearningRateSchedule::ExponentialDecay { gamma: 0.5 }),
            ..base(Evolutionary)
        },
        TrainingConfig { gradient_accumulation_steps: 2, ..base(Newton) },
        TrainingConfig { mixed_precision: true, ..base(ParticleSwarm) },
        TrainingConfig { data_augmentation: Some(DataAugmentationConfig::default()), ..base(QuasiNewton) },
        with(RegularizationConfig { dropout_rate: Some(0.1), ..plain() }),
        with(RegularizationConfig { spectral_norm: true, ..plain() }),
    ] {
        assert!(words(&mut curved()?, &config).contains("use Backpropagation"), "{config:?}");
    }
    for config in [
        TrainingConfig { loss_function: Some(LossFunction::HuberLoss), ..base(LevenbergMarquardt) },
        TrainingConfig {
            regularization: RegularizationConfig { l2_lambda: Some(0.1), ..plain() },
            ..base(LevenbergMarquardt)
        },
    ] {
        assert!(words(&mut curved()?, &config).contains("MeanSquaredError"));
    }
    let mut large = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(500))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .build()?;
    let newton = TrainingConfig { optimizer: Some(Optimizer::newton(0.1, 1.0)?), ..base(Backpropagation) };
    for config in [base(Newton), base(LevenbergMarquardt), newton.clone()] {
        let before = large.get_weights()?;
        let words = words(&mut large, &config);
        assert!(words.contains("at most 2000 weights") && words.contains("QuasiNewton"), "{words}");
        assert_eq!(large.get_weights()?, before);
    }
    for config in [
        TrainingConfig { gradient_accumulation_steps: 2, ..newton.clone() },
        TrainingConfig { mixed_precision: true, ..newton.clone() },
    ] {
        assert!(words(&mut curved()?, &config).contains("LBFGS"));
    }
    for config in [newton, base(QuasiNewton)] {
        let trainer = DistributedTraining::with_cpu_workers(2)?.with_config(config);
        let error = trainer.train(&curved()?, &x, &y).map(drop).unwrap_err();
        assert!(error.to_string().contains("Backpropagation"), "{error}");
    }
    let mut network = line(Precision::Float32)?;
    let before = network.get_weights()?;
    for method in [QuasiNewton, Evolutionary, Newton] {
        let error = network.train(&x.mapv(|x| 1e30 * x), &y, &base(method)).map(drop).unwrap_err();
        assert!(error.to_string().contains("scale the data"), "{error}");
    }
    assert_eq!(network.get_weights()?, before);
    for config in [
        OptimizerConfig { memory_size: Some(0), ..OptimizerConfig::default() },
        OptimizerConfig { damping: Some(-1.0), ..OptimizerConfig::default() },
        OptimizerConfig { damping: Some(f64::NAN), ..OptimizerConfig::default() },
    ] {
        assert!(Optimizer::new(OptimizerType::LBFGS, config).is_err());
    }
    Ok(())
}
