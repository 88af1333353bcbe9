//! Each setting of training has its effect.

use std::{process::Command, time::Duration};

use rnn::{
    ActivationFunction, Array2, DataAugmentationConfig, EarlyStopping, LayerBuilder, LayerType,
    LearningRateSchedule, LearningRateScheduler, LossFunction, Network, NetworkBuilder, Optimizer,
    RegularizationConfig, Result, TrainingCallback, TrainingConfig, TrainingHistory, TrainingState,
};

pub(crate) fn data() -> (Array2<f64>, Array2<f64>) {
    let x = Array2::from_shape_fn((40, 3), |(i, j)| ((i * 3 + j) as f64 * 0.7).sin());
    let y = Array2::from_shape_fn((40, 2), |(i, j)| ((i * 2 + j) as f64 * 1.3).cos());
    (x, y)
}

pub(crate) fn builder() -> Result<NetworkBuilder> {
    Ok(Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .seed(5))
}

pub(crate) fn base() -> TrainingConfig {
    TrainingConfig {
        max_epochs: 4,
        batch_size: 8,
        seed: Some(1),
        verbose: false,
        validation_split: 0.0,
        early_stopping_patience: None,
        ..TrainingConfig::default()
    }
}

fn train(config: &TrainingConfig) -> Result<(Network, TrainingHistory)> {
    let (x, y) = data();
    let mut network = builder()?.build()?;
    let history = network.train(&x, &y, config)?;
    Ok((network, history))
}

fn loss(config: &TrainingConfig) -> Result<f64> {
    Ok(*train(config)?.1.train_loss.last().unwrap())
}

#[test]
fn epochs_and_batches() -> Result<()> {
    let (_, history) = train(&base())?;
    assert_eq!((history.epochs(), history.steps), (4, 20));
    assert_eq!(history.epoch_times.len(), 4);
    assert_eq!(history.parameter_count, 3 * 8 + 8 + 8 * 2 + 2);
    assert_eq!(history.train_metrics["loss"], history.train_loss);
    let (_, history) = train(&TrainingConfig { batch_size: 40, max_epochs: 2, ..base() })?;
    assert_eq!((history.epochs(), history.steps), (2, 2));
    Ok(())
}

#[test]
fn seeds_and_orders() -> Result<()> {
    let weights = |config: &TrainingConfig| train(config)?.0.get_weights();
    assert_eq!(weights(&base())?, weights(&base())?);
    assert_ne!(weights(&base())?, weights(&TrainingConfig { seed: Some(2), ..base() })?);
    let in_order = |seed| TrainingConfig { seed: Some(seed), shuffle: false, ..base() };
    assert_eq!(weights(&in_order(1))?, weights(&in_order(2))?);
    Ok(())
}

#[test]
fn loss_and_optimiser_of_the_run() -> Result<()> {
    let (x, y) = data();
    let config = TrainingConfig {
        loss_function: Some(LossFunction::MeanAbsoluteError),
        max_epochs: 1,
        batch_size: 40,
        ..base()
    };
    let mut network = builder()?.build()?;
    let expected = LossFunction::MeanAbsoluteError.compute(&network.predict(&x)?, &y)?;
    let history = network.train(&x, &y, &config)?;
    assert!((history.train_loss[0] - expected).abs() < 1e-6);
    let slow = TrainingConfig { optimizer: Some(Optimizer::sgd(1e-9)?), ..base() };
    let before = builder()?.build()?.get_weights()?;
    let (network, history) = train(&slow)?;
    let moved =
        network.get_weights()?.iter().zip(&before).map(|(a, b)| (a - b).mapv(f64::abs).sum()).sum::<f64>();
    assert!(moved < 1e-5, "{moved}");
    assert_eq!(history.learning_rate, [1e-9; 4]);
    Ok(())
}

#[test]
fn validation() -> Result<()> {
    let (x, y) = data();
    let config =
        TrainingConfig { validation_split: 0.25, metrics: vec!["mae".into(), "r2".into()], ..base() };
    let (network, history) = train(&config)?;
    assert_eq!((history.val_loss.len(), history.steps), (4, 16));
    let last = |a: &Array2<f64>| a.slice(ndarray::s![30.., ..]).to_owned();
    let found = network.evaluate(&last(&x), &last(&y))?;
    assert!((found["loss"] - history.val_loss[3]).abs() < 1e-6);
    assert!((found["mae"] - history.val_metrics["mae"][3]).abs() < 1e-6);
    assert!((found["r2"] - history.val_metrics["r2"][3]).abs() < 1e-6);
    assert_eq!(history.train_metrics["mae"].len(), 4);
    assert!(!history.train_metrics.contains_key("accuracy"));
    let mut network = builder()?.build()?;
    let history = network.train_with_validation(&x, &y, Some(&x), Some(&y), &config)?;
    assert_eq!(history.steps, 20);
    assert_eq!(network.history(), &history);
    Ok(())
}

#[test]
fn early_stopping() -> Result<()> {
    let (x, y) = data();
    let config = TrainingConfig {
        max_epochs: 50,
        early_stopping_patience: Some(3),
        optimizer: Some(Optimizer::sgd(0.5)?),
        lr_schedule: Some(LearningRateSchedule::ExponentialDecay { gamma: 1.6 }),
        ..base()
    };
    // The rate grows until the loss does.
    let mut network = builder()?.build()?;
    let history = network.train(&x, &y, &config)?;
    let best = history.best_epoch.unwrap();
    assert_eq!(history.epochs(), best + 4, "{:?}", history.train_loss);
    let least = history.train_loss.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(history.train_loss[best], least);
    // The weights are those of the best epoch.
    let mut again = builder()?.build()?;
    again.train(
        &x,
        &y,
        &TrainingConfig { max_epochs: best + 1, early_stopping_patience: None, ..config.clone() },
    )?;
    assert_eq!(again.get_weights()?, network.get_weights()?);
    // Nothing is better by so much.
    let (_, history) = train(&TrainingConfig {
        max_epochs: 50,
        early_stopping_patience: Some(2),
        early_stopping_min_delta: 1e3,
        ..base()
    })?;
    assert_eq!(history.epochs(), 3);
    let mut stopping = EarlyStopping::new(2, 0.0);
    assert_eq!(
        [3.0, 2.0, 2.0, f64::NAN].map(|score| stopping.should_stop(score)),
        [false, false, false, true]
    );
    Ok(())
}

#[test]
fn schedules_follow_their_formulas() -> Result<()> {
    let epochs = |schedule, count: usize| -> Result<Vec<f64>> {
        let config = TrainingConfig { max_epochs: count, lr_schedule: Some(schedule), ..base() };
        Ok(train(&config)?.1.learning_rate)
    };
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        found
            .iter()
            .zip(expected)
            .for_each(|(f, e)| assert!((f - e).abs() < 1e-12, "{found:?} is not {expected:?}"));
    };
    let r = 0.001;
    close(
        &epochs(LearningRateSchedule::StepDecay { step_size: 2, gamma: 0.1 }, 5)?,
        &[r, r, r / 10., r / 10., r / 100.],
    );
    close(&epochs(LearningRateSchedule::ExponentialDecay { gamma: 0.5 }, 3)?, &[r, r / 2., r / 4.]);
    close(&epochs(LearningRateSchedule::CosineAnnealing { t_max: 2, eta_min: 0.0 }, 3)?, &[r, r / 2., 0.]);
    close(
        &epochs(LearningRateSchedule::PolynomialDecay { power: 1.0, end_lr: 0.0 }, 4)?,
        &[r, 0.75 * r, 0.5 * r, 0.25 * r],
    );
    let mode = || "triangular".to_owned();
    let cyclic = LearningRateSchedule::CyclicLR { base_lr: 0.0, max_lr: 1.0, step_size_up: 2, mode: mode() };
    let mut scheduler = LearningRateScheduler::new(cyclic, r, 1)?;
    let mut rates = vec![scheduler.get_lr()];
    for _ in 0..5 {
        scheduler.step();
        rates.push(scheduler.get_lr());
    }
    close(&rates, &[0., 0.5, 1., 0.5, 0., 0.5]);
    let one_cycle = LearningRateSchedule::OneCycleLR {
        max_lr: 0.5,
        total_steps: 5,
        pct_start: 0.6,
        anneal_strategy: "linear".to_owned(),
    };
    let mut scheduler = LearningRateScheduler::new(one_cycle, r, 1)?;
    let mut rates = vec![scheduler.get_lr()];
    for _ in 0..5 {
        scheduler.step();
        rates.push(scheduler.get_lr());
    }
    close(&rates, &[0.02, 0.26, 0.5, 0.250001, 0.000002, 0.000002]);
    let plateau = LearningRateSchedule::ReduceOnPlateau { factor: 0.1, patience: 1, min_lr: 0.02 };
    let mut scheduler = LearningRateScheduler::new(plateau, 1.0, 9)?;
    let mut rates = Vec::new();
    for loss in [3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0] {
        rates.push(scheduler.epoch(loss));
        assert_eq!(scheduler.step(), scheduler.get_lr());
    }
    close(&rates, &[1., 1., 1., 0.1, 0.1, 0.02, 0.02]);
    Ok(())
}

#[test]
fn accumulated_batches_are_one() -> Result<()> {
    let whole = TrainingConfig { batch_size: 16, ..base() };
    let parts = TrainingConfig { batch_size: 4, gradient_accumulation_steps: 4, ..base() };
    let ((a, whole), (b, parts)) = (train(&whole)?, train(&parts)?);
    assert_eq!(whole.steps, parts.steps);
    for (a, b) in a.get_weights()?.iter().zip(&b.get_weights()?) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    Ok(())
}

#[test]
fn mixed_precision_is_near_but_not_the_same() -> Result<()> {
    let (exact, mixed) = (loss(&base())?, loss(&TrainingConfig { mixed_precision: true, ..base() })?);
    assert_ne!(exact, mixed);
    assert!((exact - mixed).abs() < 0.05 * exact, "{exact} {mixed}");
    Ok(())
}

#[test]
fn every_augmentation_changes_the_run() -> Result<()> {
    let plain = loss(&base())?;
    let none = DataAugmentationConfig::default();
    for augmentation in [
        DataAugmentationConfig { gaussian_noise: Some(0.5), ..none.clone() },
        DataAugmentationConfig { input_dropout: Some(0.5), ..none.clone() },
        DataAugmentationConfig { label_smoothing: Some(0.5), ..none.clone() },
        DataAugmentationConfig { mixup_alpha: Some(0.4), ..none.clone() },
        DataAugmentationConfig { cutout_prob: Some(0.5), ..none.clone() },
    ] {
        let config = TrainingConfig { data_augmentation: Some(augmentation.clone()), ..base() };
        assert_ne!(loss(&config)?, plain, "{augmentation:?}");
        assert_eq!(loss(&config)?, loss(&config)?, "{augmentation:?}");
    }
    // Smoothed targets are nearer to their mean.
    let smooth = DataAugmentationConfig { label_smoothing: Some(1.0), ..none.clone() };
    let (x, y) = data();
    let mut network = builder()?.build()?;
    let halves = Array2::from_elem(y.dim(), 0.5);
    let expected = LossFunction::MeanSquaredError.compute(&network.predict(&x)?, &halves)?;
    let config = TrainingConfig { data_augmentation: Some(smooth), max_epochs: 1, batch_size: 40, ..base() };
    assert!((network.train(&x, &y, &config)?.train_loss[0] - expected).abs() < 1e-6);
    Ok(())
}

#[test]
fn smoothed_answers_are_between_the_two() -> Result<()> {
    let (x, y) = data();
    let answers = y.mapv(|y| f64::from(u8::from(y > 0.0)));
    let first = answers.slice(ndarray::s![.., ..1]).to_owned();
    for (loss, last, targets) in [
        (LossFunction::BinaryCrossEntropy, ActivationFunction::Sigmoid, &first),
        (LossFunction::BinaryCrossEntropy, ActivationFunction::Sigmoid, &answers),
        (LossFunction::MeanSquaredError, ActivationFunction::Linear, &first),
    ] {
        let mut network = Network::with_input_size(3)?
            .add_layer(LayerBuilder::dense(targets.ncols()).activation(last))
            .loss(loss)
            .device("cpu")
            .seed(5)
            .build()?;
        let expected = loss.compute(&network.predict(&x)?, &targets.mapv(|t| 0.8 * t + 0.1))?;
        let smooth =
            DataAugmentationConfig { label_smoothing: Some(0.2), ..DataAugmentationConfig::default() };
        let config =
            TrainingConfig { data_augmentation: Some(smooth), max_epochs: 1, batch_size: 40, ..base() };
        let found = network.train(&x, targets, &config)?.train_loss[0];
        assert!((found - expected).abs() < 1e-6, "{loss:?}: {found} is not {expected}");
    }
    Ok(())
}

#[test]
fn every_regularisation_changes_the_run() -> Result<()> {
    let none = RegularizationConfig::default();
    let with = |regularization| TrainingConfig { regularization, max_epochs: 30, ..base() };
    let size = |network: &Network| -> Result<f64> {
        Ok(network.get_weights()?.iter().filter(|w| w.nrows() > 1).map(|w| w.mapv(f64::abs).sum()).sum())
    };
    let (plain, _) = train(&with(none.clone()))?;
    for regularization in [
        RegularizationConfig { l1_lambda: Some(0.05), ..none.clone() },
        RegularizationConfig { l2_lambda: Some(0.05), ..none.clone() },
    ] {
        let (network, _) = train(&with(regularization))?;
        assert!(size(&network)? < 0.98 * size(&plain)?);
    }
    for regularization in [
        RegularizationConfig { dropout_rate: Some(0.5), ..none.clone() },
        RegularizationConfig { gradient_penalty: Some(0.5), ..none.clone() },
    ] {
        let (network, _) = train(&with(regularization.clone()))?;
        assert_ne!(network.get_weights()?, plain.get_weights()?, "{regularization:?}");
    }
    for (regularization, kind) in [
        (RegularizationConfig { batch_norm: true, ..none.clone() }, LayerType::BatchNormalization),
        (RegularizationConfig { layer_norm: true, ..none.clone() }, LayerType::LayerNormalization),
    ] {
        let (x, y) = data();
        let mut network = builder()?.build()?;
        network.train(&x, &y, &with(regularization.clone()))?;
        let kinds: Vec<LayerType> = network.layers().iter().map(|layer| layer.layer_type()).collect();
        assert_eq!(kinds, [LayerType::Dense, kind, LayerType::Dense]);
        network.train(&x, &y, &with(regularization))?;
        assert_eq!(network.layers().len(), 3);
    }
    let spectral = RegularizationConfig { spectral_norm: true, ..none };
    let config = TrainingConfig { optimizer: Some(Optimizer::sgd(0.5)?), ..with(spectral) };
    let (network, _) = train(&config)?;
    for weight in network.get_weights()?.iter().filter(|w| w.nrows() > 1) {
        let mut v = Array2::from_elem((weight.ncols(), 1), 1.0);
        let mut length = 0.0;
        for _ in 0..200 {
            let next = weight.t().dot(&weight.dot(&v));
            length = (next.mapv(|x| x * x).sum().sqrt() / v.mapv(|x| x * x).sum().sqrt()).sqrt();
            v = &next / next.mapv(|x| x * x).sum().sqrt();
        }
        assert!(length < 1.01, "{length}");
    }
    Ok(())
}

#[test]
fn checkpoints_and_time() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint_folder = folder.path().join("deep/inside");
    let config = TrainingConfig {
        checkpoint_frequency: Some(2),
        checkpoint_folder: checkpoint_folder.clone(),
        max_epochs: 5,
        ..base()
    };
    train(&config)?;
    let mut names: Vec<String> = std::fs::read_dir(&checkpoint_folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["epoch-0002.safetensors", "epoch-0004.safetensors"]);
    let (network, _) = train(&TrainingConfig { max_epochs: 4, ..base() })?;
    let loaded = Network::load_safetensors(checkpoint_folder.join("epoch-0004.safetensors"))?;
    assert_eq!(loaded.get_weights()?, network.get_weights()?);
    // Its history is that of the run so far, not of one before.
    assert_eq!((loaded.history().epochs(), loaded.history().steps), (4, 20));
    assert_eq!(loaded.history().train_loss, network.history().train_loss);
    let (_, history) = train(&TrainingConfig { max_training_time: Some(Duration::ZERO), ..base() })?;
    assert_eq!((history.epochs(), history.steps), (1, 1));
    Ok(())
}

#[test]
fn callbacks_are_told_and_stop() -> Result<()> {
    #[derive(Default)]
    struct Told(Vec<String>);
    impl TrainingCallback for Told {
        fn on_train_begin(&mut self, config: &TrainingConfig) {
            self.0.push(format!("begin {}", config.max_epochs));
        }
        fn on_train_end(&mut self, state: &TrainingState) {
            self.0.push(format!("end {}", state.history.epochs()));
        }
        fn on_epoch_begin(&mut self, epoch: usize, _: &TrainingState) {
            self.0.push(format!("epoch {epoch}"));
        }
        fn on_epoch_end(&mut self, epoch: usize, state: &mut TrainingState) {
            state.stop = epoch == 1;
        }
        fn on_batch_end(&mut self, batch: usize, _: &mut TrainingState) {
            self.0.push(format!("batch {batch}"));
        }
    }
    let (x, y) = data();
    let mut told = Told::default();
    let config = TrainingConfig { batch_size: 20, ..base() };
    builder()?.build()?.train_with_callbacks(&x, &y, None, None, &config, &mut [&mut told])?;
    let expected = ["begin 4", "epoch 0", "batch 0", "batch 1", "epoch 1", "batch 0", "batch 1", "end 2"];
    assert_eq!(told.0, expected);
    Ok(())
}

#[test]
fn verbose_prints_the_device_and_each_epoch() -> Result<()> {
    const CHILD: &str = "RNN_TEST_VERBOSE";
    if let Ok(verbose) = std::env::var(CHILD) {
        train(&TrainingConfig { verbose: verbose == "1", ..base() })?;
        return Ok(());
    }
    let output = |verbose: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "configuration::verbose_prints_the_device_and_each_epoch", "--nocapture"])
            .env(CHILD, verbose);
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    let text = output("1");
    assert!(
        text.contains("on cpu") && text.contains("epoch 1/4: loss ") && text.contains("epoch 4/4"),
        "{text}"
    );
    assert!(!output("0").contains("epoch 1/4"));
    Ok(())
}
