//! Methods that estimate the curvature from gradients: limited-memory BFGS and conjugate gradients.

use std::collections::VecDeque;

use super::{
    Objective, Progress, Search, Solution,
    line_search::Line,
    vector::{along, difference, dot, length, negative, sum_of_magnitudes},
};
use crate::Result;

/// Differences of points and of gradients, which approximate the inverse curvature.
#[derive(Clone, Debug)]
pub(crate) struct CorrectionPairs {
    most: usize,
    pairs: VecDeque<Pair>,
}

#[derive(Clone, Debug)]
struct Pair {
    moved: Vec<f64>,
    turned: Vec<f64>,
    product: f64,
}

impl CorrectionPairs {
    /// A memory of at most `most` pairs.
    pub(crate) fn new(most: usize) -> CorrectionPairs {
        CorrectionPairs { most: most.max(1), pairs: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn clear(&mut self) {
        self.pairs.clear();
    }

    /// Keeps a pair if the function has positive curvature between its points.
    pub(crate) fn push(&mut self, moved: Vec<f64>, turned: Vec<f64>) {
        let product = dot(&moved, &turned);
        if !(product > 1e-12 * length(&moved) * length(&turned) && product.is_finite()) {
            return;
        }
        if self.pairs.len() == self.most {
            self.pairs.pop_front();
        }
        self.pairs.push_back(Pair { moved, turned, product });
    }

    /// The inverse curvature times a gradient, by two loops over the pairs (Nocedal, 1980).
    pub(crate) fn inverse_times(&self, gradient: &[f64]) -> Vec<f64> {
        let mut vector = gradient.to_vec();
        let mut shares = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs.iter().rev() {
            let share = dot(&pair.moved, &vector) / pair.product;
            vector = along(&vector, -share, &pair.turned);
            shares.push(share);
        }
        if let Some(last) = self.pairs.back() {
            let scale = last.product / dot(&last.turned, &last.turned);
            vector.iter_mut().for_each(|x| *x *= scale);
        }
        for (pair, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let own = dot(&pair.turned, &vector) / pair.product;
            vector = along(&vector, share - own, &pair.moved);
        }
        vector
    }
}

/// Limited-memory BFGS with a line search.
pub(super) struct QuasiNewton {
    memory: CorrectionPairs,
    /// The gradient at the current point, once it is known.
    gradient: Option<Vec<f64>>,
}

impl QuasiNewton {
    pub(super) fn new(pairs: usize) -> QuasiNewton {
        QuasiNewton { memory: CorrectionPairs::new(pairs), gradient: None }
    }
}

/// The first step while the curvature is unknown: no weight moves by more than 1.
pub(crate) fn first_step(gradient: &[f64]) -> f64 {
    (1.0 / sum_of_magnitudes(gradient)).min(1.0)
}

impl Search for QuasiNewton {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        let gradient = self.gradient.take().map_or_else(|| solution.value_and_gradient(objective), Ok)?;
        if length(&gradient) == 0.0 {
            return Ok(Progress::Converged);
        }
        loop {
            let direction = negative(&self.memory.inverse_times(&gradient));
            if dot(&direction, &gradient) < 0.0 {
                let line = Line { from: solution, gradient: &gradient, direction: &direction, flatness: 0.9 };
                let first = if self.memory.is_empty() { first_step(&gradient) } else { 1.0 };
                if let Some(point) = line.search(objective, first)? {
                    let weights = along(&solution.weights, point.step, &direction);
                    self.memory.push(
                        difference(&weights, &solution.weights),
                        difference(&point.gradient, &gradient),
                    );
                    *solution = Solution { weights, value: point.value };
                    self.gradient = Some(point.gradient);
                    return Ok(Progress::Going);
                }
            }
            if self.memory.is_empty() {
                self.gradient = Some(gradient);
                return Ok(Progress::Converged);
            }
            // The memory may be misleading.
            self.memory.clear();
        }
    }
}

/// Conjugate gradients (Polak and Ribière), restarted when their factor is negative.
#[derive(Default)]
pub(super) struct ConjugateGradient {
    last: Option<Conjugate>,
    since: usize,
}

/// The gradient at the current point, and the step that led there.
struct Conjugate {
    gradient: Vec<f64>,
    before: Vec<f64>,
    direction: Vec<f64>,
    step: f64,
}

impl Search for ConjugateGradient {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        let last = self.last.take();
        let known = last.as_ref().map(|last| last.gradient.clone());
        let gradient = known.map_or_else(|| solution.value_and_gradient(objective), Ok)?;
        if length(&gradient) == 0.0 {
            return Ok(Progress::Converged);
        }
        let steepest = negative(&gradient);
        let conjugate = last.filter(|_| self.since < gradient.len()).and_then(|last| {
            let change = difference(&gradient, &last.before);
            let factor = dot(&gradient, &change) / dot(&last.before, &last.before);
            let direction = along(&steepest, factor, &last.direction);
            let derivative = dot(&gradient, &direction);
            // The expected change of the value is that of the previous iteration.
            let first = last.step * dot(&last.before, &last.direction) / derivative;
            let sound = factor > 0.0 && derivative < 0.0 && first.is_finite() && first > 0.0;
            sound.then_some((direction, first))
        });
        self.since = if conjugate.is_some() { self.since + 1 } else { 0 };
        let plain = (steepest, first_step(&gradient));
        for (direction, first) in conjugate.into_iter().chain([plain]) {
            let line = Line { from: solution, gradient: &gradient, direction: &direction, flatness: 0.1 };
            if let Some(point) = line.search(objective, first)? {
                let weights = along(&solution.weights, point.step, &direction);
                *solution = Solution { weights, value: point.value };
                let (step, before) = (point.step, gradient);
                self.last = Some(Conjugate { gradient: point.gradient, before, direction, step });
                return Ok(Progress::Going);
            }
            self.since = 0;
        }
        Ok(Progress::Converged)
    }
}
