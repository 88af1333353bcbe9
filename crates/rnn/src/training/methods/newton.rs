//! Newton's method and the Levenberg-Marquardt method.

use super::{
    Curvature, Objective, Progress, Search, Solution,
    vector::{along, dot, negative},
};
use crate::{NetworkError, Result};

/// The maximum number of weights for methods that solve a dense system.
pub(crate) const MOST_WEIGHTS: usize = 2000;

/// Refuses networks with too many weights for a dense system.
pub(crate) fn check_size(what: &str, weights: usize) -> Result<()> {
    if weights <= MOST_WEIGHTS {
        return Ok(());
    }
    let message = format!(
        "{what} solves a dense system for at most {MOST_WEIGHTS} weights, but {weights} are trainable: use QuasiNewton or LBFGS, or freeze layers"
    );
    Err(NetworkError::training(message))
}

/// Beyond this damping, a step changes nothing.
pub(crate) const MOST_DAMPING: f64 = 1e16;
/// The factor by which the damping changes.
const FACTOR: f64 = 10.0;

/// Solves a linear system with the curvature, and increases the damping until the step decreases the value.
pub(super) struct Newton {
    kind: Curvature,
    damping: f64,
}

impl Newton {
    pub(super) fn new(kind: Curvature, damping: f64) -> Newton {
        Newton { kind, damping }
    }

    /// The values that a damping of 1 adds to the diagonal. For Gauss-Newton they are proportional to it (Marquardt,
    /// 1963).
    fn scales(&self, matrix: &[f64], count: usize) -> Vec<f64> {
        match self.kind {
            Curvature::Hessian => vec![1.0; count],
            Curvature::GaussNewton => {
                let diagonal: Vec<f64> = (0..count).map(|i| matrix[i * count + i]).collect();
                let greatest = diagonal.iter().copied().fold(0.0, f64::max);
                diagonal.into_iter().map(|x| x.max(1e-8 * greatest)).collect()
            }
        }
    }
}

impl Search for Newton {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        let (value, gradient, matrix) = objective.curvature(&solution.weights, self.kind)?;
        solution.value = value;
        let (scales, wanted) = (self.scales(&matrix, gradient.len()), negative(&gradient));
        while self.damping < MOST_DAMPING {
            let added: Vec<f64> = scales.iter().map(|scale| scale * self.damping).collect();
            if let Some(step) = solve(&matrix, &added, &wanted) {
                let weights = along(&solution.weights, 1.0, &step);
                let value = objective.value(&weights)?;
                if value < solution.value {
                    *solution = Solution { weights, value };
                    self.damping /= FACTOR;
                    return Ok(Progress::Going);
                }
            }
            self.damping = (self.damping * FACTOR).max(1e-12);
        }
        Ok(Progress::Converged)
    }
}

/// Solves a symmetric system, with `added` on its diagonal, by a Cholesky decomposition; `None` unless it is positive
/// definite.
pub(crate) fn solve(matrix: &[f64], added: &[f64], right: &[f64]) -> Option<Vec<f64>> {
    let count = right.len();
    let mut factor = matrix.to_vec();
    for i in 0..count {
        let (above, row) = factor.split_at_mut(i * count);
        for j in 0..i {
            let other = &above[j * count..j * count + j + 1];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let own = row[i] + added[i];
        let rest = own - dot(&row[..i], &row[..i]);
        // For a singular matrix, only rounding errors remain.
        if !(rest > 1e-14 * own.abs() && rest.is_finite()) {
            return None;
        }
        row[i] = rest.sqrt();
    }
    let mut solution = right.to_vec();
    for i in 0..count {
        let row = &factor[i * count..i * count + i + 1];
        solution[i] = (solution[i] - dot(&row[..i], &solution[..i])) / row[i];
    }
    for i in (0..count).rev() {
        let row = &factor[i * count..i * count + i + 1];
        let own = solution[i] / row[i];
        solution[i] = own;
        for (x, share) in solution[..i].iter_mut().zip(row) {
            *x -= share * own;
        }
    }
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}
