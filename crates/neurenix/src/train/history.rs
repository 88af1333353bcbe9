//! The measurements of a training run, epoch by epoch.

use serde::{Deserialize, Serialize};

/// The measurements of one epoch. Those that were not taken are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Optimiser steps since the start of the run.
    pub steps: u64,
    /// The learning rate at the epoch's end.
    pub learning_rate: f64,
    /// The mean loss over the epoch's training rows.
    pub train_loss: f64,
    /// The share of correctly classified training rows, 0 to 1; absent for regression.
    pub train_accuracy: Option<f64>,
    /// The mean loss over the validation rows.
    pub validation_loss: Option<f64>,
    /// The share of correctly classified validation rows, 0 to 1.
    pub validation_accuracy: Option<f64>,
    /// Wall-clock seconds of the epoch, with validation.
    pub seconds: f64,
}

/// All epochs of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The epochs in order.
    pub epochs: Vec<EpochRecord>,
}

impl History {
    /// The first epoch with the lowest validation loss (training loss without validation). A loss that is not finite is
    /// never the best.
    pub fn best(&self) -> Option<&EpochRecord> {
        let score = |e: &EpochRecord| e.validation_loss.unwrap_or(e.train_loss);
        let finite = self.epochs.iter().filter(|e| score(e).is_finite());
        finite.min_by(|a, b| score(a).total_cmp(&score(b)))
    }

    /// The epochs as CSV with a header. Absent measurements are empty.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "epoch,steps,learning_rate,train_loss,train_accuracy,validation_loss,validation_accuracy,seconds\n",
        );
        let show = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        for e in &self.epochs {
            text.push_str(&format!(
                "{},{},{},{},{},{},{},{}\n",
                e.epoch,
                e.steps,
                e.learning_rate,
                e.train_loss,
                show(e.train_accuracy),
                show(e.validation_loss),
                show(e.validation_accuracy),
                e.seconds
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_epoch_has_a_finite_loss() {
        let epoch = |epoch, train_loss, validation_loss| EpochRecord {
            epoch,
            train_loss,
            validation_loss,
            ..EpochRecord::default()
        };
        let best = |epochs: &[EpochRecord]| History { epochs: epochs.to_vec() }.best().map(|e| e.epoch);
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[epoch(1, -f64::NAN, None), epoch(2, f64::NEG_INFINITY, None)]), None);
        let validated = [epoch(1, 0.1, Some(-f64::NAN)), epoch(2, 3.0, Some(0.5)), epoch(3, 0.2, Some(0.5))];
        assert_eq!(best(&validated), Some(2));
        assert_eq!(best(&[epoch(1, 2.0, None), epoch(2, f64::NAN, None), epoch(3, 1.0, None)]), Some(3));
    }
}
