//! Ways to find weights that look at all rows at once, rather than at batches.
//!
//! They see the network as a function of one vector, its trainable weights one after another, and know nothing of layers.

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
pub(super) use newton::{check_size, solve};
pub(super) use objective::{NetworkObjective, flattened};
pub(super) use quasi_newton::Memory;
pub(super) use vector::{dot, sum_of_magnitudes};

use super::TrainingMethod;
use crate::{OptimizerConfig, Result};

/// A function of a vector that is to become small.
pub(crate) trait Objective {
    /// Its value; infinite where it is no finite number.
    fn value(&mut self, at: &[f64]) -> Result<f64>;

    /// Its value and its gradient.
    fn slope(&mut self, at: &[f64]) -> Result<(f64, Vec<f64>)>;

    /// Its value, its gradient, and a matrix of its curvature row by row.
    fn curvature(&mut self, at: &[f64], kind: Curvature) -> Result<(f64, Vec<f64>, Vec<f64>)>;
}

/// Which matrix says how a function curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curvature {
    /// All second derivatives.
    Hessian,
    /// Of a mean of squares: twice the mean of products of the squares' first derivatives.
    GaussNewton,
}

/// Where a search stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The best vector so far.
    pub(crate) weights: Vec<f64>,
    /// The function there.
    pub(crate) value: f64,
}

/// What came of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be better places.
    Going,
    /// The search finds none any more.
    Converged,
}

/// A search for the least value of a function.
pub(crate) trait Search {
    /// One iteration. The place never becomes worse.
    fn iterate(&mut self, objective: &mut dyn Objective, place: &mut Place) -> Result<Progress>;
}

/// The search of a method; none for back-propagation, which is no search over all rows.
pub(crate) fn search(method: TrainingMethod, config: &OptimizerConfig, seed: u64) -> Option<Box<dyn Search>> {
    let damping = config.damping.unwrap_or(DAMPING);
    Some(match method {
        TrainingMethod::Backpropagation => return None,
        TrainingMethod::Newton => Box::new(newton::Newton::new(Curvature::Hessian, damping)),
        TrainingMethod::LevenbergMarquardt => Box::new(newton::Newton::new(Curvature::GaussNewton, damping)),
        TrainingMethod::QuasiNewton => {
            Box::new(quasi_newton::QuasiNewton::new(config.memory_size.unwrap_or(MEMORY)))
        }
        TrainingMethod::ConjugateGradient => Box::new(quasi_newton::ConjugateGradient::default()),
        TrainingMethod::Evolutionary => Box::new(evolution::Evolution::new(seed)),
        TrainingMethod::ParticleSwarm => Box::new(swarm::Swarm::new(seed)),
        TrainingMethod::GeneticAlgorithm => Box::new(genetic::Population::new(seed)),
        TrainingMethod::SimulatedAnnealing => Box::new(annealing::Annealing::new(seed)),
    })
}

/// What is added to the diagonal of a curvature where nobody says how much.
pub(crate) const DAMPING: f64 = 1e-4;
/// The pairs of differences that quasi-Newton methods keep where nobody says how many.
pub(crate) const MEMORY: usize = 20;
