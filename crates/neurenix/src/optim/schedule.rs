//! How the learning rate changes during training.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// A schedule of the learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Schedule {
    /// Always the optimiser's own.
    Constant,
    /// Times `factor` after every `epochs` epochs.
    Step {
        /// The rate at the start.
        initial: f64,
        /// Epochs between changes.
        epochs: u64,
        /// What it is multiplied by.
        factor: f64,
    },
    /// Half a cosine from `initial` to `final_rate` over the run, after `warmup` steps of linear rise from 0.
    Cosine {
        /// The rate at the top.
        initial: f64,
        /// The rate at the end.
        final_rate: f64,
        /// Steps of the rise.
        warmup: u64,
    },
    /// Smith's one-cycle policy: from `peak / 25` up to `peak` over the first `rise` of the run, then down to
    /// `peak / 250000`, both as half cosines: the rates of PyTorch's OneCycleLR with its defaults. That also moves the
    /// momentum against the rate; here the momentum stays the optimiser's.
    OneCycle {
        /// The highest rate.
        peak: f64,
        /// The share of the run in which it rises, between 0 and 1.
        rise: f64,
    },
    /// A linear rise from 0 to `rate` over `steps` steps, then another schedule, whose steps count from the start of the
    /// run too. One that leaves the rate to the optimiser ([`Schedule::Constant`], [`Schedule::Plateau`]) goes on from
    /// `rate`.
    Warmup {
        /// The rate after the rise.
        rate: f64,
        /// Steps of the rise.
        steps: u64,
        /// What follows.
        then: Box<Schedule>,
    },
    /// Times `factor` whenever the score has not improved for more than `patience` epochs, but not below `minimum`
    /// (PyTorch's ReduceLROnPlateau with a threshold of 0). A rate below `minimum` stays as it is.
    Plateau {
        /// What it is multiplied by.
        factor: f64,
        /// Epochs without improvement that are put up with.
        patience: usize,
        /// The lowest rate.
        minimum: f64,
    },
}

/// The rate at an angle of half a cosine: `from` at 0, `to` at pi.
pub fn half_cosine(from: f64, to: f64, angle: f64) -> f64 {
    to + (from - to) * 0.5 * (1.0 + angle.cos())
}

/// The rate at a step of one cycle (Smith and Topin, 2018): from a 25th of `peak` at step 0 up to `peak` at `top`, then
/// down to its 250,000th at `last`. `between` gives the rate between two others at a share of the way.
pub fn one_cycle(peak: f64, top: f64, last: f64, at: f64, between: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if at < top {
        between(peak / 25.0, peak, at / top)
    } else if at == top {
        peak
    } else {
        between(peak, peak / 25.0 / 1e4, share(at - top, last - top))
    }
}

/// The share of the way that is done, 1 where there is none to go.
fn share(done: f64, all: f64) -> f64 {
    if all > 0.0 { (done / all).clamp(0.0, 1.0) } else { 1.0 }
}

fn half_cosine_between(from: f64, to: f64, share: f64) -> f64 {
    half_cosine(from, to, PI * share)
}

impl Schedule {
    /// The rate for a step, counted from 0, of a run of `epochs` epochs; `None` leaves it as it is.
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

    /// The rate after an epoch, given how many epochs have passed since the best score.
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
