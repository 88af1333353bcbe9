//! What watches a run.

use super::EpochRecord;

/// What an observer receives after each step.
#[derive(Clone, Copy, Debug)]
pub struct StepReport {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Finished batches of the epoch.
    pub batch: usize,
    /// Batches of the epoch.
    pub batches: usize,
    /// The mean loss over the epoch so far.
    pub loss: f64,
    /// The accuracy over the epoch so far.
    pub accuracy: Option<f64>,
}

/// Watches training, and can stop it.
pub trait Observer {
    /// Called after each step. `false` stops the run: a checkpoint is written if the options name a file for it.
    fn step(&mut self, report: &StepReport) -> bool {
        let _ = report;
        true
    }
    /// Called after each epoch.
    fn epoch(&mut self, record: &EpochRecord) {
        let _ = record;
    }
}

/// An observer that does nothing.
#[derive(Debug, Default)]
pub struct Silent;
impl Observer for Silent {}
