//! Simulated annealing: random steps; the lower the temperature, the rarer are accepted steps that increase the value.

use neurenix::data::random::RandomStream;

use super::{Objective, Progress, Search, Solution, evolution::deviation, vector::along};
use crate::{Result, training::random::normals};

/// Steps per iteration.
const TRIES: usize = 50;
/// The factor of the temperature after each iteration.
const COOLING: f64 = 0.9;

/// Simulated annealing (Kirkpatrick, Gelatt and Vecchi, 1983) with step sizes adapted to the acceptance rate (Corana et
/// al., 1987).
pub(super) struct Annealing {
    random: RandomStream,
    state: Option<State>,
}

struct State {
    at: Solution,
    temperature: f64,
    step: f64,
}

impl Annealing {
    pub(super) fn new(seed: u64) -> Annealing {
        Annealing { random: RandomStream::new(seed, 0x616e), state: None }
    }

    fn near(&mut self, objective: &mut dyn Objective, at: &[f64], step: f64) -> Result<Solution> {
        let weights = along(at, step, &normals(at.len(), &mut self.random));
        let value = objective.value(&weights)?;
        Ok(Solution { weights, value })
    }

    /// Chooses the initial temperature so that half of the first increasing steps are accepted.
    fn begin(&mut self, objective: &mut dyn Objective, solution: &Solution) -> Result<State> {
        let step = deviation(&solution.weights);
        let mut upwards = Vec::new();
        for _ in 0..TRIES {
            let rise = self.near(objective, &solution.weights, step)?.value - solution.value;
            upwards.extend((rise > 0.0 && rise.is_finite()).then_some(rise));
        }
        let mean = upwards.iter().sum::<f64>() / upwards.len().max(1) as f64;
        Ok(State { at: solution.clone(), temperature: mean / std::f64::consts::LN_2, step })
    }
}

impl Search for Annealing {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        let mut state = match self.state.take() {
            Some(state) => state,
            None => self.begin(objective, solution)?,
        };
        let mut taken = 0;
        for _ in 0..TRIES {
            let tried = self.near(objective, &state.at.weights, state.step)?;
            let rise = tried.value - state.at.value;
            let chance = if rise <= 0.0 { 1.0 } else { (-rise / state.temperature).exp() };
            if self.random.uniform() < chance {
                taken += 1;
                if tried.value < solution.value {
                    *solution = tried.clone();
                }
                state.at = tried;
            }
        }
        // Keep the acceptance rate between a quarter and a half.
        match taken {
            taken if taken > TRIES / 2 => state.step *= 1.5,
            taken if taken < TRIES / 4 => state.step /= 1.5,
            _ => {}
        }
        state.temperature *= COOLING;
        let ended = state.step <= f64::MIN_POSITIVE;
        self.state = Some(state);
        Ok(if ended { Progress::Converged } else { Progress::Going })
    }
}
