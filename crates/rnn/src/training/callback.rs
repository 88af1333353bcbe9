//! Telling others how training goes.

use super::{TrainingConfig, TrainingHistory};

/// Where a run stands.
#[derive(Clone, Debug)]
pub struct TrainingState {
    /// The epoch, counted from 0.
    pub epoch: usize,
    /// Batches of the epoch that are done.
    pub batch: usize,
    /// What was measured of the epochs before.
    pub history: TrainingHistory,
    /// The learning rate.
    pub current_lr: f64,
    /// Set to true to end the run after this epoch.
    pub stop: bool,
}

/// Told how training goes; see [`Network::train_with_callbacks`](crate::Network::train_with_callbacks).
pub trait TrainingCallback {
    /// Before the first epoch.
    fn on_train_begin(&mut self, config: &TrainingConfig) {
        let _ = config;
    }
    /// After the last epoch.
    fn on_train_end(&mut self, state: &TrainingState) {
        let _ = state;
    }
    /// Before an epoch.
    fn on_epoch_begin(&mut self, epoch: usize, state: &TrainingState) {
        let _ = (epoch, state);
    }
    /// After an epoch, with its figures in the history.
    fn on_epoch_end(&mut self, epoch: usize, state: &mut TrainingState) {
        let _ = (epoch, state);
    }
    /// Before each batch.
    fn on_batch_begin(&mut self, batch: usize, state: &TrainingState) {
        let _ = (batch, state);
    }
    /// After each step.
    fn on_batch_end(&mut self, batch: usize, state: &mut TrainingState) {
        let _ = (batch, state);
    }
}
