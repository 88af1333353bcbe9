//! How to train.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{DataAugmentationConfig, LearningRateSchedule, Metrics, RegularizationConfig};
use crate::{LossFunction, NetworkError, Optimizer, Result, error::within};

/// How weights are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TrainingMethod {
    /// Gradients of batches, and the optimiser.
    #[default]
    Backpropagation,
}

/// How to train; every field has its effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// Passes over the training data, at most.
    pub max_epochs: usize,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Another loss than the network's.
    pub loss_function: Option<LossFunction>,
    /// Another optimiser than the network's.
    pub optimizer: Option<Optimizer>,
    /// How weights are found.
    pub method: TrainingMethod,
    /// The share of the rows, the last ones, that is kept for validation where none is given.
    pub validation_split: f64,
    /// Epochs without a better validation loss (training loss where nothing is validated) after which training stops and
    /// the weights of the best epoch are put back.
    pub early_stopping_patience: Option<usize>,
    /// What counts as better: at least this much.
    pub early_stopping_min_delta: f64,
    /// How the learning rate changes.
    pub lr_schedule: Option<LearningRateSchedule>,
    /// Prints the device, and each epoch's figures.
    pub verbose: bool,
    /// A new order of rows in each epoch.
    pub shuffle: bool,
    /// The seed of orders, dropouts and augmentation: the same seed gives the same run.
    pub seed: Option<u64>,
    /// What is measured besides: `accuracy`, `precision`, `recall`, `f1`, `mae`, `rmse`, `r2`. `loss` is always measured,
    /// `accuracy` where targets are classes.
    pub metrics: Vec<String>,
    /// Writes the network as safetensors after every so many epochs.
    pub checkpoint_frequency: Option<usize>,
    /// The folder of checkpoints `epoch-0001.safetensors`.
    pub checkpoint_folder: PathBuf,
    /// Ends training after the step in which this time is reached.
    pub max_training_time: Option<Duration>,
    /// Batches to a step: their gradients are averaged, each row counting alike, as if they were one batch.
    pub gradient_accumulation_steps: usize,
    /// Computes in `bfloat16`, and keeps weights, losses and updates in the network's own precision.
    pub mixed_precision: bool,
    /// Changes the training rows at random.
    pub data_augmentation: Option<DataAugmentationConfig>,
    /// Keeps weights small or outputs smooth.
    pub regularization: RegularizationConfig,
}

impl Default for TrainingConfig {
    fn default() -> TrainingConfig {
        TrainingConfig {
            max_epochs: 100,
            batch_size: 32,
            loss_function: None,
            optimizer: None,
            method: TrainingMethod::Backpropagation,
            validation_split: 0.2,
            early_stopping_patience: Some(10),
            early_stopping_min_delta: 1e-4,
            lr_schedule: None,
            verbose: true,
            shuffle: true,
            seed: None,
            metrics: vec!["loss".to_owned()],
            checkpoint_frequency: None,
            checkpoint_folder: PathBuf::from("checkpoints"),
            max_training_time: None,
            gradient_accumulation_steps: 1,
            mixed_precision: false,
            data_augmentation: None,
            regularization: RegularizationConfig::default(),
        }
    }
}

impl TrainingConfig {
    /// Checks every setting.
    pub(crate) fn check(&self) -> Result<()> {
        let positive = [
            ("max_epochs", self.max_epochs),
            ("batch_size", self.batch_size),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
            ("checkpoint_frequency", self.checkpoint_frequency.unwrap_or(1)),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(NetworkError::invalid_parameter(name, 0, "it must be at least 1"));
        }
        if !(0.0..1.0).contains(&self.validation_split) {
            let reason = "it must be at least 0 and below 1";
            return Err(NetworkError::invalid_parameter("validation_split", self.validation_split, reason));
        }
        within("early_stopping_min_delta", self.early_stopping_min_delta, 0.0, f64::INFINITY)?;
        for name in &self.metrics {
            Metrics::check_name(name)?;
        }
        self.optimizer.as_ref().map_or(Ok(()), Optimizer::check)?;
        self.lr_schedule.as_ref().map_or(Ok(()), LearningRateSchedule::check)?;
        self.data_augmentation.as_ref().map_or(Ok(()), DataAugmentationConfig::check)?;
        self.regularization.check()
    }
}
