//! Measurements of epochs, lines on the terminal, checkpoints.

use std::collections::HashMap;

use ndarray::Array2;

use super::{
    Metrics, TrainingHistory,
    run::{Epoch, Run},
    workers::Worker,
};
use crate::{Result, convert};

impl Run<'_> {
    /// The names of the devices in use.
    pub(super) fn place(&self) -> String {
        let device = self.worker.as_ref().map_or_else(|| self.network.device(), Worker::devices);
        device.to_owned()
    }

    /// Whether it measures and writes files: of several workers, one does.
    pub(super) fn reports(&self) -> bool {
        self.worker.as_ref().is_none_or(Worker::is_first)
    }

    /// The names of the metrics to measure.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = vec!["loss"];
        names.extend(self.loss.function.is_classification_loss().then_some("accuracy"));
        for name in &self.config.metrics {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Whether a metric needs the outputs.
    pub(super) fn measures_outputs(&self) -> bool {
        self.names().len() > 1
    }

    /// Adds an epoch's measurements to the history. Returns its score.
    pub(super) fn record(&self, done: &mut Epoch, history: &mut TrainingHistory) -> Result<f64> {
        let loss = done.loss_sum / done.mass;
        history.train_loss.push(loss);
        let (values, order) = (std::mem::take(&mut done.predictions), &done.order);
        let outputs = || {
            let predictions = convert::from_values(order.len(), self.network.output_dim(), values)?;
            Ok((predictions, self.data.targets.select(ndarray::Axis(0), order)))
        };
        self.measure(outputs, loss, &mut history.train_metrics)?;
        let Some((data, targets)) = &self.data.validation else { return Ok(loss) };
        let loss = self.network.mean_loss(data, targets, &self.loss)?;
        history.val_loss.push(loss);
        let outputs = || Ok((self.network.predict(data)?, targets.clone()));
        self.measure(outputs, loss, &mut history.val_metrics)?;
        Ok(loss)
    }

    /// Adds each metric's value. `outputs` gives predictions and targets; it is called only if a metric needs them.
    fn measure(
        &self,
        outputs: impl FnOnce() -> Result<(Array2<f64>, Array2<f64>)>,
        loss: f64,
        metrics: &mut HashMap<String, Vec<f64>>,
    ) -> Result<()> {
        metrics.entry("loss".to_owned()).or_default().push(loss);
        if !self.measures_outputs() {
            return Ok(());
        }
        let (predictions, targets) = outputs()?;
        let classes = self.loss.classes(self.network.output_shape());
        for name in self.names().into_iter().filter(|name| *name != "loss") {
            let value = Metrics::by_name(name, self.loss.function, classes, &predictions, &targets)?;
            metrics.entry(name.to_owned()).or_default().push(value);
        }
        Ok(())
    }

    /// Saves the network after the epochs that the configuration asks for.
    pub(super) fn checkpoint(&self, epoch: usize, history: &TrainingHistory) -> Result<()> {
        let Some(frequency) = self.config.checkpoint_frequency else { return Ok(()) };
        let number = epoch + 1;
        if !number.is_multiple_of(frequency) {
            return Ok(());
        }
        let folder = &self.config.checkpoint_folder;
        std::fs::create_dir_all(folder).map_err(|error| neurenix::Error::io("create", folder, error))?;
        let network = self.worker.as_ref().map_or(Ok(self.network), |worker| worker.share(self.network))?;
        network.save_with(&folder.join(format!("epoch-{number:04}.safetensors")), history)
    }
}

/// One line about an epoch.
pub(super) fn shown(epoch: usize, epochs: usize, history: &TrainingHistory) -> String {
    let last = |figures: &[f64]| figures.last().map_or(String::new(), |x| format!("{x:.4}"));
    let mut line = format!("epoch {}/{epochs}: loss {}", epoch + 1, last(&history.train_loss));
    if let Some(accuracy) = history.train_metrics.get("accuracy") {
        line += &format!(", accuracy {}", last(accuracy));
    }
    if !history.val_loss.is_empty() {
        line += &format!(", validation loss {}", last(&history.val_loss));
    }
    if let Some(accuracy) = history.val_metrics.get("accuracy") {
        line += &format!(", validation accuracy {}", last(accuracy));
    }
    let time = history.epoch_times.last().copied().unwrap_or_default();
    line + &format!(", {:.2} s", time.as_secs_f64())
}
