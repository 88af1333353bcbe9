//! An evolution strategy: children are drawn around a mean, and the better half moves it.

use neurenix::data::random::RandomStream;

use super::{
    Objective, Progress, Search, Solution,
    vector::{along, length},
};
use crate::{Result, training::random::normals};

/// An evolution strategy with weighted recombination and cumulative step-size adaptation (Hansen and Ostermeier, 2001).
pub(super) struct Evolution {
    random: RandomStream,
    state: Option<State>,
}

struct State {
    mean: Vec<f64>,
    deviation: f64,
    path: Vec<f64>,
    children: usize,
    /// The weights of the better half, best first.
    shares: Vec<f64>,
}

impl Evolution {
    pub(super) fn new(seed: u64) -> Evolution {
        Evolution { random: RandomStream::new(seed, 0x6576), state: None }
    }
}

/// The initial deviation of random searches: half the root mean square of the weights, at least 0.1.
pub(super) fn deviation(weights: &[f64]) -> f64 {
    (0.5 * length(weights) / (weights.len().max(1) as f64).sqrt()).max(0.1)
}

impl State {
    fn new(weights: &[f64]) -> State {
        let children = 8.max(4 + (3.0 * (weights.len() as f64).ln()) as usize);
        let half = children / 2;
        let raw: Vec<f64> = (1..=half).map(|rank| (half as f64 + 0.5).ln() - (rank as f64).ln()).collect();
        let sum: f64 = raw.iter().sum();
        State {
            mean: weights.to_vec(),
            deviation: deviation(weights),
            path: vec![0.0; weights.len()],
            children,
            shares: raw.into_iter().map(|share| share / sum).collect(),
        }
    }

    /// Moves the mean towards the better half, and adapts the deviation to the path of the mean.
    fn advance(&mut self, better: &[Vec<f64>]) {
        let n = self.mean.len() as f64;
        let mass = 1.0 / self.shares.iter().map(|share| share * share).sum::<f64>();
        let cumulation = (mass + 2.0) / (n + mass + 5.0);
        let damping = 1.0 + cumulation + 2.0 * (((mass - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0);
        let mut common = vec![0.0; self.mean.len()];
        for (share, child) in self.shares.iter().zip(better) {
            common = along(&common, *share, child);
        }
        self.mean = along(&self.mean, self.deviation, &common);
        let kept: Vec<f64> = self.path.iter().map(|x| (1.0 - cumulation) * x).collect();
        self.path = along(&kept, (cumulation * (2.0 - cumulation) * mass).sqrt(), &common);
        let expected = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));
        self.deviation *= (cumulation / damping * (length(&self.path) / expected - 1.0)).exp();
    }
}

impl Search for Evolution {
    fn iterate(&mut self, objective: &mut dyn Objective, solution: &mut Solution) -> Result<Progress> {
        let state = self.state.get_or_insert_with(|| State::new(&solution.weights));
        let mut children = Vec::with_capacity(state.children);
        for _ in 0..state.children {
            let child = normals(state.mean.len(), &mut self.random);
            let weights = along(&state.mean, state.deviation, &child);
            let value = objective.value(&weights)?;
            if value < solution.value {
                *solution = Solution { weights, value };
            }
            children.push((value, child));
        }
        children.sort_by(|a, b| a.0.total_cmp(&b.0));
        let better: Vec<Vec<f64>> =
            children.into_iter().take(state.shares.len()).map(|(_, child)| child).collect();
        state.advance(&better);
        let ended = !(state.deviation > f64::MIN_POSITIVE && state.deviation.is_finite());
        Ok(if ended { Progress::Converged } else { Progress::Going })
    }
}
