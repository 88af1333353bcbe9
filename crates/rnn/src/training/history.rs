//! What a training run measured.

use std::{collections::HashMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::finite;

/// What a training run measured, epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingHistory {
    /// The device that computed.
    pub device: String,
    /// The mean loss over the epoch's rows, while they were trained on; after the iteration with methods that look at all rows
    /// at once.
    #[serde(with = "finite::list")]
    pub train_loss: Vec<f64>,
    /// The mean loss over the validation rows after the epoch; empty if nothing was validated.
    #[serde(with = "finite::list")]
    pub val_loss: Vec<f64>,
    /// Metrics over the epoch's rows, as the loss, by name.
    #[serde(with = "finite::lists")]
    pub train_metrics: HashMap<String, Vec<f64>>,
    /// Metrics over the validation rows, by name.
    #[serde(with = "finite::lists")]
    pub val_metrics: HashMap<String, Vec<f64>>,
    /// The optimiser's learning rate at the epoch's last step; what the schedule makes of the epoch is that of the next.
    pub learning_rate: Vec<f64>,
    /// The time of each epoch, with its validation.
    pub epoch_times: Vec<Duration>,
    /// The time of the run.
    pub total_time: Duration,
    /// Steps of the optimiser, or iterations of the method.
    pub steps: usize,
    /// The network's weights.
    pub parameter_count: usize,
    /// The epoch, counted from 0, with the least validation loss (training loss where nothing was validated).
    pub best_epoch: Option<usize>,
    /// Its validation loss.
    pub best_val_loss: Option<f64>,
}

impl TrainingHistory {
    /// Epochs that were finished.
    pub fn epochs(&self) -> usize {
        self.train_loss.len()
    }
}
