//! Training on several devices at once.

use std::borrow::Borrow;

use ndarray::Array2;

use super::GpuDevice;
use crate::{Network, NetworkError, Result, TrainingConfig, TrainingHistory, training::train_on};

/// Synchronous data parallelism: each batch is divided among devices, which compute gradients of their rows at the same
/// time; these are averaged, each row counting alike, and one update changes the weights everywhere. So the result is that
/// of one device, but for the order in which sums are taken, and what draws random numbers (dropout) or looks at a whole
/// batch (batch normalisation) does so for each part.
#[derive(Clone, Debug)]
pub struct DistributedTraining {
    devices: Vec<String>,
    config: TrainingConfig,
}

/// Each worker has a thread and a copy of the network.
const MOST_WORKERS: usize = 1024;

impl DistributedTraining {
    /// On these devices, of one machine.
    ///
    /// # Errors
    /// If there is none, or one is not there.
    pub fn new<I>(devices: I) -> Result<DistributedTraining>
    where
        I: IntoIterator,
        I::Item: Borrow<GpuDevice>,
    {
        let mut names = Vec::new();
        for device in devices {
            names.push(device.borrow().engine()?.name().to_owned());
        }
        DistributedTraining::of(names)
    }

    /// On the CPU, in so many workers, each with a copy of the network.
    ///
    /// # Errors
    /// If that is 0, or more than 1024.
    pub fn with_cpu_workers(workers: usize) -> Result<DistributedTraining> {
        if workers > MOST_WORKERS {
            let reason = format!("it must be at most {MOST_WORKERS}");
            return Err(NetworkError::invalid_parameter("workers", workers, reason));
        }
        DistributedTraining::of(vec!["cpu".to_owned(); workers])
    }

    fn of(devices: Vec<String>) -> Result<DistributedTraining> {
        if devices.is_empty() {
            let message = "distributed training needs at least one device: use with_cpu_workers without GPUs";
            return Err(NetworkError::training(message));
        }
        Ok(DistributedTraining { devices, config: TrainingConfig::default() })
    }

    /// With other settings than the default ones.
    #[must_use]
    pub fn with_config(mut self, config: TrainingConfig) -> DistributedTraining {
        self.config = config;
        self
    }

    /// The devices' names, a worker each.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Trains a network, whose weights lie in shared places and are updated there. What the run measured is returned (and is in
    /// its checkpoints); [`Network::history`], and files that are written later, keep that of the last [`Network::train`].
    ///
    /// # Errors
    /// As [`Network::train`]; settings that need a whole batch on one device: accumulation, mixed precision, regularisation,
    /// methods other than back-propagation, and the optimisers LBFGS and Newton.
    pub fn train(
        &self,
        network: &Network,
        data: &Array2<f64>,
        labels: &Array2<f64>,
    ) -> Result<TrainingHistory> {
        train_on(network, data, labels, &self.config, &self.devices)
    }
}
