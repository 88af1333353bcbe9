//! Rows with several questions that are each answered by a class, as the steps of a sequence: each counts as a row.

use rnn::{
    ActivationFunction, Array2, DataAugmentationConfig, DistributedTraining, LayerBuilder, LossConfig,
    LossFunction, Network, NetworkBuilder, Optimizer, Result, TrainingConfig, TrainingMethod,
};

const ROWS: usize = 12;
const STEPS: usize = 5;
const CLASSES: usize = 3;

fn data() -> Array2<f64> {
    Array2::from_shape_fn((ROWS, STEPS * 2), |(i, j)| ((i * 10 + j) as f64 * 0.7).sin())
}

/// The class of each step.
fn numbers() -> Array2<f64> {
    Array2::from_shape_fn((ROWS, STEPS), |(i, j)| ((i * 7 + j * 5) % CLASSES) as f64)
}

fn one_hot() -> Array2<f64> {
    let numbers = numbers();
    Array2::from_shape_fn((ROWS, STEPS * CLASSES), |(i, j)| {
        f64::from(u8::from(numbers[[i, j / CLASSES]] == (j % CLASSES) as f64))
    })
}

fn builder(loss: impl Into<LossConfig>) -> Result<NetworkBuilder> {
    Ok(Network::with_input_shape(&[STEPS, 2])?
        .add_layer(LayerBuilder::gru(4).return_sequences())
        .add_layer(LayerBuilder::dense(CLASSES).activation(ActivationFunction::Softmax))
        .loss(loss)
        .optimizer(Optimizer::sgd(1e-9)?)
        .device("cpu")
        .seed(5))
}

fn base() -> TrainingConfig {
    TrainingConfig {
        max_epochs: 1,
        batch_size: ROWS,
        seed: Some(1),
        shuffle: false,
        verbose: false,
        validation_split: 0.0,
        early_stopping_patience: None,
        ..TrainingConfig::default()
    }
}

/// The mean loss and the accuracy of predictions, by their formulas.
fn judged(predictions: &Array2<f64>) -> (f64, f64) {
    let (mut loss, mut right) = (0.0, 0);
    for ((i, step), class) in numbers().indexed_iter() {
        let own: Vec<f64> = (0..CLASSES).map(|c| predictions[[i, step * CLASSES + c]]).collect();
        assert!((own.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        loss -= own[*class as usize].ln();
        right += usize::from(own.iter().all(|p| *p <= own[*class as usize]));
    }
    let count = (ROWS * STEPS) as f64;
    (loss / count, right as f64 / count)
}

fn near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-5, "{what}: {found} is not {expected}");
}

#[test]
fn the_loss_is_that_of_the_predictions() -> Result<()> {
    let x = data();
    for (loss, targets) in [
        (LossFunction::CategoricalCrossEntropy, one_hot()),
        (LossFunction::SparseCategoricalCrossEntropy, numbers()),
    ] {
        let name = loss.name();
        let mut network = builder(loss)?.build()?;
        let (expected, accuracy) = judged(&network.predict(&x)?);
        let figures = network.evaluate(&x, &targets)?;
        near(figures["loss"], expected, name);
        near(figures["accuracy"], accuracy, name);
        near(network.loss_and_gradients(&x, &targets)?.0, expected, name);
        // What is measured while training, with a rate that moves nothing, and on the same rows afterwards.
        let history = network.train_with_validation(&x, &targets, Some(&x), Some(&targets), &base())?;
        near(history.train_loss[0], expected, name);
        near(history.val_loss[0], expected, name);
        near(history.train_metrics["accuracy"][0], accuracy, name);
        near(history.val_metrics["accuracy"][0], accuracy, name);
        let workers = DistributedTraining::with_cpu_workers(3)?.with_config(base());
        let history = workers.train(&network, &x, &targets)?;
        near(history.train_loss[0], expected, name);
        near(history.train_metrics["accuracy"][0], accuracy, name);
        let config = TrainingConfig { method: TrainingMethod::QuasiNewton, ..base() };
        let history = network.train(&x, &targets, &config)?;
        let (expected, accuracy) = judged(&network.predict(&x)?);
        near(history.train_loss[0], expected, name);
        near(history.train_metrics["accuracy"][0], accuracy, name);
    }
    Ok(())
}

#[test]
fn nothing_known_is_the_logarithm_of_the_classes() -> Result<()> {
    let mut network = builder(LossFunction::CategoricalCrossEntropy)?.build()?;
    let zeros: Vec<Array2<f64>> =
        network.get_weights()?.iter().map(|weight| Array2::zeros(weight.dim())).collect();
    network.set_weights(&zeros)?;
    near(network.loss_and_gradients(&data(), &one_hot())?.0, (CLASSES as f64).ln(), "zeros");
    // Smoothed targets are spread over the classes of their own step.
    let smooth = DataAugmentationConfig { label_smoothing: Some(0.5), ..DataAugmentationConfig::default() };
    let config = TrainingConfig { data_augmentation: Some(smooth), ..base() };
    near(network.train(&data(), &one_hot(), &config)?.train_loss[0], (CLASSES as f64).ln(), "smoothed");
    Ok(())
}

#[test]
fn classes_of_steps_have_weights() -> Result<()> {
    let weights = vec![1.0, 0.0, 3.0];
    let loss =
        LossConfig::new(LossFunction::SparseCategoricalCrossEntropy).with_class_weights(weights.clone())?;
    let mut network = builder(loss)?.build()?;
    let predictions = network.predict(&data())?;
    let (mut sum, mut mass) = (0.0, 0.0);
    for ((i, step), class) in numbers().indexed_iter() {
        let class = *class as usize;
        sum -= weights[class] * predictions[[i, step * CLASSES + class]].ln();
        mass += weights[class];
    }
    near(network.evaluate(&data(), &numbers())?["loss"], sum / mass, "evaluated");
    // Batches count by the weights of all their steps.
    let config = TrainingConfig { batch_size: 5, ..base() };
    near(network.train(&data(), &numbers(), &config)?.train_loss[0], sum / mass, "trained");
    Ok(())
}
