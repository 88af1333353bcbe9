//! Layers: descriptions and built layers.

mod build;
mod builder;
mod init;
mod kind;

use neurenix::{
    nn::{Module, Parameter, Role, Visitor},
    phynexus::Tensor,
};
use serde::{Deserialize, Serialize};

pub use builder::LayerBuilder;
pub use init::WeightInitialization;
pub use kind::LayerType;

pub(crate) use build::Site;
use build::build;
pub(crate) use kind::LayerKind;

use crate::{ActivationFunction, Result};

/// A layer of a network.
pub struct Layer {
    description: LayerBuilder,
    input_shape: Vec<usize>,
    output_shape: Vec<usize>,
    core: Core,
    activation: Option<Box<dyn Module>>,
    trainable: bool,
}

/// The computation of a layer before its activation.
enum Core {
    Module(Box<dyn Module>),
    /// A recurrent layer that returns only the state after the last step.
    LastState(Box<build::Recurrence>),
    /// Gives each row this shape.
    Shape(Vec<usize>),
    /// A layer whose inputs are integers, such as class numbers or words.
    Integers(Box<dyn Module>),
    /// The sum of the input and the output of these layers.
    Residual(Vec<Layer>),
    /// The identity: only the activation counts.
    Nothing,
}

impl Layer {
    /// The type of the layer.
    pub fn layer_type(&self) -> LayerType {
        self.description.kind.layer_type()
    }

    /// The layer's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.description.name.as_deref()
    }

    /// The activation.
    pub fn activation(&self) -> ActivationFunction {
        self.description.own_activation()
    }

    /// The shape of an input row.
    pub fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    /// The shape of an output row.
    pub fn output_shape(&self) -> &[usize] {
        &self.output_shape
    }

    /// False if the layer is frozen.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// The number of weights.
    pub fn parameter_count(&self) -> usize {
        self.weights().iter().map(|weight| weight.tensor().len()).sum()
    }

    /// A summary of the layer.
    pub fn summary(&self) -> LayerSummary {
        LayerSummary {
            name: self.name().map_or_else(|| self.layer_type().name().to_owned(), str::to_owned),
            layer_type: self.layer_type(),
            input_shape: self.input_shape.clone(),
            output_shape: self.output_shape.clone(),
            parameter_count: self.parameter_count(),
            activation: self.activation().name().to_owned(),
            trainable: self.trainable,
        }
    }

    /// The weights, without buffers.
    pub(crate) fn weights(&self) -> Vec<Parameter> {
        let state = self.named_state().into_iter();
        state.filter(|(_, role, _)| *role == Role::Weight).map(|(_, _, parameter)| parameter).collect()
    }

    pub(crate) fn description(&self) -> &LayerBuilder {
        &self.description
    }

    /// Freezes or unfreezes the layer and its inner layers. A frozen layer keeps its weights and running statistics.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.trainable = !frozen;
        self.set_trainable(!frozen);
        if let Core::Residual(layers) = &mut self.core {
            layers.iter_mut().for_each(|layer| layer.freeze(frozen));
        }
        self.description.freeze(frozen);
    }

    /// True if training needs more than one row per batch: for a batch normalisation with one value per channel.
    pub(crate) fn needs_rows(&self) -> bool {
        let values: usize = match self.input_shape.as_slice() {
            [steps, _] => *steps,
            shape => shape.iter().skip(1).product(),
        };
        let normalises = matches!(self.description.kind, LayerKind::BatchNorm { .. });
        let inside = match &self.core {
            Core::Residual(layers) => layers.iter().any(Layer::needs_rows),
            _ => false,
        };
        self.trainable && (inside || normalises && values == 1)
    }

    /// Switches to training mode, unless the layer is frozen, or to inference mode.
    pub(crate) fn set_training(&self, training: bool) {
        let training = training && self.trainable;
        match &self.core {
            // Frozen inner layers stay in inference mode.
            Core::Residual(layers) => layers.iter().for_each(|layer| layer.set_training(training)),
            _ => self.train(training),
        }
    }

    /// The outputs for rows, without the activation unless `activated`.
    pub(crate) fn run(&self, input: &Tensor, activated: bool) -> neurenix::Result<Tensor> {
        let output = match &self.core {
            Core::Module(module) => module.forward(input)?,
            Core::LastState(recurrence) => recurrence.last_state(input)?,
            Core::Integers(module) => module.forward(&input.to_dtype(neurenix::phynexus::DType::I64)?)?,
            Core::Shape(shape) => {
                let rows = input.shape().first().copied().unwrap_or(1);
                let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
                input.reshape(&shape)?
            }
            Core::Residual(layers) => {
                let inner = layers.iter().try_fold(input.clone(), |x, layer| layer.run(&x, true))?;
                input.add(&inner)?
            }
            Core::Nothing => input.clone(),
        };
        match self.activation.as_ref().filter(|_| activated) {
            Some(activation) => activation.forward(&output),
            None => Ok(output),
        }
    }
}

impl Module for Layer {
    fn forward(&self, input: &Tensor) -> neurenix::Result<Tensor> {
        self.run(input, true)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match &self.core {
            Core::Module(module) | Core::Integers(module) => module.visit(visitor),
            Core::LastState(recurrence) => recurrence.visit(visitor),
            Core::Residual(layers) => {
                for (i, layer) in layers.iter().enumerate() {
                    visitor.child(&i.to_string(), layer);
                }
            }
            Core::Shape(_) | Core::Nothing => {}
        }
        if let Some(activation) = &self.activation {
            visitor.child("activation", activation.as_ref());
        }
    }
    fn describe(&self) -> String {
        self.layer_type().name().to_owned()
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?} to {:?})", self.layer_type().name(), self.input_shape, self.output_shape)
    }
}

/// A summary of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerSummary {
    /// The layer's name.
    pub name: String,
    /// The layer's type.
    pub layer_type: LayerType,
    /// The shape of an input row.
    pub input_shape: Vec<usize>,
    /// The shape of an output row.
    pub output_shape: Vec<usize>,
    /// The number of weights.
    pub parameter_count: usize,
    /// The name of the activation.
    pub activation: String,
    /// False if the layer is frozen.
    pub trainable: bool,
}

/// Builds a sequence of layers for input rows of this shape.
pub(crate) fn build_all(
    descriptions: &[LayerBuilder],
    input_shape: &[usize],
    site: &Site<'_>,
) -> Result<Vec<Layer>> {
    let mut shape = input_shape.to_vec();
    let mut layers: Vec<Layer> = Vec::with_capacity(descriptions.len());
    for (place, description) in descriptions.iter().enumerate() {
        let layer = build(description, &shape, place, site)?;
        shape = layer.output_shape.clone();
        layers.push(layer);
    }
    Ok(layers)
}
