//! From a description to a network.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use neurenix::phynexus::{tensor::Generator, text::show_shape};

use super::{Network, NetworkMetadata, Plan, Precision};
use crate::{
    LayerBuilder, LossConfig, NetworkError, Optimizer, Result, TrainingHistory, device,
    layer::{Kind, Site, build_all},
};

/// Describes a network layer by layer; see [`Network::with_input_size`].
#[derive(Clone, Debug)]
#[must_use = "build() makes the network"]
pub struct NetworkBuilder {
    plan: Plan,
    device: Option<String>,
    seed: Option<u64>,
}

impl NetworkBuilder {
    /// For rows of so many numbers.
    ///
    /// # Errors
    /// If that is 0.
    pub fn new(input_dim: usize) -> Result<NetworkBuilder> {
        NetworkBuilder::with_shape(&[input_dim])
    }

    pub(super) fn with_shape(shape: &[usize]) -> Result<NetworkBuilder> {
        check_input(shape)?;
        Ok(NetworkBuilder::empty().input_shape(shape))
    }

    pub(super) fn of(plan: Plan) -> NetworkBuilder {
        NetworkBuilder { plan, device: None, seed: None }
    }

    pub(super) fn empty() -> NetworkBuilder {
        NetworkBuilder { plan: Plan::default(), device: None, seed: None }
    }

    /// Rows of so many numbers go in.
    pub fn input_size(self, input_dim: usize) -> NetworkBuilder {
        self.input_shape(&[input_dim])
    }

    /// Rows of this shape go in: an image `[channels, height, width]`, a sequence `[steps, features]`.
    pub fn input_shape(mut self, shape: &[usize]) -> NetworkBuilder {
        self.plan.input_shape = shape.to_vec();
        self
    }

    /// Adds a layer at the end.
    pub fn add_layer(mut self, layer: LayerBuilder) -> NetworkBuilder {
        self.plan.layers.push(layer);
        self
    }

    /// The loss: a [`LossFunction`](crate::LossFunction), or a [`LossConfig`] with its numbers. The mean squared error
    /// without.
    pub fn loss(mut self, loss: impl Into<LossConfig>) -> NetworkBuilder {
        self.plan.loss = loss.into();
        self
    }

    /// The optimiser. Adam with a learning rate of 0.001 without.
    pub fn optimizer(mut self, optimizer: Optimizer) -> NetworkBuilder {
        self.plan.optimizer = optimizer;
        self
    }

    /// A name.
    pub fn name(mut self, name: impl Into<String>) -> NetworkBuilder {
        self.plan.name = Some(name.into());
        self
    }

    /// What is told about the network.
    pub fn metadata(mut self, metadata: NetworkMetadata) -> NetworkBuilder {
        self.plan.metadata = metadata;
        self
    }

    /// Who made it.
    pub fn author(mut self, author: impl Into<String>) -> NetworkBuilder {
        self.plan.metadata.author = Some(author.into());
        self
    }

    /// What it is for.
    pub fn description(mut self, description: impl Into<String>) -> NetworkBuilder {
        self.plan.metadata.description = Some(description.into());
        self
    }

    /// Words to find it by.
    pub fn tags(mut self, tags: Vec<String>) -> NetworkBuilder {
        self.plan.metadata.tags = tags;
        self
    }

    /// The device that computes, by name: `cpu`, `cuda:0`, `vulkan:0`. Without, the best real one: a GPU if there is one
    /// (that of `RNN_GPU_DEVICE`), else the CPU.
    pub fn device(mut self, name: impl Into<String>) -> NetworkBuilder {
        self.device = Some(name.into());
        self
    }

    /// The type of numbers inside. `float32` without.
    pub fn precision(mut self, precision: Precision) -> NetworkBuilder {
        self.plan.precision = precision;
        self
    }

    /// The seed of the weights. Two networks of one description and seed are equal, on every device. Without, the time.
    pub fn seed(mut self, seed: u64) -> NetworkBuilder {
        self.seed = Some(seed);
        self
    }

    /// The network, with weights drawn.
    ///
    /// # Errors
    /// A description that makes no network: no layer, sizes of 0, shapes that do not fit each other; numbers out of their
    /// ranges; a loss of probabilities or counts behind an activation that gives others; weights for more or fewer classes
    /// than there are; a device that is not there.
    pub fn build(self) -> Result<Network> {
        let network = self.made()?;
        network.plan.optimizer.check_use()?;
        network.plan.loss.check_layers(&network.layers)?;
        network.plan.loss.check_class_weights(network.output_shape())?;
        Ok(network)
    }

    /// The network, whether or not it can learn by its loss and optimiser: one that was saved may only predict.
    pub(super) fn made(self) -> Result<Network> {
        let plan = self.plan;
        check_input(&plan.input_shape)?;
        if plan.layers.is_empty() {
            return Err(NetworkError::architecture("there are no layers: add one with add_layer"));
        }
        plan.loss.check()?;
        plan.optimizer.check_numbers()?;
        let device = device::find(self.device.as_deref())?;
        let seed = self.seed.unwrap_or_else(time);
        let weights = Generator::new(seed);
        let dropouts = Arc::new(Generator::new(seed ^ 0x9e37_79b9_7f4a_7c15));
        let dtype = plan.precision.dtype();
        let site = Site { device, dtype, weights: &weights, dropouts: &dropouts };
        let layers = build_all(&plan.layers, &plan.input_shape, &site)?;
        Ok(Network { plan, layers, device, dtype, dropouts, history: TrainingHistory::default() })
    }
}

impl Network {
    /// How many integers there are, if an embedding comes first.
    pub(crate) fn vocabulary(&self) -> Option<usize> {
        match self.plan.layers.first().map(|layer| &layer.kind) {
            Some(Kind::Embedding { count, .. }) => Some(*count),
            _ => None,
        }
    }
}

fn check_input(shape: &[usize]) -> Result<()> {
    let size = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if shape.is_empty() || size.is_none_or(|n| n == 0 || n > isize::MAX as usize / 16) {
        let shown = show_shape(shape);
        let limits = if size == Some(0) || shape.is_empty() { "at least 1" } else { "with room for a row" };
        let message = format!("rows of shape {shown}: give the input's size with with_input_size, {limits}");
        return Err(NetworkError::architecture(message));
    }
    Ok(())
}

/// A seed that differs from run to run.
pub(crate) fn time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}
