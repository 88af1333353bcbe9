//! What holds of every training run: rows count by their weights, frozen layers stay, seeds decide, refused runs change nothing.

use rnn::{
    ActivationFunction, Array2, DistributedTraining, LayerBuilder, LayerType, LossConfig, LossFunction,
    Network, Optimizer, RegularizationConfig, Result, TrainingConfig,
};

use super::configuration::{base, builder, data};

#[test]
fn rows_of_weighted_classes_count_by_their_weights() -> Result<()> {
    let (x, _) = data();
    let classes = Array2::from_shape_fn((40, 1), |(i, _)| f64::from(u8::from(i % 5 == 0)));
    let loss =
        LossConfig::new(LossFunction::SparseCategoricalCrossEntropy).with_class_weights(vec![1.0, 7.0])?;
    let build = || {
        Network::with_input_size(3)?
            .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Softmax))
            .loss(loss.clone())
            .optimizer(Optimizer::sgd(0.5)?)
            .device("cpu")
            .seed(5)
            .build()
    };
    // Batches of one step, and rows of one evaluation, are as if they came at once.
    let mut whole = build()?;
    let one = TrainingConfig { batch_size: 40, max_epochs: 1, shuffle: false, ..base() };
    let first = whole.train(&x, &classes, &one)?;
    let mut parts = build()?;
    let config = TrainingConfig { batch_size: 7, gradient_accumulation_steps: 6, ..one.clone() };
    let second = parts.train(&x, &classes, &config)?;
    assert!((first.train_loss[0] - second.train_loss[0]).abs() < 1e-6);
    let apart = build()?;
    let third = DistributedTraining::with_cpu_workers(3)?.with_config(one.clone());
    let third = third.train(&apart, &x, &classes)?;
    assert!((first.train_loss[0] - third.train_loss[0]).abs() < 1e-6);
    for other in [&parts, &apart] {
        for (a, b) in whole.get_weights()?.iter().zip(other.get_weights()?) {
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
    let many = |a: &Array2<f64>| {
        Array2::from_shape_fn((1500, a.ncols()), |(i, j)| {
            a[[if i < 1024 { i % 40 } else { i % 40 / 5 * 5 }, j]]
        })
    };
    let (x, classes) = (many(&x), many(&classes));
    let found = whole.evaluate(&x, &classes)?["loss"];
    let expected = loss.compute(&whole.predict(&x)?, &classes)?;
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
    Ok(())
}

#[test]
fn layers_frozen_inside_others_stay() -> Result<()> {
    let (x, y) = data();
    let linear = || LayerBuilder::dense(3).activation(ActivationFunction::Linear);
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::residual(vec![
            linear().trainable(false),
            LayerBuilder::batch_norm().trainable(false),
            linear(),
        ]))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .seed(5)
        .build()?;
    assert_eq!(network.summary().trainable_parameters, 12 + 8);
    let norm = |network: &Network| -> Result<Vec<Array2<f64>>> { Ok(network.get_weights()?[..4].to_vec()) };
    let before = norm(&network)?;
    network.train(&x, &y, &base())?;
    assert_eq!(norm(&network)?, before);
    let folder = tempfile::tempdir().unwrap();
    network.save(folder.path().join("a"))?;
    // The normalisation's statistics have not moved either.
    let text = std::fs::read(folder.path().join("a")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(file["tensors"]["0.1.running_mean"]["values"], serde_json::json!([0.0, 0.0, 0.0]));
    let mut read = Network::load(folder.path().join("a"))?;
    assert_eq!(read.summary().trainable_parameters, 12 + 8);
    read.unfreeze_layers(&[0])?;
    assert_eq!(read.summary().trainable_parameters, 12 + 6 + 12 + 8);
    read.train(&x, &y, &base())?;
    assert_ne!(norm(&read)?, before);
    Ok(())
}

#[test]
fn dropouts_follow_the_seed_in_copies_too() -> Result<()> {
    let (x, y) = data();
    let build = || {
        Network::with_input_size(3)?
            .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
            .add_layer(LayerBuilder::dropout(0.5)?)
            .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
            .device("cpu")
            .seed(5)
            .build()
    };
    let mixed = TrainingConfig { mixed_precision: true, ..base() };
    let alone = || -> Result<_> {
        let mut network = build()?;
        network.train(&x, &y, &mixed)?;
        network.get_weights()
    };
    assert_eq!(alone()?, alone()?);
    let together = || -> Result<_> {
        let network = build()?;
        DistributedTraining::with_cpu_workers(2)?.with_config(base()).train(&network, &x, &y)?;
        network.get_weights()
    };
    assert_eq!(together()?, together()?);
    Ok(())
}

#[test]
fn a_run_that_is_refused_leaves_the_layers() -> Result<()> {
    let (x, y) = data();
    let regularization = RegularizationConfig { batch_norm: true, ..RegularizationConfig::default() };
    let config = TrainingConfig { regularization, ..base() };
    let mut network = builder()?.build()?;
    assert!(network.train(&x, &Array2::zeros((7, 2)), &config).is_err());
    assert_eq!(network.layers().len(), 2);
    // What fails once they are in it changes nothing either.
    let before = network.get_weights()?;
    let far = Array2::from_elem((40, 2), 1e25);
    assert!(network.train(&x, &far, &config).is_err());
    assert_eq!((network.layers().len(), network.get_weights()?), (2, before));
    network.train(&x, &y, &config)?;
    assert_eq!(network.layers().len(), 3);
    Ok(())
}

#[test]
fn each_hidden_layer_has_a_normalisation_of_its_own() -> Result<()> {
    let (x, y) = data();
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(4))
        .add_layer(LayerBuilder::dense(4))
        .add_layer(LayerBuilder::dropout(0.1)?)
        .add_layer(LayerBuilder::batch_norm())
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .seed(5)
        .build()?;
    let regularization = RegularizationConfig { batch_norm: true, ..RegularizationConfig::default() };
    network.train(&x, &y, &TrainingConfig { regularization, ..base() })?;
    let kinds: Vec<LayerType> = network.layers().iter().map(|layer| layer.layer_type()).collect();
    use LayerType::{BatchNormalization, Dense, Dropout};
    assert_eq!(kinds, [Dense, BatchNormalization, Dense, Dropout, BatchNormalization, Dense]);
    Ok(())
}

#[test]
fn classes_that_count_nothing_lose_nothing() -> Result<()> {
    let (x, _) = data();
    let classes = Array2::from_shape_fn((40, 1), |(i, _)| f64::from(u8::from(i >= 20)));
    let with = |weights: [f64; 2]| {
        LossConfig::new(LossFunction::SparseCategoricalCrossEntropy).with_class_weights(weights.to_vec())
    };
    let build = |loss: LossConfig| {
        Network::with_input_size(3)?
            .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Softmax))
            .loss(loss)
            .optimizer(Optimizer::sgd(0.5)?)
            .device("cpu")
            .seed(5)
            .build()
    };
    // Batches, parts of a step, and workers' parts that have only the class without weight.
    let one = TrainingConfig { batch_size: 40, max_epochs: 2, shuffle: false, ..base() };
    let mut whole = build(with([1.0, 0.0])?)?;
    let expected = whole.train(&x, &classes, &one)?;
    let mut parts = build(with([1.0, 0.0])?)?;
    let config = TrainingConfig { batch_size: 10, gradient_accumulation_steps: 4, ..one.clone() };
    let first = parts.train(&x, &classes, &config)?;
    let apart = build(with([1.0, 0.0])?)?;
    let second =
        DistributedTraining::with_cpu_workers(2)?.with_config(one.clone()).train(&apart, &x, &classes)?;
    for (other, history) in [(&parts, &first), (&apart, &second)] {
        for (a, b) in history.train_loss.iter().zip(&expected.train_loss) {
            assert!((a - b).abs() < 1e-6, "{history:?} is not {expected:?}");
        }
        for (a, b) in whole.get_weights()?.iter().zip(other.get_weights()?) {
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
    let alone =
        build(with([1.0, 0.0])?)?.train(&x, &classes, &TrainingConfig { batch_size: 10, ..one.clone() })?;
    assert!(alone.train_loss.iter().all(|loss| loss.is_finite()), "{alone:?}");
    // What smoothing adds counts nothing either.
    let mut smoothed = build(with([1.0, 0.0])?.with_label_smoothing(0.1)?)?;
    let history = smoothed.train(&x, &classes, &TrainingConfig { batch_size: 10, ..one.clone() })?;
    assert!(history.train_loss.iter().all(|loss| *loss < 10.0), "{history:?}");
    assert!(smoothed.get_weights()?.iter().flatten().all(|weight| weight.abs() < 10.0));
    // Where nothing counts there is nothing to train.
    let error = build(with([0.0, 0.0])?)?.train(&x, &classes, &one).map(drop).unwrap_err();
    assert!(error.to_string().contains("class_weights"), "{error}");
    Ok(())
}

#[test]
fn mixed_precision_leaves_words_alone() -> Result<()> {
    // Whole numbers that bfloat16 does not hold.
    let words = Array2::from_shape_vec((2, 2), vec![257.0, 999.0, 513.0, 257.0]).unwrap();
    let mut network = Network::with_input_size(2)?
        .add_layer(LayerBuilder::embedding(1000, 3))
        .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Linear))
        .optimizer(Optimizer::sgd(0.1)?)
        .device("cpu")
        .seed(5)
        .build()?;
    let before = network.get_weights()?;
    let config = TrainingConfig { max_epochs: 1, mixed_precision: true, ..base() };
    network.train(&words, &Array2::from_elem((2, 2), 3.0), &config)?;
    let after = network.get_weights()?;
    let moved: Vec<usize> = (0..1000).filter(|word| before[0].row(*word) != after[0].row(*word)).collect();
    assert_eq!(moved, [257, 513, 999]);
    Ok(())
}

#[test]
fn dropped_units_do_not_learn() -> Result<()> {
    let linear = |units| LayerBuilder::dense(units).activation(ActivationFunction::Linear);
    let mut network = Network::with_input_size(3)?
        .add_layer(linear(16))
        .add_layer(LayerBuilder::dropout(0.5)?)
        .add_layer(linear(1))
        .optimizer(Optimizer::sgd(0.1)?)
        .device("cpu")
        .seed(5)
        .build()?;
    let before = network.get_weights()?;
    let config = TrainingConfig { max_epochs: 1, ..base() };
    network.train(&Array2::from_elem((1, 3), 0.7), &Array2::from_elem((1, 1), 2.0), &config)?;
    let after = network.get_weights()?;
    // What feeds a unit, and what it feeds, move together: by one mask forwards and backwards.
    let below: Vec<bool> = (0..16).map(|unit| before[0].row(unit) != after[0].row(unit)).collect();
    let above: Vec<bool> = (0..16).map(|unit| before[2].column(unit) != after[2].column(unit)).collect();
    assert_eq!(below, above);
    assert!(below.contains(&true) && below.contains(&false), "{below:?}");
    Ok(())
}

#[test]
fn penalties_are_of_the_exact_weights_in_mixed_precision() -> Result<()> {
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .optimizer(Optimizer::sgd(0.5)?)
        .device("cpu")
        .seed(5)
        .build()?;
    let before = network.get_weights()?;
    let regularization = RegularizationConfig { l2_lambda: Some(0.5), ..RegularizationConfig::default() };
    let config = TrainingConfig { max_epochs: 1, mixed_precision: true, regularization, ..base() };
    // Rows of zeros pull no weight: the penalty halves them.
    network.train(&Array2::zeros((4, 3)), &Array2::zeros((4, 2)), &config)?;
    for (weight, before) in network.get_weights()?[0].iter().zip(&before[0]) {
        assert!((weight - 0.5 * before).abs() < 1e-6, "{weight} is not half of {before}");
    }
    Ok(())
}

#[test]
fn columns_that_are_questions_are_judged_one_by_one() -> Result<()> {
    let (x, y) = data();
    for (loss, last, least) in [
        (LossFunction::BinaryCrossEntropy, ActivationFunction::Sigmoid, 0.0),
        (LossFunction::HingeLoss, ActivationFunction::Linear, -1.0),
        (LossFunction::SquaredHingeLoss, ActivationFunction::Linear, -1.0),
    ] {
        // Both answers of a row may be yes, or none.
        let answers = y.mapv(|y| if y > 0.0 { 1.0 } else { least });
        let mut network = Network::with_input_size(3)?
            .add_layer(LayerBuilder::dense(2).activation(last))
            .loss(loss)
            .optimizer(Optimizer::sgd(1e-9)?)
            .device("cpu")
            .seed(5)
            .build()?;
        let middle = (1.0 + least) / 2.0;
        let right = network
            .predict(&x)?
            .iter()
            .zip(&answers)
            .filter(|(p, t)| (**p >= middle) == (**t == 1.0))
            .count();
        let expected = right as f64 / 80.0;
        let found = network.evaluate(&x, &answers)?["accuracy"];
        assert!((found - expected).abs() < 1e-12, "{}: {found} is not {expected}", loss.name());
        let history = network.train(&x, &answers, &TrainingConfig { max_epochs: 1, ..base() })?;
        let found = history.train_metrics["accuracy"][0];
        assert!((found - expected).abs() < 1e-12, "{}: {found} is not {expected}", loss.name());
    }
    Ok(())
}

#[test]
fn workers_drop_other_units_by_one_seed_too() -> Result<()> {
    let linear = |units| LayerBuilder::dense(units).activation(ActivationFunction::Linear);
    let build = || {
        Network::with_input_size(3)?
            .add_layer(linear(16))
            .add_layer(LayerBuilder::dropout(0.5)?.seed(3))
            .add_layer(linear(1))
            .optimizer(Optimizer::sgd(0.1)?)
            .device("cpu")
            .seed(5)
            .build()
    };
    // The units that learn from so many rows, all alike, with a worker for each.
    let learning = |workers: usize| -> Result<Vec<bool>> {
        let network = build()?;
        let before = network.get_weights()?;
        let config = TrainingConfig { max_epochs: 1, ..base() };
        let trainer = DistributedTraining::with_cpu_workers(workers)?.with_config(config);
        trainer.train(
            &network,
            &Array2::from_elem((workers, 3), 0.7),
            &Array2::from_elem((workers, 1), 2.0),
        )?;
        let after = network.get_weights()?;
        Ok((0..16).map(|unit| before[2].column(unit) != after[2].column(unit)).collect())
    };
    let (one, two) = (learning(1)?, learning(2)?);
    assert!(one.contains(&true) && one.contains(&false), "{one:?}");
    // Those that the first drops, the second does not all drop.
    assert!(one.iter().zip(&two).all(|(one, two)| !one || *two), "{one:?} {two:?}");
    assert_ne!(one, two);
    assert_eq!(two, learning(2)?);
    Ok(())
}
