//! How to train.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{DataAugmentationConfig, LearningRateSchedule, Metrics, RegularizationConfig};
use crate::{LossFunction, NetworkError, Optimizer, Result, choices::choices, error::within};

choices! {
    /// How weights are found. Back-propagation goes batch by batch with the optimiser. The other methods look at all rows at once:
    /// an epoch is an iteration of theirs, `batch_size` says how many rows are computed at a time, dropouts do not drop, and batch
    /// normalisations use their running statistics. They choose their steps themselves (of the optimiser they take `damping` and
    /// `memory_size` alone) and never make the loss greater; the run ends when they find nothing better.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum TrainingMethod {
        /// Gradients of batches, and the optimiser.
        #[default]
        Backpropagation,
        /// Newton's: second derivatives, damped until a step leads downwards (by the optimiser's `damping` at first). For up to
        /// 2000 weights.
        Newton,
        /// Limited-memory BFGS with a line search (Nocedal, 1980), with the optimiser's `memory_size`.
        QuasiNewton,
        /// Conjugate gradients (Polak and Ribière, 1969) with a line search.
        ConjugateGradient,
        /// Damped least squares (Levenberg, 1944; Marquardt, 1963), for the mean squared error and up to 2000 weights.
        LevenbergMarquardt,
        /// An evolution strategy that adapts its deviation (Hansen and Ostermeier, 2001); no derivatives.
        Evolutionary,
        /// A swarm of 40 particles (Clerc and Kennedy, 2002); no derivatives.
        ParticleSwarm,
        /// A population of 50 with tournaments, blended crossover and mutation; no derivatives.
        GeneticAlgorithm,
        /// 50 steps at random an iteration, of which those upwards are taken ever more rarely; no derivatives.
        SimulatedAnnealing,
    }
}

/// How to train; every field has its effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// Passes over the training data, at most.
    pub max_epochs: usize,
    /// Rows of a batch; of what is computed at a time where a method looks at all rows at once.
    pub batch_size: usize,
    /// Another loss than the network's.
    pub loss_function: Option<LossFunction>,
    /// Another optimiser than the network's.
    pub optimizer: Option<Optimizer>,
    /// How weights are found; methods that look at all rows at once take no schedule, accumulation, mixed precision,
    /// augmentation, dropout rate and spectral normalisation.
    pub method: TrainingMethod,
    /// The share of the rows, the last ones, that is kept for validation where none is given.
    pub validation_split: f64,
    /// Epochs without a better validation loss (training loss where nothing is validated) after which training stops and
    /// the weights of the best epoch are put back.
    pub early_stopping_patience: Option<usize>,
    /// What counts as better: by more than this.
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
    /// `accuracy` where targets are classes: the share of rows whose class is right, or, for the binary cross-entropy and hinge
    /// losses, of single answers, one a column.
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
        self.check_method()?;
        self.lr_schedule.as_ref().map_or(Ok(()), LearningRateSchedule::check)?;
        self.data_augmentation.as_ref().map_or(Ok(()), DataAugmentationConfig::check)?;
        self.regularization.check()
    }

    /// Checks that the other settings mean something to the method.
    fn check_method(&self) -> Result<()> {
        if self.method == TrainingMethod::Backpropagation {
            return Ok(());
        }
        let RegularizationConfig { dropout_rate, spectral_norm, .. } = self.regularization;
        let meaningless = [
            ("lr_schedule", self.lr_schedule.is_some()),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps > 1),
            ("mixed_precision", self.mixed_precision),
            ("data_augmentation", self.data_augmentation.is_some()),
            ("dropout_rate", dropout_rate.is_some()),
            ("spectral_norm", spectral_norm),
        ];
        let Some((name, _)) = meaningless.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
        let reason = format!(
            "it looks at all rows at once and chooses its steps itself: leave {name} out, or use Backpropagation"
        );
        Err(NetworkError::invalid_parameter("method", self.method.name(), reason))
    }
}
