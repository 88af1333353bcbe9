//! Summaries of networks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Network, NetworkMetadata};
use crate::{LayerSummary, OptimizerSummary};

/// A summary of a network. `Display` prints a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkSummary {
    /// The network's name.
    pub name: Option<String>,
    /// The device that computes.
    pub device: String,
    /// The number of elements of an input row.
    pub input_dim: usize,
    /// The number of elements of an output row.
    pub output_dim: usize,
    /// The number of weights.
    pub total_parameters: usize,
    /// The number of weights that training changes.
    pub trainable_parameters: usize,
    /// The layers.
    pub layers: Vec<LayerSummary>,
    /// The loss's name.
    pub loss_function: String,
    /// The optimiser.
    pub optimizer: OptimizerSummary,
    /// The metadata.
    pub metadata: NetworkMetadata,
}

impl Network {
    /// A summary of the network.
    pub fn summary(&self) -> NetworkSummary {
        let layers: Vec<LayerSummary> = self.layers().iter().map(crate::Layer::summary).collect();
        let trainable = self.weights().into_iter().filter(|(_, weight)| weight.is_trainable());
        NetworkSummary {
            name: self.name().map(str::to_owned),
            device: self.device().to_owned(),
            input_dim: self.input_dim(),
            output_dim: self.output_dim(),
            total_parameters: self.parameter_count(),
            trainable_parameters: trainable.map(|(_, weight)| weight.tensor().len()).sum(),
            layers,
            loss_function: self.loss_function().name().to_owned(),
            optimizer: self.optimizer().summary(),
            metadata: self.metadata().clone(),
        }
    }

    /// Prints [`Network::summary`].
    pub fn print_summary(&self) {
        println!("{}", self.summary());
    }
}

impl fmt::Display for NetworkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}", self.name.as_deref().unwrap_or("Network"), self.device)?;
        writeln!(f, "{:<20} {:<16} {:<14} {:>12}", "layer", "output", "activation", "parameters")?;
        for layer in &self.layers {
            let shape = format!("{:?}", layer.output_shape);
            let frozen = if layer.trainable { "" } else { " (frozen)" };
            let LayerSummary { name, activation, parameter_count, .. } = layer;
            writeln!(f, "{name:<20} {shape:<16} {activation:<14} {parameter_count:>12}{frozen}")?;
        }
        writeln!(f, "{} parameters, {} of them trainable", self.total_parameters, self.trainable_parameters)?;
        let rate = self.optimizer.get_learning_rate();
        let optimizer = self.optimizer.optimizer_type().name();
        write!(f, "loss {}, optimiser {optimizer} with learning rate {rate}", self.loss_function)
    }
}
