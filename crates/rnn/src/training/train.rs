//! Training and evaluation, as methods of the network.

use std::collections::HashMap;

use ndarray::Array2;

use super::{
    Metrics, RegularizationConfig, TrainingCallback, TrainingConfig, TrainingHistory, TrainingMethod,
    run::Run, workers,
};
use crate::{Network, NetworkError, Result, convert};

impl Network {
    /// The loss and metrics over rows: `loss`; `accuracy` if targets are classes (the share of correctly classified
    /// rows, or of correct columns for the binary cross-entropy and hinge losses); otherwise `mae`, `rmse` and `r2`.
    ///
    /// # Errors
    /// Data and targets that do not fit the network or each other.
    pub fn evaluate(
        &self,
        test_data: &Array2<f64>,
        test_targets: &Array2<f64>,
    ) -> Result<HashMap<String, f64>> {
        self.plan().loss.check_targets("targets", test_targets, self.output_shape(), self.dtype())?;
        convert::check_rows(test_data, test_targets)?;
        let loss = self.mean_loss(test_data, test_targets, &self.plan().loss)?;
        let predictions = self.predict(test_data)?;
        let (function, classes) = (self.loss_function(), self.plan().loss.classes(self.output_shape()));
        let names: &[&str] = match function.is_classification_loss() {
            true => &["accuracy"],
            false => &["mae", "rmse", "r2"],
        };
        let mut all = HashMap::from([("loss".to_owned(), loss)]);
        for name in names {
            let value = Metrics::by_name(name, function, classes, &predictions, test_targets)?;
            all.insert((*name).to_owned(), value);
        }
        Ok(all)
    }

    /// Trains the network on rows and their targets, and returns the measurements. By default, the last fifth of the
    /// rows is used for validation, and training stops after ten epochs without a better validation loss.
    ///
    /// # Errors
    /// If data and targets do not fit the network or each other, or a setting is out of range.
    ///
    /// If a loss is not finite: the network is then as it was before that step, or before the run if the run was to
    /// insert normalisations.
    ///
    /// If gradients are not finite although the loss is. With `gradient_clip` (which also refuses gradients too large
    /// to be squared), accumulation, mixed precision and LBFGS, the step is not taken. Otherwise the error comes after
    /// the step, and the weights are lost.
    pub fn train(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        config: &TrainingConfig,
    ) -> Result<TrainingHistory> {
        self.train_with_validation(train_data, train_targets, None, None, config)
    }

    /// As [`Network::train`], with validation data and targets if both are given.
    pub fn train_with_validation(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        val_data: Option<&Array2<f64>>,
        val_targets: Option<&Array2<f64>>,
        config: &TrainingConfig,
    ) -> Result<TrainingHistory> {
        self.train_with_callbacks(train_data, train_targets, val_data, val_targets, config, &mut [])
    }

    /// As [`Network::train_with_validation`], with callbacks.
    pub fn train_with_callbacks(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        val_data: Option<&Array2<f64>>,
        val_targets: Option<&Array2<f64>>,
        config: &TrainingConfig,
        callbacks: &mut [&mut dyn TrainingCallback],
    ) -> Result<TrainingHistory> {
        let validation = match (val_data, val_targets) {
            (Some(data), Some(targets)) => Some((data, targets)),
            (None, None) => None,
            _ => {
                return Err(NetworkError::data(
                    "expected validation data and targets, or neither, got one of them",
                ));
            }
        };
        let run = Run::new(self, train_data, train_targets, validation, config)?;
        let (layers, origins) = config.regularization.normalised(&self.plan().layers);
        let history = match layers.len() == origins.iter().flatten().count() {
            true => run.all(callbacks)?,
            false => {
                drop(run);
                // A run that fails leaves the layers, and the weights, as they were.
                let normalised = self.with_layers(layers, &origins)?;
                let history =
                    Run::new(&normalised, train_data, train_targets, validation, config)?.all(callbacks)?;
                *self = normalised;
                history
            }
        };
        self.set_history(history.clone());
        Ok(history)
    }
}

/// Trains a network on several devices at once.
pub(crate) fn train_on(
    network: &Network,
    data: &Array2<f64>,
    targets: &Array2<f64>,
    config: &TrainingConfig,
    devices: &[String],
) -> Result<TrainingHistory> {
    let plain = RegularizationConfig::default();
    if config.gradient_accumulation_steps > 1 || config.mixed_precision || config.regularization != plain {
        let message = "distributed training does not support accumulation, mixed precision or regularisation: use the optimiser's weight_decay, or one device";
        return Err(NetworkError::training(message));
    }
    let run = Run::new(network, data, targets, None, config)?;
    if config.method != TrainingMethod::Backpropagation || run.optimizer.optimizer_type().has_direction() {
        let message = "distributed training averages gradients: use Backpropagation, and an optimiser other than LBFGS and Newton";
        return Err(NetworkError::training(message));
    }
    workers::train(&run, devices)
}
