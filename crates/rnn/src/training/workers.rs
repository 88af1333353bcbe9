//! Several workers that train copies of a network together, each on a device with its share of every batch.
//!
//! A worker is a rank of a group of threads, and runs the whole training loop on its copy. Gradients are averaged by
//! collectives, and so all copies take the same steps. The first worker measures, decides and writes checkpoints.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use neurenix::{
    distributed::{DataParallel, DataParallelOptions, Division, broadcast},
    phynexus::{
        distributed::{Group, Transport, threads},
        op::{CollectiveKind, Combine, Loss},
    },
    train::Pass,
};

use super::{
    forward::Batch,
    run::{Epoch, Run},
};
use crate::{Network, NetworkError, Result, TrainingHistory};

/// How long a worker waits for another one: longer than a validation. One that fails leaves, which ends the waits.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The rows and predictions of a worker's epoch.
type Predicted = (Vec<usize>, Vec<f64>);

/// A worker's part in a run.
pub(super) struct Worker<'a> {
    group: Arc<Group>,
    /// What is trained. It takes the state of the first worker's copy.
    network: &'a Network,
    /// The names of all workers' devices.
    devices: &'a str,
    /// What the workers have predicted, by rank.
    predicted: &'a Mutex<Vec<Predicted>>,
}

impl Worker<'_> {
    /// Whether this is the worker that measures and writes files.
    pub(super) fn is_first(&self) -> bool {
        self.group.rank() == 0
    }

    /// The names of all workers' devices.
    pub(super) fn devices(&self) -> &str {
        self.devices
    }

    /// How the rows of a batch are divided among the workers.
    pub(super) fn division(&self) -> Division {
        let least = if self.network.needs_rows() { 2 } else { 1 };
        Division { rank: self.group.rank(), size: self.group.size(), least }
    }

    /// Turns the pass over this worker's rows into its part of the batch's: the loss is that of all rows, and what is
    /// minimised is such that its mean over the workers is the loss.
    pub(super) fn weighted(&self, pass: Pass, batch: &Batch) -> Result<Pass> {
        if self.group.size() == 1 {
            return Ok(pass);
        }
        let (size, (rows, mass)) = (self.group.size() as f64, batch.own);
        let share = if batch.mass > 0.0 { mass / batch.mass } else { 0.0 };
        let weighted = pass.loss.mul_scalar(share * size)?;
        let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
        let loss = weighted.detach()?.collective(sum, &self.group)?.mul_scalar(1.0 / size)?;
        Ok(Pass { loss, penalized: Some(weighted), measured: pass.measured.filter(|_| rows > 0) })
    }

    /// Ends an epoch: gives all copies the first one's weights, which updates on different devices round differently.
    pub(super) fn align(&self, copy: &Network) -> Result<()> {
        if self.group.size() == 1 {
            return Ok(());
        }
        Ok(broadcast(copy.weights().iter().map(|(_, weight)| weight), &self.group)?)
    }

    /// Gives the first worker what all have predicted.
    pub(super) fn gather(&self, done: &mut Epoch) -> Result<()> {
        let predicted = || self.predicted.lock().unwrap_or_else(PoisonError::into_inner);
        predicted()[self.group.rank()] =
            (std::mem::take(&mut done.order), std::mem::take(&mut done.predictions));
        self.group.transport().barrier()?;
        if self.is_first() {
            for (order, predictions) in predicted().iter_mut() {
                done.order.append(order);
                done.predictions.append(predictions);
            }
        }
        Ok(())
    }

    /// The first worker's number, for all.
    pub(super) fn of_first(&self, number: f64) -> Result<f64> {
        let mut bytes = number.to_le_bytes();
        self.group.transport().broadcast(&mut bytes, 0)?;
        Ok(f64::from_le_bytes(bytes))
    }

    /// Gives the trained network the state of the first worker's copy.
    pub(super) fn share<'n>(&'n self, copy: &Network) -> Result<&'n Network> {
        self.network.take_state(copy)?;
        Ok(self.network)
    }
}

/// Trains a run's network by copies on these devices. After an error, the network has the steps before it.
pub(super) fn train(run: &Run<'_>, devices: &[String]) -> Result<TrainingHistory> {
    let network = run.network;
    let copy = |(number, device): (usize, &String)| -> Result<Network> {
        let copy = network.worker_on(device, number as u64)?;
        copy.seed_dropouts(run.seed, number as u64 + 1);
        Ok(copy)
    };
    let copies: Vec<Network> = devices.iter().enumerate().map(copy).collect::<Result<_>>()?;
    let names = copies.iter().map(Network::device).collect::<Vec<_>>().join(", ");
    let predicted = Mutex::new(vec![Predicted::default(); copies.len()]);
    let history = together(threads(copies.len(), PATIENCE), mixed(&copies), |group| {
        let copy = &copies[group.rank()];
        let average = || DataParallel::new(&copy.weights(), group, DataParallelOptions::default());
        // It averages gradients as long as it lives.
        let _gradients = (group.size() > 1).then(average).transpose()?;
        let worker = Worker { group: group.clone(), network, devices: &names, predicted: &predicted };
        run.of_worker(copy, worker).all(&mut [])
    });
    let taken = network.take_state(&copies[0]);
    network.set_training(false);
    let history = history?;
    taken.map(|()| history)
}

/// Why no library has collectives between these copies' devices, if some device of them might try one.
fn mixed(copies: &[Network]) -> Option<String> {
    let family = |copy: &Network| copy.device().split(':').next().unwrap_or_default().to_owned();
    let first = copies.first().map(family)?;
    let other = copies.iter().map(family).find(|other| *other != first)?;
    Some(format!("the workers' devices are of different kinds ({first}, {other})"))
}

/// Runs the ranks of a group, the first one on this thread, and returns the result of that one. As soon as one fails,
/// the others do, and the error is that of the one that failed first.
fn together<T: Send>(
    transports: Vec<Arc<dyn Transport>>,
    host_reason: Option<String>,
    work: impl Fn(&Arc<Group>) -> Result<T> + Sync,
) -> Result<T> {
    let failure = OnceLock::new();
    let rank = |transport: Arc<dyn Transport>| -> Option<T> {
        let group = match &host_reason {
            Some(reason) => Group::open_on_host(transport, reason.clone()),
            None => Group::open(transport),
        };
        let member = Member { group, failure: &failure };
        work(&member.group).map_err(|error| failure.set(error)).ok()
    };
    let result = thread::scope(|scope| {
        let rank = &rank;
        let mut transports = transports.into_iter();
        let first = transports.next();
        let mut others = Vec::with_capacity(transports.len());
        for transport in transports.by_ref() {
            match thread::Builder::new().spawn_scoped(scope, move || rank(transport)) {
                Ok(other) => others.push(other),
                Err(error) => {
                    let message = format!("cannot start a worker's thread ({error}): use fewer workers");
                    let _ = failure.set(NetworkError::training(message));
                    break;
                }
            }
        }
        // A rank whose transport is dropped has ended.
        drop(transports);
        let result = first.filter(|_| failure.get().is_none()).and_then(rank);
        // A panic is the failure of its worker.
        others.into_iter().for_each(|other| drop(other.join()));
        result
    });
    match failure.into_inner() {
        Some(error) => Err(error),
        None => result.ok_or_else(stopped),
    }
}

fn stopped() -> NetworkError {
    NetworkError::training("a worker stopped")
}

/// A rank at work. Leaves the group at its end, also by a panic, so that the others do not wait for it.
struct Member<'a> {
    group: Arc<Group>,
    failure: &'a OnceLock<NetworkError>,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.failure.set(stopped());
        }
        self.group.transport().leave();
        self.group.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Send>(size: usize, work: impl Fn(&Arc<Group>) -> Result<T> + Sync) -> Result<T> {
        together(threads(size, PATIENCE), None, work)
    }

    #[test]
    fn the_first_failure_ends_all_waits_and_is_the_error() {
        for failing in 0..3 {
            let error = run(3, |group| {
                group.transport().barrier()?;
                if group.rank() == failing {
                    return Err(NetworkError::memory("full"));
                }
                Ok(group.transport().barrier()?)
            });
            assert_eq!(error.unwrap_err().category(), "memory", "rank {failing}");
        }
    }

    #[test]
    fn a_worker_that_panics_is_an_error() {
        let error = run(3, |group| {
            assert_ne!(group.rank(), 2, "meant to fail");
            Ok(group.transport().barrier()?)
        });
        assert!(error.unwrap_err().to_string().contains("a worker stopped"));
    }

    #[test]
    fn the_result_is_that_of_the_first() -> Result<()> {
        assert_eq!(run(3, |group| Ok(10 + group.rank()))?, 10);
        Ok(())
    }
}
