//! Optimisation methods that use all rows at once.
//!
//! They treat the network as a function of one vector, its trainable weights one after another.

mod annealing;
mod derivatives;
mod evolution;
mod genetic;
mod line_search;
mod newton;
mod objective;
mod quasi_newton;
mod swarm;
#[cfg(test)]
mod tests;
mod vector;

pub(super) use derivatives::second_derivatives;
pub(super) use newton::{MOST_DAMPING, check_size, solve};
pub(super) use objective::{NetworkObjective, flattened, gradient_of, split};
pub(super) use quasi_newton::{CorrectionPairs, first_step};
pub(super) use vector::{difference, dot};

use super::TrainingMethod;
use crate::{OptimizerConfig, Result};

/// A function of a vector to minimise.
pub(crate) trait Objective {
    /// Its value; infinity if it is not finite.
    fn value(&mut self, at: &[f64]) -> Result<f64>;

    /// Its value and its gradient.
    fn value_and_gradient(&mut self, at: &[f64]) -> Result<(f64, Vec<f64>)>;

    /// Its value, its gradient, and a matrix of its curvature, row by row.
    fn curvature(&mut self, at: &[f64], kind: Curvature) -> Result<(f64, Vec<f64>, Vec<f64>)>;
}

/// A matrix that describes the curvature of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curvature {
    /// All second derivatives.
    Hessian,
    /// For a mean of squared residuals: twice the mean of the products of the residuals' first derivatives.
    GaussNewton,
}

/// A point of a search.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The vector.
    pub(crate) weights: Vec<f64>,
    /// The function at this vector.
    pub(crate) value: f64,
}

impl Solution {
    /// Computes the value and the gradient at this point.
    fn value_and_gradient(&mut self, objective: &mut dyn Objective) -> Result<Vec<f64>> {
        let (value, gradient) = objective.value_and_gradient(&self.weights)?;
        self.value = value;
        Ok(gradient)
    }
}

/// The outcome of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be better points.
    Going,
    /// The search finds no better point.
    Converged,
}

/// A search for the minimum of a function.
pub(crate) trait Search {
    /// One iteration. It never increases the value at `solution`, the best point so far.
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress>;
}

/// The search of a method; `None` for backpropagation.
pub(crate) fn search(method: TrainingMethod, config: &OptimizerConfig, seed: u64) -> Option<Box<dyn Search>> {
    let damping = config.damping.unwrap_or(DAMPING);
    Some(match method {
        TrainingMethod::Backpropagation => return None,
        TrainingMethod::Newton => Box::new(newton::Newton::new(Curvature::Hessian, damping)),
        TrainingMethod::LevenbergMarquardt => Box::new(newton::Newton::new(Curvature::GaussNewton, damping)),
        TrainingMethod::QuasiNewton => {
            Box::new(quasi_newton::QuasiNewton::new(config.memory_size.unwrap_or(MEMORY_SIZE)))
        }
        TrainingMethod::ConjugateGradient => Box::new(quasi_newton::ConjugateGradient::default()),
        TrainingMethod::Evolutionary => Box::new(evolution::Evolution::new(seed)),
        TrainingMethod::ParticleSwarm => Box::new(swarm::Swarm::new(seed)),
        TrainingMethod::GeneticAlgorithm => Box::new(genetic::Population::new(seed)),
        TrainingMethod::SimulatedAnnealing => Box::new(annealing::Annealing::new(seed)),
    })
}

/// The default damping, which is added to the diagonal of a curvature.
pub(crate) const DAMPING: f64 = 1e-4;
/// The default number of pairs of differences that quasi-Newton methods keep.
pub(crate) const MEMORY_SIZE: usize = 20;
