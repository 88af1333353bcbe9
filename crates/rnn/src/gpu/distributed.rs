//! Training on several devices.

use std::borrow::Borrow;

use ndarray::Array2;

use super::GpuDevice;
use crate::{Network, NetworkError, Result, TrainingConfig, TrainingHistory, training::train_on};

/// Synchronous data parallelism. Each batch is divided among devices, each with a thread and a copy of the network. They
/// compute the gradients of their rows, which are averaged over all rows in the network's precision, and then all take
/// the same step. The result is that of one device up to rounding, except for layers that draw random numbers (dropout)
/// or use statistics of a batch (batch normalisation): they do so per part.
///
/// NCCL carries the gradients between NVIDIA's GPUs, and RCCL between AMD's, if all devices are of the kind (`cuda`,
/// `hip`), on different GPUs, and the library is found. Otherwise they go through memory of the host.
#[derive(Clone, Debug)]
pub struct DistributedTraining {
    devices: Vec<String>,
    config: TrainingConfig,
}

/// Each worker needs a thread, and a copy of the network and of the optimiser's state.
const MOST_WORKERS: usize = 1024;

impl DistributedTraining {
    /// Training on these devices of this machine.
    ///
    /// # Errors
    /// If there are no devices, or one does not exist.
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

    /// Training on the CPU by several workers, each with a copy of the network.
    ///
    /// # Errors
    /// If `workers` is 0 or above 1024.
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

    /// Sets the configuration.
    #[must_use]
    pub fn with_config(mut self, config: TrainingConfig) -> DistributedTraining {
        self.config = config;
        self
    }

    /// The devices' names, one per worker.
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Trains a network, whose weights are set at the end. Returns the measurements, which are also in the run's
    /// checkpoints. [`Network::history`] stays that of the last [`Network::train`].
    ///
    /// # Errors
    /// As [`Network::train`], and for settings that need a whole batch on one device: accumulation, mixed precision,
    /// regularisation, methods other than backpropagation, and the optimisers LBFGS and Newton. If a device fails, the
    /// other ones stop too, and the error is that of the first failure.
    pub fn train(
        &self,
        network: &Network,
        data: &Array2<f64>,
        labels: &Array2<f64>,
    ) -> Result<TrainingHistory> {
        train_on(network, data, labels, &self.config, &self.devices)
    }
}
