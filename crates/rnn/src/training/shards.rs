//! A step whose rows are divided among devices.

use std::thread;

use neurenix::{
    nn::Parameter,
    optim::{Optimizer, clip_gradient_norm, gradient_norm},
    phynexus::{Tensor, gradient::Gradients},
};

use super::step::{Batch, Measured, check_gradients, share};
use crate::{LossConfig, Network, NetworkError, Result, convert};

/// Copies of a network on several devices.
pub(crate) struct Shards {
    copies: Vec<Network>,
}

/// What a worker made of its rows.
struct Part {
    loss: f64,
    predictions: Vec<f64>,
    /// A gradient for each weight, in the order of the network's.
    gradients: Vec<Option<Vec<f64>>>,
}

impl Shards {
    /// A copy for each device, whose dropouts follow from the seed, and differ from the others'.
    pub(crate) fn new(network: &Network, devices: &[String], seed: u64) -> Result<Shards> {
        let copy = |(place, device): (usize, &String)| {
            let copy = network.worker_on(device, place as u64)?;
            copy.seed_dropouts(seed, place as u64 + 1);
            Ok(copy)
        };
        Ok(Shards { copies: devices.iter().enumerate().map(copy).collect::<Result<_>>()? })
    }

    /// The devices' names.
    pub(crate) fn place(&self) -> String {
        self.copies.iter().map(Network::device).collect::<Vec<_>>().join(", ")
    }

    /// One update of the network from rows that are divided among the copies.
    pub(crate) fn step(
        &self,
        network: &Network,
        loss: &LossConfig,
        batch: &Batch,
        clip: Option<f64>,
        optimizer: &mut Optimizer,
    ) -> Result<Measured> {
        let rows = batch.inputs.shape()[0];
        let least = if network.needs_rows() { 2 } else { 1 };
        let parts = self.copies.len().min(rows / least).max(1);
        let total = batch.mass;
        let work = |copy: &Network, place: usize| -> Result<Part> {
            let (start, end) = (rows * place / parts, rows * (place + 1) / parts);
            let count = end - start;
            copy.take_state(network)?;
            copy.set_training(true);
            let part = |tensor: &Tensor| -> Result<Tensor> {
                Ok(tensor.narrow(0, start, count)?.to_device(copy.engine_device())?)
            };
            let (inputs, targets) = (part(&batch.inputs)?, part(&batch.targets)?);
            let takes_scores = copy.loss_takes_scores(loss);
            let scores = copy.outputs(&inputs, !takes_scores)?;
            let value = copy.loss_of(loss, &scores, &targets)?;
            let mass = match loss.weighs_rows() {
                true => loss.mass(count, convert::values(&targets)?.into_iter()),
                false => count as f64,
            };
            let own_share = share(mass, total);
            let gradients = value.mul_scalar(own_share)?.leaf_gradients()?;
            let own = |(_, weight): (String, Parameter)| -> Result<Option<Vec<f64>>> {
                gradients.get(&weight.tensor()).map(convert::values).transpose()
            };
            let all: Vec<&Tensor> = gradients.iter().chain([&value]).collect();
            copy.settle(&all)?;
            let scores = scores.detach()?;
            let predictions = if takes_scores { copy.last_activation(&scores)? } else { scores };
            Ok(Part {
                loss: convert::values(&value)?[0] * own_share,
                predictions: convert::values(&predictions)?,
                gradients: copy.weights().into_iter().map(own).collect::<Result<_>>()?,
            })
        };
        let made: Vec<Part> = thread::scope(|scope| {
            let refused = |error: std::io::Error| {
                NetworkError::training(format!("no thread for a worker ({error}): use fewer workers"))
            };
            let begin = |(copy, place)| {
                thread::Builder::new().spawn_scoped(scope, move || work(copy, place)).map_err(refused)
            };
            let workers = self.copies.iter().zip(0..parts).map(begin).collect::<Result<Vec<_>>>()?;
            let stopped = || NetworkError::training("a worker stopped");
            workers.into_iter().map(|worker| worker.join().map_err(|_| stopped())?).collect::<Result<_>>()
        })?;
        let mut measured = Measured { loss: 0.0, predictions: Vec::new() };
        let weights = network.weights();
        let mut sums: Vec<Option<Vec<f64>>> = weights.iter().map(|_| None).collect();
        for part in made {
            measured.loss += part.loss;
            measured.predictions.extend(part.predictions);
            for (sum, gradient) in sums.iter_mut().zip(part.gradients) {
                match (sum, gradient) {
                    (Some(sum), Some(gradient)) => sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += g),
                    (sum, Some(gradient)) => *sum = Some(gradient),
                    _ => {}
                }
            }
        }
        if !measured.loss.is_finite() {
            let message = format!(
                "the loss is {}; the step was not taken: lower the learning rate, clip gradients, or scale the data",
                measured.loss
            );
            return Err(NetworkError::numerical(message));
        }
        let mut leaves = Vec::new();
        for ((_, weight), sum) in weights.into_iter().zip(sums) {
            let (leaf, Some(sum)) = (weight.leaf()?, sum) else { continue };
            leaf.set_grad(Some(convert::tensor(&sum, leaf.shape(), leaf.dtype(), leaf.device())?));
            leaves.push(leaf);
        }
        let gradients = Gradients::take_from(&leaves.iter().collect::<Vec<_>>());
        drop(leaves);
        let norm = match clip {
            Some(_) => gradient_norm(&gradients)?,
            None => None,
        };
        check_gradients(&gradients, norm.as_ref())?;
        let gradients = match clip {
            Some(limit) => clip_gradient_norm(gradients, limit)?,
            None => gradients,
        };
        optimizer.step(gradients, &[])?;
        // Running statistics are the first worker's.
        let pairs = network.buffers().into_iter().zip(self.copies[0].buffers());
        let values =
            pairs.map(|(own, theirs)| Ok((own, theirs.tensor().to_device(network.engine_device())?)));
        crate::network::put(values.collect::<Result<Vec<_>>>()?)?;
        Ok(measured)
    }
}
