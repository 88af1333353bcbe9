//! The measurements of a training run.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::finite;

/// The measurements of a training run, epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingHistory {
    /// The device, or devices, that computed.
    pub device: String,
    /// The mean loss over the epoch's rows, measured during training; for methods that use all rows at once, after the
    /// iteration.
    #[serde(with = "finite")]
    pub train_loss: Vec<f64>,
    /// The mean loss over the validation rows after the epoch; empty without validation.
    #[serde(with = "finite")]
    pub val_loss: Vec<f64>,
    /// Metrics over the epoch's rows by name, measured as `train_loss` is.
    #[serde(with = "finite")]
    pub train_metrics: HashMap<String, Vec<f64>>,
    /// Metrics over the validation rows, by name.
    #[serde(with = "finite")]
    pub val_metrics: HashMap<String, Vec<f64>>,
    /// The learning rate at the epoch's last step.
    pub learning_rate: Vec<f64>,
    /// The duration of each epoch, with its validation.
    pub epoch_times: Vec<Duration>,
    /// The duration of the run.
    pub total_time: Duration,
    /// Optimiser steps, or iterations of the method.
    pub steps: usize,
    /// The number of the network's weights.
    pub parameter_count: usize,
    /// The epoch, from 0, with the lowest validation loss (training loss without validation).
    pub best_epoch: Option<usize>,
    /// The validation loss of that epoch.
    pub best_val_loss: Option<f64>,
}

impl TrainingHistory {
    /// The number of finished epochs.
    pub fn epochs(&self) -> usize {
        self.train_loss.len()
    }
}
