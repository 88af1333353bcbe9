//! The kinds of layers, with their settings.

use serde::{Deserialize, Serialize};

use super::LayerBuilder;
use crate::choices::choices;

choices! {
    /// The type of a layer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum LayerType {
        /// Fully connected.
        Dense,
        /// Convolution over images.
        Convolutional2D,
        /// Convolution over volumes.
        Convolutional3D,
        /// The maximum of each window of images.
        MaxPooling2D,
        /// The mean of each window of images.
        AveragePooling2D,
        /// The maximum of each window of volumes.
        MaxPooling3D,
        /// The mean of each window of volumes.
        AveragePooling3D,
        /// Dropout.
        Dropout,
        /// Normalisation of each channel over the batch.
        BatchNormalization,
        /// Normalisation of each row.
        LayerNormalization,
        /// Simple recurrence.
        RNN,
        /// Long short-term memory.
        LSTM,
        /// Gated recurrent units.
        GRU,
        /// Self-attention.
        Attention,
        /// A vector for each integer.
        Embedding,
        /// Gives rows one dimension.
        Flatten,
        /// Gives rows another shape.
        Reshape,
        /// The sum of a row and the output of inner layers.
        Residual,
        /// An activation without weights.
        Activation,
    }
}

/// The settings of a convolution, with an element per dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Convolution {
    pub(crate) filters: usize,
    pub(crate) kernel: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    pub(crate) groups: usize,
}

/// The windows of a pooling layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Windows {
    pub(crate) size: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Vec<usize>,
    /// The mean rather than the maximum.
    pub(crate) average: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cell {
    Rnn,
    Lstm,
    Gru,
}

/// The settings of a recurrent layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recurrent {
    pub(crate) cell: Cell,
    pub(crate) units: usize,
    pub(crate) layers: usize,
    pub(crate) bidirectional: bool,
    pub(crate) return_sequences: bool,
}

/// A layer's kind with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum LayerKind {
    Dense { units: usize },
    Convolution(Convolution),
    Pooling(Windows),
    Dropout { rate: f64, seed: Option<u64> },
    BatchNorm { momentum: f64, epsilon: f64 },
    LayerNorm { epsilon: f64 },
    Embedding { count: usize, features: usize },
    Recurrent(Recurrent),
    Attention { heads: usize, causal: bool },
    Flatten,
    Reshape { shape: Vec<usize> },
    Residual { layers: Vec<LayerBuilder> },
    Activation,
}

impl LayerKind {
    /// True if it mixes inputs by weights, rather than scaling, reshaping or looking them up.
    pub(crate) fn mixes(&self) -> bool {
        match self {
            LayerKind::Dense { .. }
            | LayerKind::Convolution(_)
            | LayerKind::Recurrent(_)
            | LayerKind::Attention { .. } => true,
            LayerKind::Residual { layers } => layers.iter().any(|layer| layer.kind.mixes()),
            _ => false,
        }
    }

    /// True if outputs, before the activation, are between the minimum and the maximum of the inputs.
    pub(crate) fn keeps_range(&self) -> bool {
        matches!(
            self,
            LayerKind::Flatten
                | LayerKind::Reshape { .. }
                | LayerKind::Pooling(_)
                | LayerKind::Dropout { .. }
                | LayerKind::Activation
        )
    }

    /// True if it belongs to the layer before, as normalisations and activations do.
    pub(crate) fn refines(&self) -> bool {
        matches!(self, LayerKind::BatchNorm { .. } | LayerKind::LayerNorm { .. } | LayerKind::Activation)
    }

    pub(crate) fn layer_type(&self) -> LayerType {
        match self {
            LayerKind::Dense { .. } => LayerType::Dense,
            LayerKind::Convolution(convolution) if convolution.kernel.len() == 3 => {
                LayerType::Convolutional3D
            }
            LayerKind::Convolution(_) => LayerType::Convolutional2D,
            LayerKind::Pooling(windows) => match (windows.size.len(), windows.average) {
                (3, true) => LayerType::AveragePooling3D,
                (3, false) => LayerType::MaxPooling3D,
                (_, true) => LayerType::AveragePooling2D,
                (_, false) => LayerType::MaxPooling2D,
            },
            LayerKind::Dropout { .. } => LayerType::Dropout,
            LayerKind::BatchNorm { .. } => LayerType::BatchNormalization,
            LayerKind::LayerNorm { .. } => LayerType::LayerNormalization,
            LayerKind::Embedding { .. } => LayerType::Embedding,
            LayerKind::Recurrent(recurrent) => match recurrent.cell {
                Cell::Rnn => LayerType::RNN,
                Cell::Lstm => LayerType::LSTM,
                Cell::Gru => LayerType::GRU,
            },
            LayerKind::Attention { .. } => LayerType::Attention,
            LayerKind::Flatten => LayerType::Flatten,
            LayerKind::Reshape { .. } => LayerType::Reshape,
            LayerKind::Residual { .. } => LayerType::Residual,
            LayerKind::Activation => LayerType::Activation,
        }
    }
}
