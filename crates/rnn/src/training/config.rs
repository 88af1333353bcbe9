//! The configuration of training.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{DataAugmentationConfig, LearningRateSchedule, Metrics, RegularizationConfig};
use crate::{
    LossFunction, NetworkError, Optimizer, Result,
    choices::choices,
    error::{below_one, within},
};

choices! {
    /// How weights are found. Backpropagation goes batch by batch with the optimiser. The other methods use all rows at
    /// once: an epoch is one iteration, `batch_size` is the number of rows that are computed at a time, dropout is
    /// inactive, and batch normalisations use their running statistics. These methods choose their own steps, never
    /// increase the loss, and use only `damping` and `memory_size` of the optimiser. The run ends when they find
    /// nothing better.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum TrainingMethod {
        /// The optimiser, with the gradients of batches.
        #[default]
        Backpropagation,
        /// Newton's method with exact second derivatives, for up to 2000 weights. The damping begins at the optimiser's
        /// `damping` and grows until a step decreases the loss.
        Newton,
        /// Limited-memory BFGS with a line search (Nocedal, 1980), with the optimiser's `memory_size`.
        QuasiNewton,
        /// Conjugate gradients (Polak and Ribière, 1969) with a line search.
        ConjugateGradient,
        /// Damped least squares (Levenberg, 1944; Marquardt, 1963), for the mean squared error and up to 2000 weights.
        LevenbergMarquardt,
        /// An evolution strategy with step-size adaptation (Hansen and Ostermeier, 2001). Needs no derivatives.
        Evolutionary,
        /// A swarm of 40 particles (Clerc and Kennedy, 2002). Needs no derivatives.
        ParticleSwarm,
        /// A population of 50 with tournaments, blended crossover and mutation. Needs no derivatives.
        GeneticAlgorithm,
        /// 50 random steps per iteration; steps that increase the loss are accepted ever more rarely. Needs no
        /// derivatives.
        SimulatedAnnealing,
    }
}

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// The maximum number of passes over the training data.
    pub max_epochs: usize,
    /// Rows per batch. For a method that uses all rows at once, the rows that are computed at a time.
    pub batch_size: usize,
    /// Replaces the network's loss for this run.
    pub loss_function: Option<LossFunction>,
    /// Replaces the network's optimiser for this run.
    pub optimizer: Option<Optimizer>,
    /// How weights are found. Methods that use all rows at once refuse schedules, accumulation, mixed precision,
    /// augmentation, a dropout rate and spectral normalisation.
    pub method: TrainingMethod,
    /// The share of rows, taken from the end, that is used for validation unless validation data are given.
    pub validation_split: f64,
    /// Training stops after this many epochs without a better validation loss (training loss without validation), and
    /// the weights of the best epoch are restored.
    pub early_stopping_patience: Option<usize>,
    /// The minimum improvement that counts as better.
    pub early_stopping_min_delta: f64,
    /// The schedule of the learning rate.
    pub lr_schedule: Option<LearningRateSchedule>,
    /// Prints the device and each epoch's measurements.
    pub verbose: bool,
    /// Shuffles the rows in each epoch.
    pub shuffle: bool,
    /// The seed for shuffling, dropout and augmentation. The same seed gives the same run.
    pub seed: Option<u64>,
    /// Additional metrics: `accuracy`, `precision`, `recall`, `f1`, `mae`, `rmse`, `r2`. `loss` is always measured,
    /// `accuracy` if targets are classes: the share of correctly classified rows, or of correct columns for the binary
    /// cross-entropy and hinge losses.
    pub metrics: Vec<String>,
    /// Saves the network as safetensors each time this many epochs have passed.
    pub checkpoint_frequency: Option<usize>,
    /// The folder for checkpoints, which are named `epoch-0001.safetensors`.
    pub checkpoint_folder: PathBuf,
    /// Ends training after the step in which this time is exceeded.
    pub max_training_time: Option<Duration>,
    /// Batches per step. Their gradients are averaged over all rows, as if they were one batch.
    pub gradient_accumulation_steps: usize,
    /// Computes in `bfloat16`. Weights, losses and updates keep the network's precision.
    pub mixed_precision: bool,
    /// Random changes of the training rows.
    pub data_augmentation: Option<DataAugmentationConfig>,
    /// Penalties and constraints on weights and outputs.
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
        below_one("validation_split", self.validation_split)?;
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

    /// Checks that the method supports the other settings.
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
            "it uses all rows at once and chooses its own steps: leave {name} out, or use Backpropagation"
        );
        Err(NetworkError::invalid_parameter("method", self.method.name(), reason))
    }
}
