//! Networks.

mod builder;
mod files;
mod forward;
mod history;
mod summary;
mod weights;

use std::{collections::HashMap, sync::Arc};

use neurenix::phynexus::{
    DType, Device,
    tensor::{Generator, GeneratorState},
};
use serde::{Deserialize, Serialize};

pub use builder::NetworkBuilder;
pub(crate) use builder::time;
pub use history::TrainingHistory;
pub use summary::NetworkSummary;
pub(crate) use weights::{all_finite, put};

use crate::{Layer, LayerBuilder, LossConfig, LossFunction, NetworkError, Optimizer, Result, finite};

/// A neural network: a sequence of layers, a loss and an optimiser. Its weights are on one device.
pub struct Network {
    plan: Plan,
    layers: Vec<Layer>,
    device: Device,
    dtype: DType,
    /// Random numbers for dropout.
    dropouts: Arc<Generator>,
    history: TrainingHistory,
}

/// The description of a network, without its weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) input_shape: Vec<usize>,
    pub(crate) layers: Vec<LayerBuilder>,
    pub(crate) loss: LossConfig,
    pub(crate) optimizer: Optimizer,
    pub(crate) name: Option<String>,
    pub(crate) metadata: NetworkMetadata,
    pub(crate) precision: Precision,
}

/// The precision of a network's computations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Precision {
    /// IEEE `float32`.
    #[default]
    Float32,
    /// IEEE `float64`. It is slow on most GPUs. If a GPU lacks it, the CPU computes.
    Float64,
}

impl Precision {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Precision::Float32 => DType::F32,
            Precision::Float64 => DType::F64,
        }
    }
}

/// Information about a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkMetadata {
    /// The network's own version.
    pub version: String,
    /// The author.
    pub author: Option<String>,
    /// The purpose.
    pub description: Option<String>,
    /// Search terms.
    pub tags: Vec<String>,
    /// Measurements by name.
    #[serde(with = "finite")]
    pub performance_metrics: HashMap<String, f64>,
}

impl Default for NetworkMetadata {
    fn default() -> NetworkMetadata {
        NetworkMetadata {
            version: "1.0.0".to_owned(),
            author: None,
            description: None,
            tags: Vec::new(),
            performance_metrics: HashMap::new(),
        }
    }
}

impl Network {
    /// Starts a network whose input rows have `input_size` elements.
    ///
    /// ```
    /// use rnn::{ActivationFunction, LayerBuilder, LossFunction, Network};
    ///
    /// let network = Network::with_input_size(4)?
    ///     .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
    ///     .add_layer(LayerBuilder::dense(3).activation(ActivationFunction::Softmax))
    ///     .loss(LossFunction::CategoricalCrossEntropy)
    ///     .build()?;
    /// assert_eq!(network.parameter_count(), 4 * 8 + 8 + 8 * 3 + 3);
    /// # Ok::<(), rnn::NetworkError>(())
    /// ```
    ///
    /// # Errors
    /// If `input_size` is 0.
    pub fn with_input_size(input_size: usize) -> Result<NetworkBuilder> {
        NetworkBuilder::new(input_size)
    }

    /// Starts a network whose input rows have this shape, such as an image `[channels, height, width]` or a sequence
    /// `[steps, features]`. In a matrix of data, a row's elements are in that order.
    ///
    /// # Errors
    /// If a size is 0.
    pub fn with_input_shape(shape: &[usize]) -> Result<NetworkBuilder> {
        NetworkBuilder::with_shape(shape)
    }

    /// Starts a network whose input is set with [`NetworkBuilder::input_size`].
    pub fn builder() -> NetworkBuilder {
        NetworkBuilder::empty()
    }

    /// The name of the device that computes: `cpu`, `cuda:0`.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// The number of elements of an input row.
    pub fn input_dim(&self) -> usize {
        self.plan.input_shape.iter().product()
    }

    /// The number of elements of an output row.
    pub fn output_dim(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.output_shape().iter().product())
    }

    /// The network's name.
    pub fn name(&self) -> Option<&str> {
        self.plan.name.as_deref()
    }

    /// The layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// A layer by its index, from 0.
    ///
    /// # Errors
    /// If there is no such layer.
    pub fn get_layer(&self, index: usize) -> Result<&Layer> {
        self.layers.get(index).ok_or_else(|| no_layer(index, self.layers.len()))
    }

    /// The loss.
    pub fn loss_function(&self) -> LossFunction {
        self.plan.loss.function
    }

    /// The optimiser.
    pub fn optimizer(&self) -> &Optimizer {
        &self.plan.optimizer
    }

    /// The measurements of the last [`Network::train`].
    pub fn history(&self) -> &TrainingHistory {
        &self.history
    }

    /// The metadata.
    pub fn metadata(&self) -> &NetworkMetadata {
        &self.plan.metadata
    }

    /// The metadata, to change it.
    pub fn metadata_mut(&mut self) -> &mut NetworkMetadata {
        &mut self.plan.metadata
    }

    /// Freezes layers by their indices: training does not change their weights and running statistics.
    ///
    /// # Errors
    /// If there is no such layer. Nothing changes then.
    pub fn freeze_layers(&mut self, layer_indices: &[usize]) -> Result<()> {
        self.set_frozen(layer_indices, true)
    }

    /// Unfreezes layers.
    ///
    /// # Errors
    /// If there is no such layer. Nothing changes then.
    pub fn unfreeze_layers(&mut self, layer_indices: &[usize]) -> Result<()> {
        self.set_frozen(layer_indices, false)
    }

    fn set_frozen(&mut self, indices: &[usize], frozen: bool) -> Result<()> {
        if let Some(&index) = indices.iter().find(|&&index| index >= self.layers.len()) {
            return Err(no_layer(index, self.layers.len()));
        }
        for &index in indices {
            self.layers[index].freeze(frozen);
            self.plan.layers[index] = self.layers[index].description().clone();
        }
        Ok(())
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }
    pub(crate) fn engine_device(&self) -> Device {
        self.device
    }
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }
    /// The random numbers of dropout.
    pub(crate) fn dropouts(&self) -> &Generator {
        &self.dropouts
    }
    /// Reseeds dropout, with a different sequence for each copy of a network.
    pub(crate) fn seed_dropouts(&self, seed: u64, number: u64) {
        let seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.dropouts.set_state(GeneratorState { seed, counter: 0 });
    }
    pub(crate) fn set_history(&mut self, history: TrainingHistory) {
        self.history = history;
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name().unwrap_or("Network");
        write!(f, "{name} on {}: {:?}", self.device(), self.layers)
    }
}

fn no_layer(index: usize, count: usize) -> NetworkError {
    NetworkError::invalid_parameter(
        "layer",
        index,
        format!("use a layer from 0 to {}", count.saturating_sub(1)),
    )
}
