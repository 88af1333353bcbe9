//! Stopping when the score no longer improves.

/// Counts for how long a score has not improved. Lower is better.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    patience: usize,
    min_delta: f64,
    best: f64,
    waited: usize,
}

impl EarlyStopping {
    /// Stops after `patience` scores in a row that are not better than the best by more than `min_delta`.
    pub fn new(patience: usize, min_delta: f64) -> EarlyStopping {
        EarlyStopping { patience, min_delta, best: f64::INFINITY, waited: 0 }
    }

    /// Continues where an earlier run stood: its best score, and how many scores in a row have not improved since.
    ///
    /// ```
    /// use neurenix::train::EarlyStopping;
    ///
    /// let mut stopping = EarlyStopping::new(2, 0.0).resume(Some(0.5), 1);
    /// assert_eq!(stopping.best_score(), 0.5);
    /// assert!(stopping.should_stop(0.6));
    /// ```
    #[must_use]
    pub fn resume(self, best: Option<f64>, waited: usize) -> EarlyStopping {
        EarlyStopping { best: best.unwrap_or(f64::INFINITY), waited, ..self }
    }

    /// Takes a score. True if it is time to stop. NaN is never better.
    pub fn should_stop(&mut self, score: f64) -> bool {
        if score < self.best - self.min_delta || (self.best.is_infinite() && score.is_finite()) {
            self.best = score;
            self.waited = 0;
            return false;
        }
        self.waited += 1;
        self.is_over()
    }

    /// True if it is time to stop.
    pub fn is_over(&self) -> bool {
        self.waited >= self.patience.max(1)
    }

    /// True if the last score was the best so far.
    pub fn is_best(&self) -> bool {
        self.waited == 0 && self.best.is_finite()
    }

    /// The best score; infinity before the first one.
    pub fn best_score(&self) -> f64 {
        self.best
    }

    /// Forgets all scores.
    pub fn reset(&mut self) {
        *self = EarlyStopping::new(self.patience, self.min_delta);
    }
}
