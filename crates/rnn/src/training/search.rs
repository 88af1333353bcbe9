//! A training run by a method that looks at all rows at once: an iteration an epoch.

use neurenix::nn::Parameter;

use super::{
    TrainingMethod,
    methods::{NetworkObjective, Objective, Place, Progress, Search, check_size, search},
    step::{Batch, Measured, Stepper},
};
use crate::{NetworkError, Optimizer, Result};

/// A search under way.
pub(super) struct Searching<'a> {
    objective: NetworkObjective<'a>,
    search: Box<dyn Search>,
    place: Place,
}

impl<'a> Searching<'a> {
    /// Begins at the network's weights; nothing for back-propagation.
    ///
    /// # Errors
    /// Too many weights for the method; a loss that is not finite at the beginning.
    pub(super) fn new(
        method: TrainingMethod,
        optimizer: &Optimizer,
        seed: u64,
        stepper: &'a Stepper<'a>,
        parameters: Vec<Parameter>,
        batches: impl FnOnce() -> Result<Vec<Batch>>,
    ) -> Result<Option<Searching<'a>>> {
        let Some(search) = search(method, optimizer.config(), seed) else { return Ok(None) };
        if matches!(method, TrainingMethod::Newton | TrainingMethod::LevenbergMarquardt) {
            check_size(method.name(), parameters.iter().map(|p| p.tensor().len()).sum())?;
        }
        stepper.network.set_training(false);
        let mut objective = NetworkObjective::new(stepper, batches()?, parameters);
        let weights = objective.weights()?;
        let value = objective.value(&weights)?;
        if !value.is_finite() {
            let message = "the loss over all rows is not finite at the beginning: scale the data, or begin with smaller weights";
            return Err(NetworkError::numerical(message));
        }
        Ok(Some(Searching { objective, search, place: Place { weights, value } }))
    }

    /// An iteration: what the network measures after it, and whether it was the last. If it fails, the weights are as they
    /// were.
    pub(super) fn iterate(&mut self, predictions: bool) -> Result<(Measured, bool)> {
        let before = self.place.weights.clone();
        let progress = self.search.iterate(&mut self.objective, &mut self.place);
        let progress = match progress {
            Ok(progress) => progress,
            Err(error) => {
                self.objective.put(&before)?;
                return Err(error);
            }
        };
        self.objective.put(&self.place.weights)?;
        Ok((self.objective.measure(predictions)?, progress == Progress::Converged))
    }
}
