//! Optimisers whose direction is not the gradient's: limited-memory BFGS and Newton's, batch by batch.

use neurenix::{
    nn::Parameter,
    phynexus::{Tensor, gradient::Gradients},
};

use super::{
    methods::{
        DAMPING, MEMORY, Memory, check_size, dot, flattened, second_derivatives, solve, sum_of_magnitudes,
    },
    step::refused,
};
use crate::{NetworkError, Optimizer, OptimizerType, Result, convert};

/// Turns gradients into directions, which are then gone along by the learning rate.
pub(super) struct Direction {
    parameters: Vec<Parameter>,
    weight_decay: f64,
    gradient_clip: Option<f64>,
    kind: Kind,
}

enum Kind {
    /// The pairs, and weights and gradient of the step before.
    Lbfgs(Memory, Option<(Vec<f64>, Vec<f64>)>),
    /// What is added to the diagonal of the second derivatives.
    Newton(f64),
}

/// Beyond this damping a step is as good as none.
const MOST_DAMPING: f64 = 1e16;

impl Direction {
    /// Of an optimiser that has one of its own, for these weights.
    ///
    /// # Errors
    /// If there are too many weights for it.
    pub(super) fn of(optimizer: &Optimizer, parameters: &[Parameter]) -> Result<Option<Direction>> {
        let config = optimizer.config();
        let kind = match optimizer.optimizer_type() {
            OptimizerType::LBFGS => Kind::Lbfgs(Memory::new(config.memory_size.unwrap_or(MEMORY)), None),
            OptimizerType::Newton => {
                check_size("Newton", parameters.iter().map(|p| p.tensor().len()).sum())?;
                Kind::Newton(config.damping.unwrap_or(DAMPING))
            }
            _ => return Ok(None),
        };
        let (weight_decay, gradient_clip) = (config.weight_decay.unwrap_or(0.0), config.gradient_clip);
        Ok(Some(Direction { parameters: parameters.to_vec(), weight_decay, gradient_clip, kind }))
    }

    /// True if it needs the loss's second derivatives, so its graph.
    pub(super) fn is_newton(&self) -> bool {
        matches!(self.kind, Kind::Newton(_))
    }

    /// Newton's direction from the loss: gradient and second derivatives, with what the weight decay adds to both.
    pub(super) fn of_loss(&mut self, total: &Tensor) -> Result<Gradients> {
        let Kind::Newton(damping) = self.kind else {
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
            // Where the loss does not curve upwards in all directions, it is damped until it does.
            added = (10.0 * added).max(1e-12);
            if added > MOST_DAMPING {
                let message = "the second derivatives of the loss are not finite, or too large: lower the learning rate, or scale the data";
                return Err(NetworkError::numerical(message));
            }
        }
    }

    /// Limited-memory BFGS's direction from gradients.
    pub(super) fn of_gradients(&mut self, gradients: &Gradients) -> Result<Gradients> {
        let weights = self.weights()?;
        let own = self.parameters.iter().map(|parameter| {
            let leaf = parameter.tensor();
            match gradients.get(&leaf) {
                Some(gradient) => Ok(gradient.clone()),
                None => Ok(leaf.detach()?.zeros_like()?),
            }
        });
        let gradient = flattened(own)?;
        if !dot(&gradient, &gradient).is_finite() {
            return Err(refused(gradient.iter().all(|slope| slope.is_finite())));
        }
        let gradient = self.decayed_and_clipped(&weights, gradient);
        let Kind::Lbfgs(memory, before) = &mut self.kind else {
            return Err(NetworkError::computation("Newton's direction does not come from gradients"));
        };
        let minus = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
        if let Some((old_weights, old_gradient)) = before.take() {
            memory.push(minus(&weights, &old_weights), minus(&gradient, &old_gradient));
        }
        let mut direction = memory.inverse_times(&gradient);
        if memory.is_empty() {
            // Nothing is known of the curvature: no weight moves by more than the learning rate.
            let scale = (1.0 / sum_of_magnitudes(&gradient)).min(1.0);
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

    /// Numbers in the places of the weights' gradients.
    fn as_gradients(&self, numbers: &[f64]) -> Result<Gradients> {
        let (mut rest, mut leaves) = (numbers, Vec::with_capacity(self.parameters.len()));
        for parameter in &self.parameters {
            let leaf = parameter.leaf()?;
            let (own, after) = rest.split_at(leaf.len());
            rest = after;
            leaf.set_grad(Some(convert::tensor(own, leaf.shape(), leaf.dtype(), leaf.device())?));
            leaves.push(leaf);
        }
        Ok(Gradients::take_from(&leaves.iter().collect::<Vec<_>>()))
    }
}
