//! Learning rate schedules.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// A schedule of the learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Schedule {
    /// The optimiser's learning rate.
    Constant,
    /// Multiplies the rate by `factor` after every `epochs` epochs.
    Step {
        /// The rate at the start.
        initial: f64,
        /// The number of epochs between changes.
        epochs: u64,
        /// What it is multiplied by.
        factor: f64,
    },
    /// Rises linearly from 0 to `initial` over `warmup` steps, then follows half a cosine to `final_rate` until the end
    /// of the run.
    Cosine {
        /// The highest rate.
        initial: f64,
        /// The rate at the end.
        final_rate: f64,
        /// The number of steps of the linear rise.
        warmup: u64,
    },
    /// Smith's one-cycle policy: half a cosine from `peak / 25` up to `peak` over the share `rise` of the run, then
    /// half a cosine down to `peak / 250000`. The rates are those of PyTorch's OneCycleLR with its defaults. OneCycleLR
    /// also cycles the momentum; this schedule does not change it.
    OneCycle {
        /// The highest rate.
        peak: f64,
        /// The share of the run in which the rate rises, between 0 and 1.
        rise: f64,
    },
    /// Rises linearly from 0 to `rate` over `steps` steps, then follows another schedule, whose steps also count from
    /// the start of the run. A schedule that does not set the rate itself ([`Schedule::Constant`],
    /// [`Schedule::Plateau`]) continues from `rate`.
    Warmup {
        /// The rate at the end of the rise.
        rate: f64,
        /// The number of steps of the rise.
        steps: u64,
        /// The schedule after the rise.
        then: Box<Schedule>,
    },
    /// Multiplies the rate by `factor` whenever the score has not improved for more than `patience` epochs, but not
    /// below `minimum` (PyTorch's ReduceLROnPlateau with a threshold of 0). A rate below `minimum` is not changed.
    Plateau {
        /// What it is multiplied by.
        factor: f64,
        /// The number of epochs without improvement that are tolerated.
        patience: usize,
        /// The lowest rate.
        minimum: f64,
    },
}

/// Half a cosine: `from` at an angle of 0, `to` at pi.
pub fn half_cosine(from: f64, to: f64, angle: f64) -> f64 {
    to + (from - to) * 0.5 * (1.0 + angle.cos())
}

/// The rate at step `at` of one cycle (Smith and Topin, 2018): from `peak / 25` at step 0 up to `peak` at step `top`,
/// then down to `peak / 250000` at step `last`. `between(a, b, share)` interpolates between two rates.
pub fn one_cycle(peak: f64, top: f64, last: f64, at: f64, between: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if at < top {
        between(peak / 25.0, peak, at / top)
    } else if at == top {
        peak
    } else {
        between(peak, peak / 25.0 / 1e4, share(at - top, last - top))
    }
}

/// `done / all`, from 0 to 1; 1 if `all` is 0.
fn share(done: f64, all: f64) -> f64 {
    if all > 0.0 { (done / all).clamp(0.0, 1.0) } else { 1.0 }
}

fn half_cosine_between(from: f64, to: f64, share: f64) -> f64 {
    half_cosine(from, to, PI * share)
}

impl Schedule {
    /// The rate for a step, counted from 0, of a run of `epochs` epochs; `None` keeps the current rate.
    pub fn at_step(&self, step: u64, steps_per_epoch: u64, epochs: u64) -> Option<f64> {
        let total = steps_per_epoch.saturating_mul(epochs);
        match self {
            Schedule::Constant | Schedule::Plateau { .. } => None,
            &Schedule::Step { initial, epochs, factor } => {
                let epoch = step / steps_per_epoch.max(1);
                Some(initial * factor.powf((epoch / epochs.max(1)) as f64))
            }
            &Schedule::Cosine { initial, final_rate, warmup } => Some(if step < warmup {
                initial * (step + 1) as f64 / warmup as f64
            } else {
                let rest = total.saturating_sub(warmup) as f64;
                half_cosine_between(initial, final_rate, share((step - warmup) as f64, rest))
            }),
            &Schedule::OneCycle { peak, rise } => {
                let last = total.saturating_sub(1) as f64;
                let top = rise * total as f64 - 1.0;
                Some(one_cycle(peak, top, last, step as f64, half_cosine_between))
            }
            Schedule::Warmup { rate, steps, .. } if step < *steps => {
                Some(rate * (step + 1) as f64 / *steps as f64)
            }
            Schedule::Warmup { then, .. } => then.at_step(step, steps_per_epoch, epochs),
        }
    }

    /// The rate after an epoch, given the number of epochs since the best score.
    pub fn after_epoch(&self, rate: f64, since_best: usize) -> f64 {
        match self {
            &Schedule::Plateau { factor, patience, minimum }
                if since_best > 0 && since_best.is_multiple_of(patience.saturating_add(1)) =>
            {
                (rate * factor).max(minimum).min(rate)
            }
            Schedule::Warmup { then, .. } => then.after_epoch(rate, since_best),
            _ => rate,
        }
    }
}
