//! Runs with what is seldom set together: one seed on every device, workers and mixed precision with running statistics,
//! augmentation, recurrent layers and penalties.

use rnn::{
    ActivationFunction, Array2, DataAugmentationConfig, DistributedTraining, GpuManager, LayerBuilder,
    Network, Optimizer, Precision, RegularizationConfig, Result, TrainingConfig, TrainingHistory,
    WeightInitialization, gpu::RecurrentKind,
};

use super::{close, dense, epochs, flat, linear, numbers, recurrence};

fn all(arrays: &[Array2<f64>]) -> Vec<f64> {
    arrays.iter().flat_map(flat).collect()
}

/// What draws random numbers of its own while training.
fn augmented() -> DataAugmentationConfig {
    DataAugmentationConfig {
        gaussian_noise: Some(0.1),
        input_dropout: Some(0.2),
        mixup_alpha: Some(0.4),
        cutout_prob: Some(0.3),
        ..DataAugmentationConfig::default()
    }
}

#[test]
fn one_seed_gives_one_network_on_every_device() -> Result<()> {
    let build = |device: &str| -> Result<Network> {
        Network::with_input_shape(&[1, 6, 6])?
            .add_layer(LayerBuilder::conv2d(3, (3, 3)).weight_init(WeightInitialization::HeNormal))
            .add_layer(LayerBuilder::flatten())
            .add_layer(LayerBuilder::dropout(0.5)?)
            .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
            .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
            .device(device)
            .seed(7)
            .build()
    };
    let (x, y) = (numbers(12, 36, 1), numbers(12, 2, 2));
    let config =
        TrainingConfig { data_augmentation: Some(augmented()), batch_size: 4, shuffle: true, ..epochs(2) };
    // Weights, what dropouts leave, and a run whose rows are changed at random.
    let made = |device: &str| -> Result<(Vec<f64>, Vec<f64>, TrainingHistory)> {
        let mut network = build(device)?;
        assert_eq!(network.device(), device);
        let (weights, dropped) = (all(&network.get_weights()?), flat(&network.forward(&x, true)?));
        Ok((weights, dropped, network.train(&x, &y, &config)?))
    };
    let (weights, dropped, history) = made("cpu")?;
    assert_ne!(dropped, flat(&build("cpu")?.predict(&x)?));
    for device in GpuManager::new().devices() {
        let name = &device.engine_name;
        let found = made(name)?;
        // Devices round products and sums in one or in two steps.
        close(&found.0, &weights, 1e-6, &format!("weights on {name}"));
        close(&found.1, &dropped, 1e-5, &format!("what dropouts leave on {name}"));
        close(&found.2.train_loss, &history.train_loss, 1e-4, &format!("losses on {name}"));
    }
    Ok(())
}

/// The running means and variances of columns after passes over batches of so many rows, of each of which the first are seen.
fn running(x: &Array2<f64>, batch: usize, seen: usize, passes: usize) -> [Vec<f64>; 2] {
    let (mut means, mut variances) = (vec![0.0; x.ncols()], vec![1.0; x.ncols()]);
    for _ in 0..passes {
        for start in (0..x.nrows()).step_by(batch) {
            for (column, (running_mean, running_variance)) in means.iter_mut().zip(&mut variances).enumerate()
            {
                let own: Vec<f64> = (start..start + seen).map(|row| x[[row, column]]).collect();
                let mean = own.iter().sum::<f64>() / seen as f64;
                let squares: f64 = own.iter().map(|x| (x - mean).powi(2)).sum();
                *running_mean = 0.9 * *running_mean + 0.1 * mean;
                *running_variance = 0.9 * *running_variance + 0.1 * squares / (seen - 1) as f64;
            }
        }
    }
    [means, variances]
}

/// The running means and variances of a network that begins with a normalisation, as its file has them.
fn statistics(network: &Network) -> Result<[Vec<f64>; 2]> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network");
    network.save(&path)?;
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    Ok(["0.running_mean", "0.running_var"].map(|name| {
        let values = file["tensors"][name]["values"].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap()).collect()
    }))
}

/// A normalisation of three columns and a layer.
fn normalised(precision: Precision) -> Result<Network> {
    Network::with_input_size(3)?
        .add_layer(LayerBuilder::batch_norm())
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .optimizer(Optimizer::sgd(0.05)?)
        .precision(precision)
        .device("cpu")
        .seed(5)
        .build()
}

#[test]
fn workers_normalise_their_rows() -> Result<()> {
    // The second half of each batch of eight is the first once more, so that all normalise alike.
    let twice = |of: Array2<f64>| {
        Array2::from_shape_fn((32, of.ncols()), |(row, column)| of[[row / 8 * 4 + row % 4, column]])
    };
    let x = twice(numbers(16, 3, 1).mapv(|x| 2.0 * x + 1.0));
    let y = twice(numbers(16, 2, 2));
    let config = TrainingConfig { batch_size: 8, ..epochs(3) };
    let mut alone = normalised(Precision::Float64)?;
    let expected = alone.train(&x, &y, &config)?;
    let together = normalised(Precision::Float64)?;
    let history = DistributedTraining::with_cpu_workers(2)?.with_config(config).train(&together, &x, &y)?;
    close(&history.train_loss, &expected.train_loss, 1e-9, "losses");
    close(&all(&together.get_weights()?), &all(&alone.get_weights()?), 1e-9, "weights");
    // Unbiased variances tell how many rows were seen at a time.
    for (network, seen) in [(&alone, 8), (&together, 4)] {
        let (found, expected) = (statistics(network)?, running(&x, 8, seen, 3));
        close(&found[0], &expected[0], 1e-6, &format!("running means of {seen} rows"));
        close(&found[1], &expected[1], 1e-6, &format!("running variances of {seen} rows"));
    }
    Ok(())
}

#[test]
fn workers_share_augmented_rows() -> Result<()> {
    let (x, y) = (numbers(24, 4, 1), numbers(24, 2, 2));
    let build = || linear(4, 2)?.precision(Precision::Float64).build();
    let train = |workers: usize, config: &TrainingConfig| -> Result<(TrainingHistory, Vec<f64>)> {
        let mut network = build()?;
        let history = match workers {
            0 => network.train(&x, &y, config)?,
            _ => {
                let trainer = DistributedTraining::with_cpu_workers(workers)?.with_config(config.clone());
                trainer.train(&network, &x, &y)?
            }
        };
        Ok((history, all(&network.get_weights()?)))
    };
    let random =
        TrainingConfig { data_augmentation: Some(augmented()), batch_size: 8, shuffle: true, ..epochs(3) };
    let smooth = DataAugmentationConfig { label_smoothing: Some(0.4), ..DataAugmentationConfig::default() };
    let smooth = TrainingConfig { data_augmentation: Some(smooth), ..epochs(1) };
    let (alone, weights) = train(0, &random)?;
    for workers in [1, 2, 3] {
        let (history, found) = train(workers, &random)?;
        close(&history.train_loss, &alone.train_loss, 1e-9, &format!("losses of {workers} workers"));
        close(&found, &weights, 1e-9, &format!("weights of {workers} workers"));
        // Two fifths of each target are spread over its two columns.
        let w = build()?.get_weights()?;
        let off = dense(&x, &w[0], &w[1]) - y.mapv(|y| 0.6 * y + 0.2);
        let expected = off.iter().map(|off| off * off).sum::<f64>() / off.len() as f64;
        let (history, _) = train(workers, &smooth)?;
        close(&history.train_loss, &[expected], 1e-9, &format!("smoothed loss of {workers} workers"));
    }
    Ok(())
}

#[test]
fn running_statistics_keep_their_precision() -> Result<()> {
    // Quarters around 5, which bfloat16 holds; what runs after them in steps of a tenth it would not.
    let x = numbers(32, 3, 9).mapv(|x| 5.0 + (8.0 * x).round() / 4.0);
    let y = numbers(32, 2, 10);
    let expected = running(&x, 8, 8, 20);
    for (mixed_precision, near) in [(false, 1e-5), (true, 1e-3)] {
        let mut network = normalised(Precision::Float32)?;
        let config = TrainingConfig { mixed_precision, batch_size: 8, ..epochs(20) };
        network.train(&x, &y, &config)?;
        let found = statistics(&network)?;
        close(&found[0], &expected[0], near, &format!("running means, mixed {mixed_precision}"));
        close(&found[1], &expected[1], near, &format!("running variances, mixed {mixed_precision}"));
    }
    Ok(())
}

/// The mean squared error of a recurrent layer and a dense one, whose weights these are, over rows of four steps of two
/// numbers.
fn recurrent_loss(kind: RecurrentKind, w: &[Array2<f64>], x: &Array2<f64>, y: &Array2<f64>) -> f64 {
    let (rows, units) = (x.nrows(), w[1].ncols());
    let steps = Array2::from_shape_fn((4 * rows, 2), |(place, feature)| {
        x[[place % rows, place / rows * 2 + feature]]
    });
    let states = recurrence(kind, &steps, rows, [&w[0], &w[1]], [&w[2], &w[3]]);
    let last = Array2::from_shape_fn((rows, units), |(row, unit)| states[(3 * rows + row) * units + unit]);
    let off = dense(&last, &w[4], &w[5]) - y;
    off.iter().map(|off| off * off).sum::<f64>() / off.len() as f64
}

#[test]
fn recurrent_layers_learn_in_mixed_precision() -> Result<()> {
    let (x, y) = (numbers(12, 8, 1), numbers(12, 1, 2).mapv(|y| y + 1.0));
    for (kind, layer) in [
        (RecurrentKind::Rnn, LayerBuilder::rnn(3)),
        (RecurrentKind::Lstm, LayerBuilder::lstm(3)),
        (RecurrentKind::Gru, LayerBuilder::gru(3)),
    ] {
        for (mixed_precision, near) in [(false, 1e-3), (true, 0.08)] {
            let mut network = Network::with_input_shape(&[4, 2])?
                .add_layer(layer.clone())
                .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Linear))
                .optimizer(Optimizer::sgd(0.1)?)
                .device("cpu")
                .seed(5)
                .build()?;
            let before = network.get_weights()?;
            let config = TrainingConfig { mixed_precision, ..epochs(1) };
            let history = network.train(&x, &y, &config)?;
            let what = format!("{kind:?}, mixed {mixed_precision}");
            close(&history.train_loss, &[recurrent_loss(kind, &before, &x, &y)], near, &what);
            // The step goes down the gradient of the formula, by central differences.
            let (mut off, mut length) = (0f64, 0f64);
            for (place, after) in network.get_weights()?.iter().enumerate() {
                for (index, after) in after.indexed_iter() {
                    let at = |by: f64| {
                        let mut moved = before.clone();
                        moved[place][index] += by;
                        recurrent_loss(kind, &moved, &x, &y)
                    };
                    let expected = -0.1 * (at(1e-5) - at(-1e-5)) / 2e-5;
                    off += (after - before[place][index] - expected).powi(2);
                    length += expected * expected;
                }
            }
            assert!(length > 1e-6, "{what}: a step of {}", length.sqrt());
            assert!(off.sqrt() < near * length.sqrt(), "{what}: off by {} of {}", off.sqrt(), length.sqrt());
        }
    }
    Ok(())
}

#[test]
fn penalties_in_mixed_precision() -> Result<()> {
    // With data and biases of 0 the loss is 0, and only the penalty moves weights.
    let (x, y) = (Array2::zeros((4, 3)), Array2::zeros((4, 2)));
    let none = RegularizationConfig::default();
    let (rate, lambda) = (0.5, 0.3);
    let one = RegularizationConfig { l1_lambda: Some(lambda), ..none.clone() };
    let two = RegularizationConfig { l2_lambda: Some(lambda), ..none.clone() };
    let penalty = RegularizationConfig { gradient_penalty: Some(lambda), ..none };
    for mixed_precision in [false, true] {
        // What penalises weights has them in full; what penalises outputs goes through bfloat16.
        for (regularization, near) in
            [(&one, 1e-6), (&two, 1e-6), (&penalty, if mixed_precision { 1e-2 } else { 1e-6 })]
        {
            let mut network = linear(3, 2)?.optimizer(Optimizer::sgd(rate)?).build()?;
            let before = network.get_weights()?;
            let config =
                TrainingConfig { mixed_precision, regularization: regularization.clone(), ..epochs(1) };
            let history = network.train(&x, &y, &config)?;
            let expected = Array2::from_shape_fn((2, 3), |(unit, input)| {
                let weight = before[0][[unit, input]];
                let sum = before[0][[0, input]] + before[0][[1, input]];
                let derivative = match (regularization.l1_lambda, regularization.l2_lambda) {
                    (Some(lambda), _) => lambda * weight.signum(),
                    (_, Some(lambda)) => 2.0 * lambda * weight,
                    // Of the square of the sum of outputs' derivative by this input.
                    _ => 2.0 * lambda * sum,
                };
                weight - rate * derivative
            });
            let what = format!("{regularization:?}, mixed {mixed_precision}");
            let after = network.get_weights()?;
            close(&flat(&after[0]), &flat(&expected), near, &what);
            assert_eq!(history.train_loss, [0.0], "{what}");
            assert!(after[1].iter().all(|bias| *bias == 0.0), "{what}");
        }
    }
    Ok(())
}
