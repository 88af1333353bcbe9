//! Particle swarm optimisation: particles move towards their own best points and the swarm's.

use neurenix::data::random::RandomStream;

use super::{Objective, Progress, Search, Solution, evolution::deviation, vector::along};
use crate::{Result, training::random::normals};

/// The number of particles.
const PARTICLES: usize = 40;
/// Inertia and attraction with which a swarm converges (Clerc and Kennedy, 2002).
const INERTIA: f64 = 0.729_843_8;
const ATTRACTION: f64 = 1.496_179_8;

/// Particle swarm optimisation.
pub(super) struct Swarm {
    random: RandomStream,
    particles: Vec<Particle>,
}

struct Particle {
    at: Vec<f64>,
    velocity: Vec<f64>,
    best: Solution,
}

impl Swarm {
    pub(super) fn new(seed: u64) -> Swarm {
        Swarm { random: RandomStream::new(seed, 0x7377), particles: Vec::new() }
    }

    /// The first particle is at the network's weights, the others are around it.
    fn begin(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<()> {
        let start = solution.clone();
        let (count, around) = (start.weights.len(), deviation(&start.weights));
        for number in 0..PARTICLES {
            let best = match number {
                0 => start.clone(),
                _ => {
                    let weights = along(&start.weights, around, &normals(count, &mut self.random));
                    let value = objective.value(&weights)?;
                    Solution { weights, value }
                }
            };
            if best.value < solution.value {
                *solution = best.clone();
            }
            self.particles.push(Particle { at: best.weights.clone(), velocity: vec![0.0; count], best });
        }
        Ok(())
    }
}

impl Search for Swarm {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        if self.particles.is_empty() {
            self.begin(objective, solution)?;
        }
        for particle in &mut self.particles {
            for (i, speed) in particle.velocity.iter_mut().enumerate() {
                let (own, all) = (ATTRACTION * self.random.uniform(), ATTRACTION * self.random.uniform());
                let at = particle.at[i];
                *speed = INERTIA * *speed
                    + own * (particle.best.weights[i] - at)
                    + all * (solution.weights[i] - at);
            }
            particle.at = along(&particle.at, 1.0, &particle.velocity);
            let value = objective.value(&particle.at)?;
            if value < particle.best.value {
                particle.best = Solution { weights: particle.at.clone(), value };
            }
            if value < solution.value {
                *solution = particle.best.clone();
            }
        }
        Ok(Progress::Going)
    }
}
