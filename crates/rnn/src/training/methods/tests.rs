//! The searches, on functions with known minima.

use super::{newton::MOST_WEIGHTS, *};
use crate::TrainingMethod;

type Function = fn(&[f64]) -> f64;

/// A function whose derivatives are differences.
struct Known {
    function: Function,
}

impl Known {
    fn difference(&self, at: &[f64], i: usize, by: f64) -> f64 {
        let moved = |by: f64| {
            let mut at = at.to_vec();
            at[i] += by;
            (self.function)(&at)
        };
        (moved(by) - moved(-by)) / (2.0 * by)
    }

    fn gradient(&self, at: &[f64]) -> Vec<f64> {
        (0..at.len()).map(|i| self.difference(at, i, 1e-6)).collect()
    }
}

impl Objective for Known {
    fn value(&mut self, at: &[f64]) -> Result<f64> {
        Ok((self.function)(at))
    }

    fn value_and_gradient(&mut self, at: &[f64]) -> Result<(f64, Vec<f64>)> {
        Ok(((self.function)(at), self.gradient(at)))
    }

    fn curvature(&mut self, at: &[f64], _: Curvature) -> Result<(f64, Vec<f64>, Vec<f64>)> {
        let mut matrix = Vec::new();
        for i in 0..at.len() {
            let derivative = |by: f64| {
                let mut at = at.to_vec();
                at[i] += by;
                self.gradient(&at)
            };
            let (after, before) = (derivative(1e-4), derivative(-1e-4));
            matrix.extend(after.iter().zip(&before).map(|(after, before)| (after - before) / 2e-4));
        }
        Ok(((self.function)(at), self.gradient(at), matrix))
    }
}

/// A narrow curved valley that ends at (1, 1).
fn rosenbrock(x: &[f64]) -> f64 {
    (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2)
}

/// A bowl around (1, 2, ..).
fn bowl(x: &[f64]) -> f64 {
    x.iter().enumerate().map(|(i, x)| (1.0 + 0.5 * i as f64) * (x - 1.0 - i as f64).powi(2)).sum()
}

/// A valley with many dents; the deepest is at 0.
fn dents(x: &[f64]) -> f64 {
    x.iter().map(|x| 0.05 * x * x + 1.0 - (3.0 * x).cos()).sum()
}

/// Where a search comes to, and after how many iterations.
fn run(method: TrainingMethod, function: Function, from: &[f64], most: usize) -> (Solution, usize) {
    let mut objective = Known { function };
    let mut search = search(method, &OptimizerConfig::default(), 7).unwrap();
    let mut solution = Solution { weights: from.to_vec(), value: function(from) };
    for iteration in 0..most {
        let before = solution.value;
        let progress = search.iterate(&mut objective, &mut solution).unwrap();
        assert!(solution.value <= before && solution.value == function(&solution.weights), "{method:?}");
        if progress == Progress::Converged {
            return (solution, iteration);
        }
    }
    (solution, most)
}

fn check(method: TrainingMethod, function: Function, from: &[f64], most: usize, optimum: &[f64], near: f64) {
    let (solution, iterations) = run(method, function, from, most);
    let distance = solution.weights.iter().zip(optimum).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(distance < near, "{method:?}: {:?} after {iterations}, not {optimum:?}", solution.weights);
}

#[test]
fn searches_by_gradients_find_the_end_of_a_valley() {
    for (method, most) in [
        (TrainingMethod::QuasiNewton, 60),
        (TrainingMethod::ConjugateGradient, 120),
        (TrainingMethod::Newton, 60),
        (TrainingMethod::LevenbergMarquardt, 60),
    ] {
        check(method, rosenbrock, &[-1.2, 1.0], most, &[1.0, 1.0], 1e-4);
        check(method, bowl, &[9.0, -3.0, 0.0, 20.0, 1.0], most, &[1.0, 2.0, 3.0, 4.0, 5.0], 1e-5);
    }
}

#[test]
fn searches_at_random_find_the_bottom_of_a_bowl() {
    for (method, most, near) in [
        (TrainingMethod::Evolutionary, 200, 1e-5),
        (TrainingMethod::ParticleSwarm, 300, 1e-5),
        (TrainingMethod::GeneticAlgorithm, 200, 1e-3),
        (TrainingMethod::SimulatedAnnealing, 300, 1e-3),
    ] {
        check(method, bowl, &[3.0, -1.0, 0.5], most, &[1.0, 2.0, 3.0], near);
    }
}

#[test]
fn searches_at_random_leave_dents() {
    // Gradients lead into the nearest dent.
    let (solution, _) = run(TrainingMethod::QuasiNewton, dents, &[4.0], 100);
    assert!((solution.weights[0] - 4.0).abs() < 1.0, "{:?}", solution.weights);
    for method in
        [TrainingMethod::ParticleSwarm, TrainingMethod::GeneticAlgorithm, TrainingMethod::SimulatedAnnealing]
    {
        check(method, dents, &[4.0], 300, &[0.0], 1e-2);
    }
}

#[test]
fn a_memory_is_the_dense_formula() {
    let pairs = [
        (vec![0.5, -0.2, 0.1], vec![1.0, 0.3, -0.1]),
        (vec![-0.1, 0.4, 0.3], vec![0.2, 0.9, 0.4]),
        (vec![0.3, 0.1, -0.6], vec![0.4, -0.2, -1.5]),
    ];
    let gradient = [0.7, -1.1, 0.4];
    for most in [2, 5] {
        let mut memory = CorrectionPairs::new(most);
        pairs.iter().for_each(|(moved, turned)| memory.push(moved.clone(), turned.clone()));
        // What does not curve upwards is left out.
        memory.push(vec![1.0, 0.0, 0.0], vec![-1.0, 0.0, 0.0]);
        let kept = &pairs[pairs.len().saturating_sub(most)..];
        let (moved, turned) = &pairs[2];
        let mut inverse = [[0.0; 3]; 3];
        (0..3).for_each(|i| inverse[i][i] = dot(moved, turned) / dot(turned, turned));
        for (moved, turned) in kept {
            // (1 - r s y') H (1 - r y s') + r s s'
            let r = 1.0 / dot(moved, turned);
            let left = |i: usize, j: usize| f64::from(u8::from(i == j)) - r * moved[i] * turned[j];
            let entry = |i: usize, j: usize| {
                let inner = |k: usize| (0..3).map(|l| inverse[k][l] * left(j, l)).sum::<f64>();
                r * moved[i] * moved[j] + (0..3).map(|k| left(i, k) * inner(k)).sum::<f64>()
            };
            let next = [0, 1, 2].map(|i| [0, 1, 2].map(|j| entry(i, j)));
            inverse = next;
        }
        for (found, row) in memory.inverse_times(&gradient).iter().zip(&inverse) {
            assert!((found - dot(row, &gradient)).abs() < 1e-12);
        }
    }
}

#[test]
fn systems_are_solved_or_refused() {
    let matrix = [4.0, 1.0, -0.5, 1.0, 3.0, 0.2, -0.5, 0.2, 2.0];
    let added = [0.5, 0.0, 1.0];
    let solution = solve(&matrix, &added, &[1.0, -2.0, 0.5]).unwrap();
    for (i, expected) in [1.0, -2.0, 0.5].iter().enumerate() {
        let found = dot(&matrix[3 * i..3 * i + 3], &solution) + added[i] * solution[i];
        assert!((found - expected).abs() < 1e-14, "{found} is not {expected}");
    }
    assert_eq!(solve(&[1.0, 2.0, 2.0, 1.0], &[0.0; 2], &[1.0; 2]), None);
    assert_eq!(solve(&[1.0, 1.0, 1.0, 1.0], &[0.0; 2], &[1.0; 2]), None);
    assert!(solve(&[1.0, 1.0, 1.0, 1.0], &[1e-3; 2], &[1.0; 2]).is_some());
    assert_eq!(solve(&[f64::NAN], &[0.0], &[1.0]), None);
    assert!(check_size("Newton", MOST_WEIGHTS).is_ok());
    assert!(check_size("Newton", MOST_WEIGHTS + 1).unwrap_err().to_string().contains("2001"));
}
