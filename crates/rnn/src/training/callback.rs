//! Callbacks during training.

use super::{TrainingConfig, TrainingHistory};

/// The progress of a run.
#[derive(Clone, Debug)]
pub struct TrainingState {
    /// The epoch, from 0.
    pub epoch: usize,
    /// Finished batches of the epoch.
    pub batch: usize,
    /// The measurements of finished epochs.
    pub history: TrainingHistory,
    /// The learning rate.
    pub current_lr: f64,
    /// Set to true to end the run after this epoch.
    pub stop: bool,
}

/// Watches training, and can stop it; see [`Network::train_with_callbacks`](crate::Network::train_with_callbacks).
pub trait TrainingCallback {
    /// Called before the first epoch.
    fn on_train_begin(&mut self, config: &TrainingConfig) {
        let _ = config;
    }
    /// Called after the last epoch.
    fn on_train_end(&mut self, state: &TrainingState) {
        let _ = state;
    }
    /// Called before an epoch.
    fn on_epoch_begin(&mut self, epoch: usize, state: &TrainingState) {
        let _ = (epoch, state);
    }
    /// Called after an epoch, whose measurements are in the history.
    fn on_epoch_end(&mut self, epoch: usize, state: &mut TrainingState) {
        let _ = (epoch, state);
    }
    /// Called before each batch.
    fn on_batch_begin(&mut self, batch: usize, state: &TrainingState) {
        let _ = (batch, state);
    }
    /// Called after each step.
    fn on_batch_end(&mut self, batch: usize, state: &mut TrainingState) {
        let _ = (batch, state);
    }
}
