//! One step: forwards, backwards, update; all of it or nothing.

use std::cell::RefCell;

use neurenix::{
    nn::Parameter,
    optim::{Optimizer, clip_gradient_norm, gradient_norm},
    phynexus::{DType, Tensor, gradient::Gradients, tensor::Generator},
};

use super::{RegularizationConfig, direction::Direction};
use crate::{
    LossConfig, Network, NetworkError, Result, convert,
    network::{all_finite, put},
};

/// What a step needs besides the rows.
pub(crate) struct Stepper<'a> {
    pub(crate) network: &'a Network,
    pub(crate) loss: &'a LossConfig,
    pub(crate) regularization: &'a RegularizationConfig,
    pub(crate) gradient_clip: Option<f64>,
    /// The network in `bfloat16`, with mixed precision.
    pub(crate) twin: Option<Network>,
    /// Random numbers of the configuration's dropout.
    pub(crate) generator: &'a Generator,
    /// The optimiser's direction, if that is not the gradient's.
    pub(crate) direction: RefCell<Option<Direction>>,
    /// Whether somebody measures the outputs.
    pub(crate) predicts: bool,
}

/// A batch on the device.
pub(crate) struct Batch {
    pub(crate) inputs: Tensor,
    pub(crate) targets: Tensor,
    /// What its rows count in a mean: their number, or the sum of their classes' weights.
    pub(crate) mass: f64,
}

/// What a step measured.
pub(crate) struct Measured {
    /// The mean loss over the rows, without what regularisation adds.
    pub(crate) loss: f64,
    /// The network's outputs, row by row; empty if nobody measures them.
    pub(crate) predictions: Vec<f64>,
}

/// A forward pass: the loss with and without what regularisation adds, and predictions if they are measured.
pub(crate) struct Pass {
    pub(crate) total: Tensor,
    loss: Tensor,
    predictions: Option<Tensor>,
}

impl Pass {
    /// The predictions as numbers.
    fn outputs(&self) -> Result<Vec<f64>> {
        self.predictions.as_ref().map_or(Ok(Vec::new()), convert::values)
    }
}

impl Stepper<'_> {
    /// A step over the batches of one update. If it fails, or a loss is not finite, weights and running statistics are as
    /// they were. Gradients are looked at where they are clipped or summed, before the step.
    pub(crate) fn step(&self, batches: &[Batch], optimizer: &mut Optimizer) -> Result<Measured> {
        let buffers = self.network.buffers();
        let before: Vec<Tensor> = buffers.iter().map(Parameter::tensor).collect();
        let result = self.attempt(batches, optimizer);
        if result.is_err() {
            optimizer.parameters().for_each(|parameter| parameter.tensor().set_grad(None));
            for (buffer, value) in buffers.iter().zip(before) {
                buffer.set(value)?;
            }
            if let Ok(false) = self.network.is_finite() {
                return Err(lost());
            }
        }
        result
    }

    fn attempt(&self, batches: &[Batch], optimizer: &mut Optimizer) -> Result<Measured> {
        let measured = match (batches, &self.twin) {
            ([batch], None) => {
                let pass = self.forward(self.network, batch)?;
                let (loss, gradients) = self.directed(&pass)?;
                let buffers: Vec<Tensor> = self.network.buffers().iter().map(Parameter::tensor).collect();
                let also: Vec<&Tensor> = pass.predictions.iter().chain(&buffers).collect();
                optimizer.step(gradients, &also)?;
                Measured { loss, predictions: pass.outputs()? }
            }
            _ => self.accumulated(batches, optimizer)?,
        };
        self.regularization.limit_weights(self.network)?;
        Ok(measured)
    }

    /// The loss of a batch, and what the optimiser goes along.
    fn directed(&self, pass: &Pass) -> Result<(f64, Gradients)> {
        let mut direction = self.direction.borrow_mut();
        if let Some(direction) = direction.as_mut().filter(|direction| direction.is_newton()) {
            let loss = self.value(pass)?;
            return Ok((loss, direction.of_loss(&pass.total)?));
        }
        let gradients = pass.total.leaf_gradients()?;
        let norm = self.clipped_norm(direction.as_ref(), &gradients)?;
        let also: Vec<Tensor> = match &norm {
            Some(norm) => gradients.iter().chain([norm]).cloned().collect(),
            None => Vec::new(),
        };
        self.settle(pass, &also)?;
        // The optimiser overwrites what nobody else holds.
        drop(also);
        let loss = self.value(pass)?;
        if norm.is_some() {
            check_gradients(&gradients, norm.as_ref())?;
        }
        Ok((loss, self.turned(direction.as_mut(), gradients)?))
    }

    /// The norm that gradients are clipped by, if they are: a direction is clipped by itself.
    fn clipped_norm(&self, direction: Option<&Direction>, gradients: &Gradients) -> Result<Option<Tensor>> {
        match (self.gradient_clip, direction) {
            (Some(_), None) => Ok(gradient_norm(gradients)?),
            _ => Ok(None),
        }
    }

    /// What the optimiser goes along, given gradients.
    fn turned(&self, direction: Option<&mut Direction>, gradients: Gradients) -> Result<Gradients> {
        match direction {
            Some(direction) => direction.of_gradients(&gradients),
            None => self.clipped(gradients),
        }
    }

    /// Batch by batch, so that memory holds one forward pass at a time.
    fn accumulated(&self, batches: &[Batch], optimizer: &mut Optimizer) -> Result<Measured> {
        let total: f64 = batches.iter().map(|batch| batch.mass).sum();
        let mut measured = Measured { loss: 0.0, predictions: Vec::new() };
        let leaves: Vec<Tensor> =
            optimizer.parameters().map(Parameter::leaf).collect::<neurenix::Result<_>>()?;
        for batch in batches {
            let share = share(batch.mass, total);
            let network = self.twin.as_ref().unwrap_or(self.network);
            if let Some(twin) = &self.twin {
                twin.take_state(self.network)?;
            }
            let pass = self.forward(network, batch)?;
            pass.total.mul_scalar(share)?.backward()?;
            if let Some(twin) = &self.twin {
                self.take_gradients(twin)?;
            }
            let gradients: Vec<Tensor> = leaves.iter().filter_map(Tensor::grad).collect();
            self.settle(&pass, &gradients)?;
            measured.loss += self.value(&pass)? * share;
            measured.predictions.extend(pass.outputs()?);
        }
        let gradients = Gradients::take_from(&leaves.iter().collect::<Vec<_>>());
        // The optimiser overwrites what nobody else holds.
        drop(leaves);
        let mut direction = self.direction.borrow_mut();
        let norm = self.clipped_norm(direction.as_ref(), &gradients)?;
        check_gradients(&gradients, norm.as_ref())?;
        let gradients = self.turned(direction.as_mut(), gradients)?;
        optimizer.step(gradients, &[])?;
        Ok(measured)
    }

    /// Adds the twin's gradients to those of the network's weights, and takes its running statistics.
    fn take_gradients(&self, twin: &Network) -> Result<()> {
        for ((_, own), (_, theirs)) in self.network.weights().into_iter().zip(twin.weights()) {
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
        let pairs = self.network.buffers().into_iter().zip(twin.buffers());
        let values = pairs.map(|(own, theirs)| {
            let dtype = own.tensor().dtype();
            Ok((own, theirs.tensor().to_dtype(dtype)?))
        });
        put(values.collect::<Result<Vec<_>>>()?)
    }

    /// The loss of a batch.
    pub(super) fn forward(&self, network: &Network, batch: &Batch) -> Result<Pass> {
        let (targets, dtype) = (&batch.targets, self.network.dtype());
        let needs_slope = self.regularization.gradient_penalty.is_some();
        // Integers for an embedding stay as they are: bfloat16 does not hold those above 256.
        let inputs = match network.vocabulary() {
            Some(_) => batch.inputs.clone(),
            None => batch.inputs.to_dtype(network.dtype())?,
        };
        let inputs = if needs_slope { inputs.with_grad()? } else { inputs };
        let dropout = self.regularization.dropout_rate.map(|rate| (rate, self.generator));
        let takes_scores = network.loss_takes_scores(self.loss);
        let scores = network.training_outputs(&inputs, !takes_scores, dropout)?.to_dtype(dtype)?;
        let loss = network.loss_of(self.loss, &scores, targets)?;
        let mut total = loss.clone();
        let penalty = self.regularization.of_inputs(&scores, &inputs)?;
        let weights = self.regularization.of_weights(self.network)?;
        for term in penalty.into_iter().chain(weights) {
            total = total.add(&term.to_dtype(dtype)?)?;
        }
        let outputs = || -> Result<Tensor> {
            let scores = scores.detach()?;
            if takes_scores { network.last_activation(&scores) } else { Ok(scores) }
        };
        let predictions = self.predicts.then(outputs).transpose()?;
        Ok(Pass { total, loss, predictions })
    }

    /// Computes the losses, predictions, gradients and what the pass left pending in running statistics.
    fn settle(&self, pass: &Pass, gradients: &[Tensor]) -> Result<()> {
        if gradients.is_empty() {
            return Ok(Tensor::evaluate_all(&[&pass.loss, &pass.total])?);
        }
        let all: Vec<&Tensor> =
            [&pass.loss, &pass.total].into_iter().chain(&pass.predictions).chain(gradients).collect();
        self.network.settle(&all)
    }

    /// The loss, if it is finite with all that is added.
    fn value(&self, pass: &Pass) -> Result<f64> {
        let (loss, total) = (convert::values(&pass.loss)?[0], convert::values(&pass.total)?[0]);
        if loss.is_finite() && total.is_finite() {
            return Ok(loss);
        }
        let message = format!(
            "the loss is {loss} ({total} with regularisation); the step was not taken: lower the learning rate, clip gradients, or scale the data"
        );
        Err(NetworkError::numerical(message))
    }

    fn clipped(&self, gradients: Gradients) -> Result<Gradients> {
        match self.gradient_clip {
            Some(limit) => Ok(clip_gradient_norm(gradients, limit)?),
            None => Ok(gradients),
        }
    }
}

/// Refuses gradients that are not finite, before they are gone along; and finite ones whose norm is needed and is not.
pub(super) fn check_gradients(gradients: &Gradients, norm: Option<&Tensor>) -> Result<()> {
    let norm = norm.map(convert::values).transpose()?;
    match norm {
        Some(norm) if norm[0].is_finite() => Ok(()),
        _ if !all_finite(gradients.iter())? => Err(refused(false)),
        Some(_) => Err(refused(true)),
        None => Ok(()),
    }
}

/// What is said of gradients that are not finite, or are but have no finite norm.
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

/// What is said where a step has destroyed the weights.
pub(super) fn lost() -> NetworkError {
    let message = "the weights are no longer finite, since a step's gradients were not: load a checkpoint (checkpoint_frequency) or build the network anew, and lower the learning rate, scale the data, or set gradient_clip, with which such a step is refused";
    NetworkError::numerical(message)
}

/// The share of a part in a whole; none where the whole counts nothing.
pub(crate) fn share(mass: f64, total: f64) -> f64 {
    if total > 0.0 { mass / total } else { 0.0 }
}

/// The type that mixed precision computes in.
pub(crate) const HALF: DType = DType::BF16;
