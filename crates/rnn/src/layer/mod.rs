//! Layers: how they are described, what they are once they are built.

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
pub(crate) use kind::Kind;

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

/// What a layer computes before its activation.
enum Core {
    Module(Box<dyn Module>),
    /// Recurrent: the state after the last step, rather than those of all steps.
    LastState(Box<build::Recurrence>),
    /// A shape for each row.
    Shape(Vec<usize>),
    /// Class numbers, or words: integers.
    Integers(Box<dyn Module>),
    /// What goes in, and what these layers make of it, added.
    Residual(Vec<Layer>),
    /// Only the activation.
    Nothing,
}

impl Layer {
    /// What kind of layer it is.
    pub fn layer_type(&self) -> LayerType {
        self.description.kind.layer_type()
    }

    /// The name that it was given.
    pub fn name(&self) -> Option<&str> {
        self.description.name.as_deref()
    }

    /// Its activation.
    pub fn activation(&self) -> ActivationFunction {
        self.description.own_activation()
    }

    /// The shape of a row that goes in.
    pub fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    /// The shape of a row that comes out.
    pub fn output_shape(&self) -> &[usize] {
        &self.output_shape
    }

    /// False if training leaves it as it is.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// The number of its weights.
    pub fn parameter_count(&self) -> usize {
        self.weights().iter().map(|weight| weight.tensor().len()).sum()
    }

    /// What it is, in figures.
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

    /// Its weights, without buffers.
    pub(crate) fn weights(&self) -> Vec<Parameter> {
        let state = self.named_state().into_iter();
        state.filter(|(_, role, _)| *role == Role::Weight).map(|(_, _, parameter)| parameter).collect()
    }

    pub(crate) fn description(&self) -> &LayerBuilder {
        &self.description
    }

    /// Freezes or thaws it, with all layers in it. A frozen layer keeps its weights and running statistics.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.trainable = !frozen;
        self.set_trainable(!frozen);
        if let Core::Residual(layers) = &mut self.core {
            layers.iter_mut().for_each(|layer| layer.freeze(frozen));
        }
        self.description.freeze(frozen);
    }

    /// True if one row alone is not enough to train on: for a batch normalisation of one value a channel.
    pub(crate) fn needs_rows(&self) -> bool {
        let values: usize = match self.input_shape.as_slice() {
            [steps, _] => *steps,
            shape => shape.iter().skip(1).product(),
        };
        let normalises = matches!(self.description.kind, Kind::BatchNorm { .. });
        let inside = match &self.core {
            Core::Residual(layers) => layers.iter().any(Layer::needs_rows),
            _ => false,
        };
        self.trainable && (inside || normalises && values == 1)
    }

    /// Switches it to training, if it is not frozen, or to inference.
    pub(crate) fn set_training(&self, training: bool) {
        let training = training && self.trainable;
        match &self.core {
            // What is frozen in it stays so.
            Core::Residual(layers) => layers.iter().for_each(|layer| layer.set_training(training)),
            _ => self.train(training),
        }
    }

    /// What it makes of rows, without its activation if that is so asked.
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

/// A layer in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerSummary {
    /// Its name.
    pub name: String,
    /// Its type.
    pub layer_type: LayerType,
    /// The shape of a row that goes in.
    pub input_shape: Vec<usize>,
    /// The shape of a row that comes out.
    pub output_shape: Vec<usize>,
    /// The number of its weights.
    pub parameter_count: usize,
    /// Its activation's name.
    pub activation: String,
    /// False if it is frozen.
    pub trainable: bool,
}

/// Builds layers one after another, for rows of this shape.
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
