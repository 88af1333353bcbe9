//! The loop over epochs and steps. Every run uses it; what differs between runs is in its hooks.

use super::{EarlyStopping, Ending, Progress};

/// The batches of an epoch.
pub type EpochBatches<H> = Box<dyn Iterator<Item = Result<<H as Hooks>::Batch, <H as Hooks>::Error>>>;

/// What [`run`] calls, in this order.
pub trait Hooks {
    /// Why a run fails.
    type Error;
    /// One of the batches that a step takes.
    type Batch;

    /// The progress of the run. The loop counts epochs, batches and steps, and tracks the best score.
    fn progress(&mut self) -> &mut Progress;

    /// Begins or resumes an epoch, and returns its remaining batches.
    ///
    /// # Errors
    /// Any error ends the run, as in all hooks.
    fn begin_epoch(&mut self) -> Result<EpochBatches<Self>, Self::Error>
    where
        Self: Sized;

    /// Sets the learning rate and updates the model once.
    fn step(&mut self, batches: Vec<Self::Batch>) -> Result<(), Self::Error>;

    /// Reports the step, which is counted by now, and decides what follows.
    fn after_step(&mut self) -> Result<After, Self::Error>;

    /// Measures and validates the model after an epoch's steps. Returns the score of the epoch: lower is better, and a score
    /// that is not finite is never the best.
    fn end_epoch(&mut self) -> Result<f64, Self::Error>;

    /// Keeps the model if the epoch is the best so far, reports the epoch, which is counted by now, and writes checkpoints.
    /// `false` ends the run.
    fn after_epoch(&mut self, is_best: bool) -> Result<bool, Self::Error>;
}

/// What the loop does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The next step, or the end of the epoch after the last one.
    Next,
    /// The end of the epoch.
    EndOfEpoch,
    /// The end of the run, in the middle of the epoch.
    Interruption,
}

/// Trains until `epochs` are done, the score stops improving, or a hook ends the run. A step takes `accumulate` batches, at
/// least one. Errors are those of the hooks.
pub fn run<H: Hooks>(
    hooks: &mut H,
    epochs: usize,
    accumulate: usize,
    stopping: &mut EarlyStopping,
) -> Result<Ending, H::Error> {
    let accumulate = accumulate.max(1);
    while hooks.progress().epochs_done < epochs {
        if stopping.is_over() {
            return Ok(Ending::EarlyStop);
        }
        let mut batches = hooks.begin_epoch()?;
        loop {
            let group = batches.by_ref().take(accumulate).collect::<Result<Vec<_>, _>>()?;
            let count = group.len();
            if count == 0 {
                break;
            }
            hooks.step(group)?;
            let progress = hooks.progress();
            progress.steps += 1;
            progress.batches_done += count;
            match hooks.after_step()? {
                After::Next => {}
                After::EndOfEpoch => break,
                After::Interruption => return Ok(Ending::Interrupted),
            }
        }
        // Prefetched batches would hold memory during validation.
        drop(batches);
        let score = hooks.end_epoch()?;
        stopping.should_stop(score);
        let is_best = hooks.progress().end_epoch(score);
        if !hooks.after_epoch(is_best)? {
            return Ok(Ending::Interrupted);
        }
    }
    Ok(Ending::Finished)
}

impl Progress {
    /// Counts an epoch with this score. True if it is the best so far.
    fn end_epoch(&mut self, score: f64) -> bool {
        self.epochs_done += 1;
        (self.batches_done, self.loss_sum, self.correct, self.rows, self.seconds) = (0, 0.0, 0, 0, 0.0);
        let is_best = score.is_finite() && self.best.is_none_or(|best| score < best);
        (self.best, self.waited) = if is_best { (Some(score), 0) } else { (self.best, self.waited + 1) };
        is_best
    }
}
