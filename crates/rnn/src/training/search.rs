//! Training by a method that uses all rows at once, one iteration per epoch.

use neurenix::nn::Parameter;

use super::{
    TrainingMethod,
    forward::{Batch, Measured, Model},
    methods::{NetworkObjective, Objective, Progress, Search, Solution, check_size, search},
};
use crate::{NetworkError, Optimizer, Result};

/// A search in progress.
pub(super) struct Searching<'a> {
    objective: NetworkObjective<'a>,
    search: Box<dyn Search>,
    solution: Solution,
}

impl<'a> Searching<'a> {
    /// A search from the network's weights; `None` for backpropagation. An error if there are too many weights for the
    /// method, or the initial loss is not finite.
    pub(super) fn new(
        method: TrainingMethod,
        optimizer: &Optimizer,
        seed: u64,
        model: &'a Model<'a>,
        parameters: Vec<Parameter>,
        batches: impl FnOnce() -> Result<Vec<Batch>>,
    ) -> Result<Option<Searching<'a>>> {
        let Some(search) = search(method, optimizer.config(), seed) else { return Ok(None) };
        if matches!(method, TrainingMethod::Newton | TrainingMethod::LevenbergMarquardt) {
            check_size(method.name(), parameters.iter().map(|p| p.tensor().len()).sum())?;
        }
        model.network.set_training(false);
        let mut objective = NetworkObjective::new(model, batches()?, parameters);
        let weights = objective.weights()?;
        let value = objective.value(&weights)?;
        if !value.is_finite() {
            let message =
                "the initial loss over all rows is not finite: scale the data, or begin with smaller weights";
            return Err(NetworkError::numerical(message));
        }
        Ok(Some(Searching { objective, search, solution: Solution { weights, value } }))
    }

    /// Runs one iteration. Returns the measurements after it, and whether the search has converged. If it fails, the
    /// weights do not change.
    pub(super) fn iterate(&mut self, predictions: bool) -> Result<(Measured, bool)> {
        let before = self.solution.weights.clone();
        let progress = self.search.iterate(&mut self.objective, &mut self.solution);
        let progress = match progress {
            Ok(progress) => progress,
            Err(error) => {
                self.objective.put(&before)?;
                return Err(error);
            }
        };
        self.objective.put(&self.solution.weights)?;
        Ok((self.objective.measure(predictions)?, progress == Progress::Converged))
    }
}
