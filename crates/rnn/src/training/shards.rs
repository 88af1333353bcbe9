//! A forward and backward pass whose rows are divided among devices.

use std::thread;

use neurenix::{nn::Parameter, phynexus::Tensor, train::Pass};

use super::forward::{Batch, Model};
use crate::{Network, NetworkError, Result, convert, device, network::put};

/// Copies of a network on several devices.
pub(crate) struct Shards {
    copies: Vec<Network>,
}

/// A worker's results for its rows.
struct Part {
    loss: f64,
    predictions: Vec<f64>,
    /// A gradient for each weight, in the order of the network's weights.
    gradients: Vec<Option<Vec<f64>>>,
}

impl Shards {
    /// A copy for each device. Each has its own dropout seed, derived from `seed`.
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

    /// Divides the rows of a batch among the copies, and sums their losses and gradients: the gradients are put on the leaves
    /// of the model's network.
    pub(crate) fn forward(&self, model: &Model<'_>, batch: &Batch) -> Result<Pass> {
        let network = model.network;
        let rows = batch.data[0].shape()[0];
        let least = if network.needs_rows() { 2 } else { 1 };
        let parts = self.copies.len().min(rows / least).max(1);
        let work = |copy: &Network, place: usize| -> Result<Part> {
            let (start, end) = (rows * place / parts, rows * (place + 1) / parts);
            let count = end - start;
            copy.take_state(network)?;
            copy.set_training(true);
            let part = |tensor: &Tensor| -> Result<Tensor> {
                Ok(tensor.narrow(0, start, count)?.to_device(copy.engine_device())?)
            };
            let [inputs, targets] = [part(&batch.data[0])?, part(&batch.data[1])?];
            let mass = match model.loss.weighs_rows() {
                true => model.loss.mass(count, convert::values(&targets)?.into_iter()),
                false => count as f64,
            };
            let share = if batch.mass > 0.0 { mass / batch.mass } else { 0.0 };
            let model = Model { network: copy, twin: None, ..*model };
            let Pass { loss, measured, .. } = model.forward(&[inputs, targets])?;
            let gradients = loss.mul_scalar(share)?.leaf_gradients()?;
            copy.settle(&gradients.iter().chain(&measured).chain([&loss]).collect::<Vec<_>>())?;
            let own = |(_, weight): (String, Parameter)| -> Result<Option<Vec<f64>>> {
                gradients.get(&weight.tensor()).map(convert::values).transpose()
            };
            Ok(Part {
                loss: convert::values(&loss)?[0] * share,
                predictions: measured.as_ref().map_or(Ok(Vec::new()), convert::values)?,
                gradients: copy.weights().into_iter().map(own).collect::<Result<_>>()?,
            })
        };
        let made: Vec<Part> = thread::scope(|scope| {
            let refused = |error: std::io::Error| {
                NetworkError::training(format!("cannot start a worker's thread ({error}): use fewer workers"))
            };
            let begin = |(copy, place)| {
                thread::Builder::new().spawn_scoped(scope, move || work(copy, place)).map_err(refused)
            };
            let workers = self.copies.iter().zip(0..parts).map(begin).collect::<Result<Vec<_>>>()?;
            let stopped = || NetworkError::training("a worker stopped");
            workers.into_iter().map(|worker| worker.join().map_err(|_| stopped())?).collect::<Result<_>>()
        })?;
        let (mut loss, mut predictions) = (0.0, Vec::new());
        let weights = network.weights();
        let mut sums: Vec<Option<Vec<f64>>> = vec![None; weights.len()];
        for part in made {
            loss += part.loss;
            predictions.extend(part.predictions);
            for (sum, gradient) in sums.iter_mut().zip(part.gradients) {
                match (sum, gradient) {
                    (Some(sum), Some(gradient)) => sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += g),
                    (sum, Some(gradient)) => *sum = Some(gradient),
                    _ => {}
                }
            }
        }
        for ((_, weight), sum) in weights.into_iter().zip(sums) {
            let (leaf, Some(sum)) = (weight.leaf()?, sum) else { continue };
            leaf.set_grad(Some(convert::tensor(&sum, leaf.shape(), leaf.dtype(), leaf.device())?));
        }
        // The running statistics are those of the first worker.
        let pairs = network.buffers().into_iter().zip(self.copies[0].buffers());
        let values =
            pairs.map(|(own, theirs)| Ok((own, theirs.tensor().to_device(network.engine_device())?)));
        put(values.collect::<Result<Vec<_>>>()?)?;
        // They are read on the host, in the precision of the sums.
        let host = device::cpu()?;
        let loss = Tensor::scalar(loss, host)?;
        let predicted = || Tensor::from_slice(&predictions, &[predictions.len()], host);
        Ok(Pass { loss, penalized: None, measured: model.predicts.then(predicted).transpose()? })
    }
}
