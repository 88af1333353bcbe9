//! Optimisers that do not follow the gradient: limited-memory BFGS and Newton's method, batch by batch.

use neurenix::{
    nn::Parameter,
    phynexus::{Tensor, gradient::Gradients},
};

use super::{
    methods::{
        CorrectionPairs, DAMPING, MEMORY_SIZE, MOST_DAMPING, check_size, difference, dot, first_step,
        flattened, gradient_of, second_derivatives, solve, split,
    },
    step::refused,
};
use crate::{NetworkError, Optimizer, OptimizerType, Result};

/// Turns gradients into directions. The optimiser's step along a direction is scaled by the learning rate.
pub(super) struct Direction {
    parameters: Vec<Parameter>,
    weight_decay: f64,
    gradient_clip: Option<f64>,
    method: Method,
}

enum Method {
    /// The pairs, and the weights and gradient of the previous step.
    Lbfgs(CorrectionPairs, Option<(Vec<f64>, Vec<f64>)>),
    /// The damping that is added to the diagonal of the second derivatives.
    Newton(f64),
}

impl Direction {
    /// The direction of an optimiser that has its own, for these weights. An error if there are too many weights for
    /// it.
    pub(super) fn of(optimizer: &Optimizer, parameters: &[Parameter]) -> Result<Option<Direction>> {
        let config = optimizer.config();
        let method = match optimizer.optimizer_type() {
            OptimizerType::LBFGS => {
                Method::Lbfgs(CorrectionPairs::new(config.memory_size.unwrap_or(MEMORY_SIZE)), None)
            }
            OptimizerType::Newton => {
                check_size("Newton", parameters.iter().map(|p| p.tensor().len()).sum())?;
                Method::Newton(config.damping.unwrap_or(DAMPING))
            }
            _ => return Ok(None),
        };
        let (weight_decay, gradient_clip) = (config.weight_decay.unwrap_or(0.0), config.gradient_clip);
        Ok(Some(Direction { parameters: parameters.to_vec(), weight_decay, gradient_clip, method }))
    }

    /// True if it needs second derivatives, and so the graph of the loss.
    pub(super) fn is_newton(&self) -> bool {
        matches!(self.method, Method::Newton(_))
    }

    /// Newton's direction from the loss: its gradient and second derivatives, both with weight decay.
    pub(super) fn of_loss(&mut self, total: &Tensor) -> Result<Gradients> {
        let Method::Newton(damping) = self.method else {
            return Err(NetworkError::computation("only Newton's direction comes from the loss itself"));
        };
        let leaves: Vec<Tensor> =
            self.parameters.iter().map(Parameter::leaf).collect::<neurenix::Result<_>>()?;
        let (gradient, matrix) = second_derivatives(total, &leaves)?;
        let gradient = self.decayed_and_clipped(&self.weights()?, gradient);
        let mut added = damping + self.weight_decay;
        loop {
            if let Some(direction) = solve(&matrix, &vec![added; gradient.len()], &gradient) {
                return self.as_gradients(&direction);
            }
            // If the matrix is not positive definite, increase the damping until it is.
            added = (10.0 * added).max(1e-12);
            if added > MOST_DAMPING {
                let message = "the second derivatives of the loss are not finite, or too large: lower the learning rate, or scale the data";
                return Err(NetworkError::numerical(message));
            }
        }
    }

    /// The direction of limited-memory BFGS from gradients.
    pub(super) fn of_gradients(&mut self, gradients: &Gradients) -> Result<Gradients> {
        let weights = self.weights()?;
        let gradient = flattened(self.parameters.iter().map(|parameter| gradient_of(gradients, parameter)))?;
        if !dot(&gradient, &gradient).is_finite() {
            return Err(refused(gradient.iter().all(|derivative| derivative.is_finite())));
        }
        let gradient = self.decayed_and_clipped(&weights, gradient);
        let Method::Lbfgs(memory, before) = &mut self.method else {
            return Err(NetworkError::computation("Newton's direction does not come from gradients"));
        };
        if let Some((old_weights, old_gradient)) = before.take() {
            memory.push(difference(&weights, &old_weights), difference(&gradient, &old_gradient));
        }
        let mut direction = memory.inverse_times(&gradient);
        if memory.is_empty() {
            let scale = first_step(&gradient);
            direction.iter_mut().for_each(|x| *x *= scale);
        }
        *before = Some((weights, gradient));
        self.as_gradients(&direction)
    }

    fn weights(&self) -> Result<Vec<f64>> {
        flattened(self.parameters.iter().map(|parameter| Ok(parameter.tensor())))
    }

    fn decayed_and_clipped(&self, weights: &[f64], mut gradient: Vec<f64>) -> Vec<f64> {
        if let Some(limit) = self.gradient_clip {
            let scale = (limit / (dot(&gradient, &gradient).sqrt() + 1e-6)).min(1.0);
            gradient.iter_mut().for_each(|x| *x *= scale);
        }
        gradient.iter_mut().zip(weights).for_each(|(x, weight)| *x += self.weight_decay * weight);
        gradient
    }

    /// A vector as gradients of the weights.
    fn as_gradients(&self, numbers: &[f64]) -> Result<Gradients> {
        let mut leaves = Vec::with_capacity(self.parameters.len());
        for (parameter, own) in split(&self.parameters, numbers) {
            let leaf = parameter.leaf()?;
            leaf.set_grad(Some(own?));
            leaves.push(leaf);
        }
        Ok(Gradients::take_from(&leaves.iter().collect::<Vec<_>>()))
    }
}
