//! What rnn adds to the framework's training step: mixed precision, several workers, directions other than the gradient.

use neurenix::{
    nn::Parameter,
    optim::Optimizer,
    phynexus::{Tensor, gradient::Gradients},
    train::{NotFinite, Pass, Recordings, Step},
};

use super::{forward::Batch, session::Session};
use crate::{
    Network, NetworkError, Result, convert,
    network::{all_finite, put},
};

impl Step for Session<'_, '_, '_> {
    type Error = NetworkError;
    type Batch = Batch;

    fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.optimizer
    }

    fn buffers(&self) -> &[Parameter] {
        &self.buffers
    }

    fn weight(&self, batch: &Batch) -> f64 {
        batch.mass
    }

    /// The twin's gradients are added to the network's.
    fn accumulates(&self) -> bool {
        self.model.twin.is_some()
    }

    fn recordings(&self, _: &Self::Batch) -> Option<Recordings> {
        self.recordings.clone()
    }

    fn upload(&self, batch: &Batch) -> Result<[Tensor; 2]> {
        Ok(batch.data.clone())
    }

    fn forward(&mut self, batch: &Batch, data: &[Tensor; 2]) -> Result<Pass> {
        let pass = self.model.forward(data)?;
        match &self.run.worker {
            Some(worker) => worker.weighted(pass, batch),
            None => Ok(pass),
        }
    }

    fn gradients(&mut self, pass: &Pass) -> Result<Gradients> {
        let newton = self.direction.as_mut().filter(|direction| direction.is_newton());
        if let Some(newton) = newton
            && convert::values(pass.minimized())?[0].is_finite()
        {
            return newton.of_loss(pass.minimized());
        }
        Ok(pass.minimized().leaf_gradients()?)
    }

    fn backward(&mut self, loss: &Tensor) -> Result<()> {
        loss.backward()?;
        self.model.twin.as_ref().map_or(Ok(()), |twin| take_gradients(self.model.network, twin))
    }

    fn direction(&mut self, gradients: Gradients) -> Result<Gradients> {
        let config = self.run.config;
        let are_summed = config.gradient_accumulation_steps > 1 || config.mixed_precision;
        match &mut self.direction {
            Some(direction) if direction.is_newton() => Ok(gradients),
            Some(direction) => direction.of_gradients(&gradients),
            // Clipping has checked them already. Other gradients are not checked, for speed.
            None if self.clip_norm.is_none()
                && (are_summed || self.run.worker.is_some())
                && !all_finite(gradients.iter())? =>
            {
                Err(refused(false))
            }
            None => Ok(gradients),
        }
    }

    fn read(&mut self, batch: &Batch, loss: f64, measured: Option<Tensor>) -> Result<()> {
        self.done.loss_sum += loss * batch.mass;
        self.done.mass += batch.mass;
        if let Some(predictions) = measured {
            self.done.predictions.extend(convert::values(&predictions)?);
        }
        Ok(())
    }

    fn refusal(&mut self, _: &[Batch], reason: NotFinite) -> NetworkError {
        match reason {
            NotFinite::Loss(loss, penalized) => {
                // What a worker minimises is its part.
                let penalized = if self.run.worker.is_some() { loss } else { penalized };
                NetworkError::numerical(format!(
                    "the loss is {loss} ({penalized} with regularisation); the step was not taken: lower the learning rate, clip gradients, or scale the data"
                ))
            }
            NotFinite::Norm(gradients) => all_finite(gradients.iter()).map_or_else(|error| error, refused),
        }
    }
}

/// Adds the twin's gradients to those of the network's weights, and takes its running statistics.
fn take_gradients(network: &Network, twin: &Network) -> Result<()> {
    for ((_, own), (_, theirs)) in network.weights().into_iter().zip(twin.weights()) {
        let leaf = theirs.tensor();
        let Some(gradient) = leaf.grad() else { continue };
        leaf.set_grad(None);
        let own = own.leaf()?;
        let gradient = gradient.to_dtype(own.dtype())?;
        own.set_grad(Some(match own.grad() {
            Some(before) => before.add(&gradient)?,
            None => gradient,
        }));
    }
    let pairs = network.buffers().into_iter().zip(twin.buffers());
    let values = pairs.map(|(own, theirs)| {
        let dtype = own.tensor().dtype();
        Ok((own, theirs.tensor().to_dtype(dtype)?))
    });
    put(values.collect::<Result<Vec<_>>>()?)
}

/// The error for gradients that are not finite, or whose norm is not.
pub(super) fn refused(are_finite: bool) -> NetworkError {
    let message = match are_finite {
        false => {
            "the gradients are not finite; the step was not taken: lower the learning rate, or scale the data"
        }
        true => {
            "the gradients are finite, but too large to be squared for their norm, which gradient_clip and LBFGS need; the step was not taken: scale the data, or choose a wider precision"
        }
    };
    NetworkError::numerical(message)
}

/// The error for a step that has destroyed the weights.
pub(super) fn lost() -> NetworkError {
    let message = "the weights are no longer finite, because a step's gradients were not: load a checkpoint (checkpoint_frequency) or rebuild the network, and lower the learning rate, scale the data, or set gradient_clip, which refuses such steps";
    NetworkError::numerical(message)
}
