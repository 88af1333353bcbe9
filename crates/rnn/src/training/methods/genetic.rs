//! A genetic algorithm.

use neurenix::data::random::RandomStream;

use super::{Objective, Progress, Search, Solution, evolution::deviation, vector::along};
use crate::{
    Result,
    training::random::{normal, normals},
};

/// The number of members, and of the best ones that survive unchanged.
const MEMBERS: usize = 50;
const ELITE: usize = 2;
/// The number of members in a tournament, whose best one becomes a parent.
const RIVALS: usize = 3;
/// How far a child may lie outside its parents, relative to their distance (Eshelman and Schaffer, 1993).
const BEYOND: f64 = 0.5;

/// A genetic algorithm on real numbers: tournaments, blended crossover, mutation scaled by the population's deviation.
pub(super) struct Population {
    random: RandomStream,
    /// Sorted, best first.
    members: Vec<Solution>,
}

impl Population {
    pub(super) fn new(seed: u64) -> Population {
        Population { random: RandomStream::new(seed, 0x6765), members: Vec::new() }
    }

    /// The network's weights, and others around them.
    fn begin(&mut self, objective: &mut dyn Objective, solution: &Solution) -> Result<()> {
        let around = deviation(&solution.weights);
        self.members.push(solution.clone());
        while self.members.len() < MEMBERS {
            let weights =
                along(&solution.weights, around, &normals(solution.weights.len(), &mut self.random));
            let value = objective.value(&weights)?;
            self.members.push(Solution { weights, value });
        }
        self.rank();
        Ok(())
    }

    fn rank(&mut self) {
        self.members.sort_by(|a, b| a.value.total_cmp(&b.value));
    }

    /// A parent: the winner of a tournament.
    fn parent(&mut self) -> usize {
        (0..RIVALS).map(|_| self.random.below(self.members.len() as u64) as usize).min().unwrap_or(0)
    }

    /// The standard deviation of each weight over the members.
    fn deviations(&self) -> Vec<f64> {
        let count = self.members.len() as f64;
        let weights = self.members.first().map_or(0, |member| member.weights.len());
        let over = |i: usize, f: &dyn Fn(f64) -> f64| {
            self.members.iter().map(|member| f(member.weights[i])).sum::<f64>() / count
        };
        let deviation = |i: usize| {
            let mean = over(i, &|x| x);
            over(i, &|x| (x - mean).powi(2)).sqrt()
        };
        (0..weights).map(deviation).collect()
    }

    fn child(&mut self, deviations: &[f64]) -> Vec<f64> {
        let (first, second) = (self.parent(), self.parent());
        let rate = 1.0 / deviations.len().max(1) as f64;
        let mut child = Vec::with_capacity(deviations.len());
        for (i, deviation) in deviations.iter().enumerate() {
            let (a, b) = (self.members[first].weights[i], self.members[second].weights[i]);
            let share = self.random.uniform() * (1.0 + 2.0 * BEYOND) - BEYOND;
            let mutated = self.random.uniform() < rate;
            let change = if mutated { deviation * normal(&mut self.random) } else { 0.0 };
            child.push(a + share * (b - a) + change);
        }
        child
    }
}

impl Search for Population {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        if self.members.is_empty() {
            self.begin(objective, solution)?;
        }
        let deviations = self.deviations();
        let mut next: Vec<Solution> = self.members[..ELITE].to_vec();
        while next.len() < MEMBERS {
            let weights = self.child(&deviations);
            let value = objective.value(&weights)?;
            next.push(Solution { weights, value });
        }
        self.members = next;
        self.rank();
        if self.members[0].value < solution.value {
            *solution = self.members[0].clone();
        }
        Ok(Progress::Going)
    }
}
