//! Schedules of the learning rate.

use std::f64::consts::PI;

use neurenix::optim::{Schedule, half_cosine, one_cycle};
use serde::{Deserialize, Serialize};

use crate::{NetworkError, Result, error::within};

/// A schedule of the learning rate. `CyclicLR` and `OneCycleLR` count optimiser steps; the others count epochs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LearningRateSchedule {
    /// Multiplies the rate by `gamma` after every `step_size` epochs.
    StepDecay {
        /// Epochs between changes.
        step_size: usize,
        /// The factor.
        gamma: f64,
    },
    /// Multiplies the rate by `gamma` after every epoch.
    ExponentialDecay {
        /// The factor.
        gamma: f64,
    },
    /// Half a cosine from the initial rate to `eta_min` over `t_max` epochs, and up again.
    CosineAnnealing {
        /// Epochs until the lowest rate.
        t_max: usize,
        /// The lowest rate.
        eta_min: f64,
    },
    /// Multiplies the rate by `factor` when the loss has not improved for more than `patience` epochs, but not below
    /// `min_lr`.
    ReduceOnPlateau {
        /// The factor.
        factor: f64,
        /// Epochs without improvement that are tolerated.
        patience: usize,
        /// The lowest rate.
        min_lr: f64,
    },
    /// From the initial rate to `end_lr` over the run's epochs, in proportion to a power of the remaining share of the
    /// run.
    PolynomialDecay {
        /// The power.
        power: f64,
        /// The final rate.
        end_lr: f64,
    },
    /// From `base_lr` to `max_lr` in `step_size_up` steps and back in as many, repeatedly.
    CyclicLR {
        /// The lowest rate.
        base_lr: f64,
        /// The highest rate.
        max_lr: f64,
        /// Steps from the lowest rate to the highest.
        step_size_up: usize,
        /// `triangular`: cycles of equal height; `triangular2`: each cycle is half as high as the one before.
        mode: String,
    },
    /// From `max_lr / 25` up to `max_lr` over a share of the steps, then down to `max_lr / 250000` (Smith and Topin,
    /// 2018).
    OneCycleLR {
        /// The highest rate.
        max_lr: f64,
        /// Steps of the cycle. Afterwards the rate stays at its last value.
        total_steps: usize,
        /// The share of the steps in which the rate rises.
        pct_start: f64,
        /// `cos` or `linear`.
        anneal_strategy: String,
    },
}

impl LearningRateSchedule {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<()> {
        let count = |name: &str, value: usize| match value {
            0 => Err(NetworkError::invalid_parameter(name, 0, "it must be at least 1")),
            _ => Ok(()),
        };
        let rate = |name: &str, value: f64| within(name, value, 0.0, f64::INFINITY);
        let one_of = |name: &str, value: &str, words: [&str; 2]| match words.contains(&value) {
            true => Ok(()),
            false => Err(NetworkError::invalid_parameter(
                name,
                format!("{value:?}"),
                format!("use {:?} or {:?}", words[0], words[1]),
            )),
        };
        match self {
            LearningRateSchedule::StepDecay { step_size, gamma } => {
                count("step_size", *step_size)?;
                rate("gamma", *gamma)
            }
            LearningRateSchedule::ExponentialDecay { gamma } => rate("gamma", *gamma),
            LearningRateSchedule::CosineAnnealing { t_max, eta_min } => {
                count("t_max", *t_max)?;
                rate("eta_min", *eta_min)
            }
            LearningRateSchedule::ReduceOnPlateau { factor, min_lr, .. } => {
                within("factor", *factor, 0.0, 1.0)?;
                rate("min_lr", *min_lr)
            }
            LearningRateSchedule::PolynomialDecay { power, end_lr } => {
                rate("power", *power)?;
                rate("end_lr", *end_lr)
            }
            LearningRateSchedule::CyclicLR { base_lr, max_lr, step_size_up, mode } => {
                rate("base_lr", *base_lr)?;
                within("max_lr", *max_lr, *base_lr, f64::INFINITY)?;
                count("step_size_up", *step_size_up)?;
                one_of("mode", mode, ["triangular", "triangular2"])
            }
            LearningRateSchedule::OneCycleLR { max_lr, total_steps, pct_start, anneal_strategy } => {
                rate("max_lr", *max_lr)?;
                count("total_steps", *total_steps)?;
                within("pct_start", *pct_start, 0.0, 1.0)?;
                one_of("anneal_strategy", anneal_strategy, ["cos", "linear"])
            }
        }
    }

    /// Whether it counts optimiser steps rather than epochs.
    fn counts_steps(&self) -> bool {
        matches!(self, LearningRateSchedule::CyclicLR { .. } | LearningRateSchedule::OneCycleLR { .. })
    }
}

/// A schedule in progress.
#[derive(Clone, Debug)]
pub struct LearningRateScheduler {
    schedule: LearningRateSchedule,
    initial: f64,
    epochs: usize,
    rate: f64,
    done: usize,
    best: f64,
    waited: usize,
}

impl LearningRateScheduler {
    /// A schedule that begins at `initial_lr`, for a run of `epochs` epochs.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn new(
        schedule: LearningRateSchedule,
        initial_lr: f64,
        epochs: usize,
    ) -> Result<LearningRateScheduler> {
        schedule.check()?;
        within("initial_lr", initial_lr, 0.0, f64::INFINITY)?;
        let mut scheduler = LearningRateScheduler {
            schedule,
            initial: initial_lr,
            epochs,
            rate: initial_lr,
            done: 0,
            best: f64::INFINITY,
            waited: 0,
        };
        if scheduler.schedule.counts_steps() {
            scheduler.rate = scheduler.at(0);
        }
        Ok(scheduler)
    }

    /// The current rate.
    pub fn get_lr(&self) -> f64 {
        self.rate
    }

    /// Counts an optimiser step. Returns the new rate.
    pub fn step(&mut self) -> f64 {
        if self.schedule.counts_steps() {
            self.done += 1;
            self.rate = self.at(self.done);
        }
        self.rate
    }

    /// Counts an epoch, given its validation loss (training loss without validation). Returns the new rate.
    pub fn epoch(&mut self, loss: f64) -> f64 {
        if self.schedule.counts_steps() {
            return self.rate;
        }
        self.done += 1;
        self.waited += 1;
        if loss < self.best {
            (self.best, self.waited) = (loss, 0);
        }
        self.rate = match self.schedule {
            LearningRateSchedule::ReduceOnPlateau { factor, patience, min_lr } => {
                Schedule::Plateau { factor, patience, minimum: min_lr }.after_epoch(self.rate, self.waited)
            }
            _ => self.at(self.done),
        };
        self.rate
    }

    /// Starts the schedule again.
    pub fn reset(&mut self) {
        (self.done, self.best, self.waited, self.rate) = (0, f64::INFINITY, 0, self.initial);
        if self.schedule.counts_steps() {
            self.rate = self.at(0);
        }
    }

    /// The rate after `done` epochs or steps.
    fn at(&self, done: usize) -> f64 {
        let n = done as f64;
        let step = |epochs: usize, factor: f64| {
            let schedule = Schedule::Step { initial: self.initial, epochs: epochs as u64, factor };
            schedule.at_step(done as u64, 1, self.epochs as u64).unwrap_or(self.rate)
        };
        match &self.schedule {
            LearningRateSchedule::StepDecay { step_size, gamma } => step(*step_size, *gamma),
            LearningRateSchedule::ExponentialDecay { gamma } => step(1, *gamma),
            LearningRateSchedule::CosineAnnealing { t_max, eta_min } => {
                half_cosine(self.initial, *eta_min, PI * (n / *t_max as f64))
            }
            LearningRateSchedule::ReduceOnPlateau { .. } => self.rate,
            LearningRateSchedule::PolynomialDecay { power, end_lr } => {
                let left = 1.0 - (n / self.epochs.max(1) as f64).min(1.0);
                end_lr + (self.initial - end_lr) * left.powf(*power)
            }
            LearningRateSchedule::CyclicLR { base_lr, max_lr, step_size_up, mode } => {
                let (up, both) = (*step_size_up, step_size_up.saturating_mul(2));
                let (place, cycle) = (done % both, done / both);
                let share = if place <= up { place } else { both - place } as f64 / up as f64;
                let height = if mode == "triangular2" { 0.5f64.powi(cycle.min(1000) as i32) } else { 1.0 };
                base_lr + (max_lr - base_lr) * share * height
            }
            LearningRateSchedule::OneCycleLR { max_lr, total_steps, pct_start, anneal_strategy } => {
                let last = total_steps.saturating_sub(1) as f64;
                let top = (pct_start * *total_steps as f64 - 1.0).max(0.0);
                one_cycle(*max_lr, top, last, n.min(last), |from, to, share| match anneal_strategy.as_str() {
                    "linear" => from + (to - from) * share,
                    _ => half_cosine(from, to, PI * share),
                })
            }
        }
    }
}
