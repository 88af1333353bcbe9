//! Builds a network from a description.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use neurenix::phynexus::{DType, Device, tensor::Generator, text::show_shape};

use super::{Network, NetworkMetadata, Plan, Precision, TrainingHistory};
use crate::{
    LayerBuilder, LossConfig, NetworkError, Optimizer, Result, device,
    layer::{LayerKind, Site, build_all},
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
    /// A builder for input rows of `input_dim` elements.
    ///
    /// # Errors
    /// If `input_dim` is 0.
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

    /// Sets the number of elements of an input row.
    pub fn input_size(self, input_dim: usize) -> NetworkBuilder {
        self.input_shape(&[input_dim])
    }

    /// Sets the shape of an input row, such as an image `[channels, height, width]` or a sequence `[steps, features]`.
    pub fn input_shape(mut self, shape: &[usize]) -> NetworkBuilder {
        self.plan.input_shape = shape.to_vec();
        self
    }

    /// Appends a layer.
    pub fn add_layer(mut self, layer: LayerBuilder) -> NetworkBuilder {
        self.plan.layers.push(layer);
        self
    }

    /// Sets the loss: a [`LossFunction`](crate::LossFunction), or a [`LossConfig`] with settings. The default is the
    /// mean squared error.
    pub fn loss(mut self, loss: impl Into<LossConfig>) -> NetworkBuilder {
        self.plan.loss = loss.into();
        self
    }

    /// Sets the optimiser. The default is Adam with a learning rate of 0.001.
    pub fn optimizer(mut self, optimizer: Optimizer) -> NetworkBuilder {
        self.plan.optimizer = optimizer;
        self
    }

    /// Sets the name.
    pub fn name(mut self, name: impl Into<String>) -> NetworkBuilder {
        self.plan.name = Some(name.into());
        self
    }

    /// Sets the metadata.
    pub fn metadata(mut self, metadata: NetworkMetadata) -> NetworkBuilder {
        self.plan.metadata = metadata;
        self
    }

    /// Sets the author.
    pub fn author(mut self, author: impl Into<String>) -> NetworkBuilder {
        self.plan.metadata.author = Some(author.into());
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> NetworkBuilder {
        self.plan.metadata.description = Some(description.into());
        self
    }

    /// Sets the search terms.
    pub fn tags(mut self, tags: Vec<String>) -> NetworkBuilder {
        self.plan.metadata.tags = tags;
        self
    }

    /// Sets the device by its name: `cpu`, `cuda:0`, `vulkan:0`. The default is the device of `RNN_GPU_DEVICE`, else a
    /// GPU if there is one, else the CPU.
    pub fn device(mut self, name: impl Into<String>) -> NetworkBuilder {
        self.device = Some(name.into());
        self
    }

    /// Sets the precision of computations. The default is `float32`.
    pub fn precision(mut self, precision: Precision) -> NetworkBuilder {
        self.plan.precision = precision;
        self
    }

    /// Sets the seed of the weights. Networks with the same description and seed are equal on every device. The default
    /// seed comes from the clock.
    pub fn seed(mut self, seed: u64) -> NetworkBuilder {
        self.seed = Some(seed);
        self
    }

    /// Builds the network and draws its weights.
    ///
    /// # Errors
    /// If there is no layer, a size is 0, shapes do not fit each other, or a setting is out of range. If the loss needs
    /// probabilities or counts and the last activation returns other values, or the number of class weights is not that
    /// of classes. If there is no such device.
    pub fn build(self) -> Result<Network> {
        let network = self.made()?;
        network.plan.optimizer.check_use()?;
        network.plan.loss.check_layers(&network.layers)?;
        network.plan.loss.check_class_weights(network.output_shape())?;
        Ok(network)
    }

    /// Builds the network without checking that it can be trained: a saved network may only predict.
    pub(super) fn made(self) -> Result<Network> {
        let plan = self.plan;
        check_input(&plan.input_shape)?;
        if plan.layers.is_empty() {
            return Err(NetworkError::architecture("the network has no layers: add one with add_layer"));
        }
        plan.loss.check()?;
        plan.optimizer.check_numbers()?;
        let device = device::find(self.device.as_deref())?;
        let dtype = plan.precision.dtype();
        Network::assemble(plan, device, dtype, self.seed.unwrap_or_else(time))
    }
}

impl Network {
    /// Builds the layers of a plan.
    pub(super) fn assemble(plan: Plan, device: Device, dtype: DType, seed: u64) -> Result<Network> {
        let weights = Generator::new(seed);
        let dropouts = Arc::new(Generator::new(seed ^ 0x9e37_79b9_7f4a_7c15));
        let site = Site { device, dtype, weights: &weights, dropouts: &dropouts };
        let layers = build_all(&plan.layers, &plan.input_shape, &site)?;
        Ok(Network { plan, layers, device, dtype, dropouts, history: TrainingHistory::default() })
    }

    /// The number of integers that an embedding accepts, if the first layer is one.
    pub(crate) fn vocabulary(&self) -> Option<usize> {
        match self.plan.layers.first().map(|layer| &layer.kind) {
            Some(LayerKind::Embedding { count, .. }) => Some(*count),
            _ => None,
        }
    }
}

fn check_input(shape: &[usize]) -> Result<()> {
    let size = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if shape.is_empty() || size.is_none_or(|n| n == 0 || n > isize::MAX as usize / 16) {
        let shown = show_shape(shape);
        let limits = if size == Some(0) || shape.is_empty() {
            "at least 1"
        } else {
            "small enough that there is room for a row"
        };
        let message =
            format!("the input has rows of shape {shown}: set a size with with_input_size, {limits}");
        return Err(NetworkError::architecture(message));
    }
    Ok(())
}

/// A seed from the clock.
pub(crate) fn time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}
