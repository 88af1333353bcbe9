//! The forward pass of training: a network, its loss, and the penalties of regularisation.

use neurenix::{
    phynexus::{Tensor, tensor::Generator},
    train::Pass,
};

use super::RegularizationConfig;
use crate::{LossConfig, Network, Result};

/// A network and what it minimises.
pub(crate) struct Model<'a> {
    pub(crate) network: &'a Network,
    pub(crate) loss: &'a LossConfig,
    pub(crate) regularization: &'a RegularizationConfig,
    /// A copy of the network in `bfloat16`, for mixed precision.
    pub(crate) twin: Option<Network>,
    /// Random numbers for the configuration's dropout.
    pub(crate) generator: &'a Generator,
    /// Whether the outputs are measured.
    pub(crate) predicts: bool,
}

/// A batch on the device.
pub(crate) struct Batch {
    /// Its inputs and targets.
    pub(crate) data: [Tensor; 2],
    /// The weight of its rows in a mean: their number, or the sum of their classes' weights.
    pub(crate) mass: f64,
    /// The number and the weight of those that count here: of several workers, each has its part.
    pub(crate) own: (usize, f64),
}

/// Measurements on training rows.
pub(crate) struct Measured {
    /// The mean loss over the rows, without penalties.
    pub(crate) loss: f64,
    /// The network's outputs, row by row; empty if they are not measured.
    pub(crate) predictions: Vec<f64>,
}

impl Model<'_> {
    /// The loss of a batch's inputs and targets, with and without penalties. Measures the outputs if they are wanted.
    pub(crate) fn forward(&self, [inputs, targets]: &[Tensor; 2]) -> Result<Pass> {
        let dtype = self.network.dtype();
        let network = self.twin.as_ref().unwrap_or(self.network);
        if let Some(twin) = &self.twin {
            twin.take_state(self.network)?;
        }
        // Integers for an embedding keep their type: bfloat16 cannot represent all integers above 256.
        let inputs = match network.vocabulary() {
            Some(_) => inputs.clone(),
            None => inputs.to_dtype(network.dtype())?,
        };
        let needs_gradient = self.regularization.gradient_penalty.is_some();
        let inputs = if needs_gradient { inputs.with_grad()? } else { inputs };
        let dropout = self.regularization.dropout_rate.map(|rate| (rate, self.generator));
        let takes_scores = network.loss_takes_scores(self.loss);
        let scores = network.training_outputs(&inputs, !takes_scores, dropout)?.to_dtype(dtype)?;
        let loss = network.loss_of(self.loss, &scores, targets)?;
        let penalty = self.regularization.of_inputs(&scores, &inputs)?;
        let weights = self.regularization.of_weights(self.network)?;
        let mut penalized = None;
        for term in penalty.into_iter().chain(weights) {
            penalized = Some(penalized.as_ref().unwrap_or(&loss).add(&term.to_dtype(dtype)?)?);
        }
        let outputs = || -> Result<Tensor> {
            let scores = scores.detach()?;
            if takes_scores { network.last_activation(&scores) } else { Ok(scores) }
        };
        let measured = self.predicts.then(outputs).transpose()?;
        Ok(Pass { loss, penalized, measured })
    }
}
