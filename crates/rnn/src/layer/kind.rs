//! What kinds of layers there are, and their numbers.

use serde::{Deserialize, Serialize};

use super::LayerBuilder;

/// What kind of layer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LayerType {
    /// Fully connected.
    Dense,
    /// Convolution over images.
    Convolutional2D,
    /// Convolution over volumes.
    Convolutional3D,
    /// The greatest of each window of images.
    MaxPooling2D,
    /// The mean of each window of images.
    AveragePooling2D,
    /// The greatest of each window of volumes.
    MaxPooling3D,
    /// The mean of each window of volumes.
    AveragePooling3D,
    /// Zeros at random while training.
    Dropout,
    /// Normalisation of each channel over the batch.
    BatchNormalization,
    /// Normalisation of each row.
    LayerNormalization,
    /// Plain recurrence.
    RNN,
    /// Long short-term memory.
    LSTM,
    /// Gated recurrent units.
    GRU,
    /// Attention of a sequence to itself.
    Attention,
    /// Vectors for integers.
    Embedding,
    /// A row as one dimension.
    Flatten,
    /// A row in another shape.
    Reshape,
    /// A row, and what layers make of it, added.
    Residual,
    /// An activation by itself.
    Activation,
}

impl LayerType {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            LayerType::Dense => "Dense",
            LayerType::Convolutional2D => "Convolutional2D",
            LayerType::Convolutional3D => "Convolutional3D",
            LayerType::MaxPooling2D => "MaxPooling2D",
            LayerType::AveragePooling2D => "AveragePooling2D",
            LayerType::MaxPooling3D => "MaxPooling3D",
            LayerType::AveragePooling3D => "AveragePooling3D",
            LayerType::Dropout => "Dropout",
            LayerType::BatchNormalization => "BatchNormalization",
            LayerType::LayerNormalization => "LayerNormalization",
            LayerType::RNN => "RNN",
            LayerType::LSTM => "LSTM",
            LayerType::GRU => "GRU",
            LayerType::Attention => "Attention",
            LayerType::Embedding => "Embedding",
            LayerType::Flatten => "Flatten",
            LayerType::Reshape => "Reshape",
            LayerType::Residual => "Residual",
            LayerType::Activation => "Activation",
        }
    }
}

/// Steps, padding and the like of a convolution over `D` dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Convolution {
    pub(crate) filters: usize,
    pub(crate) kernel: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    pub(crate) groups: usize,
}

/// Windows of a pooling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Windows {
    pub(crate) size: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Vec<usize>,
    /// The mean rather than the greatest.
    pub(crate) average: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cell {
    Rnn,
    Lstm,
    Gru,
}

/// A recurrent layer's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recurrent {
    pub(crate) cell: Cell,
    pub(crate) units: usize,
    pub(crate) layers: usize,
    pub(crate) bidirectional: bool,
    pub(crate) return_sequences: bool,
}

/// A layer's kind with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Kind {
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

impl Kind {
    /// True if it mixes what goes in by weights, rather than scaling, shaping or looking it up.
    pub(crate) fn mixes(&self) -> bool {
        match self {
            Kind::Dense { .. } | Kind::Convolution(_) | Kind::Recurrent(_) | Kind::Attention { .. } => true,
            Kind::Residual { layers } => layers.iter().any(|layer| layer.kind.mixes()),
            _ => false,
        }
    }

    /// True if, apart from an activation, what comes out lies between the least and the greatest of what goes in.
    pub(crate) fn keeps_range(&self) -> bool {
        matches!(
            self,
            Kind::Flatten | Kind::Reshape { .. } | Kind::Pooling(_) | Kind::Dropout { .. } | Kind::Activation
        )
    }

    /// True if it belongs to the layer before: a normalisation, an activation.
    pub(crate) fn refines(&self) -> bool {
        matches!(self, Kind::BatchNorm { .. } | Kind::LayerNorm { .. } | Kind::Activation)
    }

    pub(crate) fn layer_type(&self) -> LayerType {
        match self {
            Kind::Dense { .. } => LayerType::Dense,
            Kind::Convolution(convolution) if convolution.kernel.len() == 3 => LayerType::Convolutional3D,
            Kind::Convolution(_) => LayerType::Convolutional2D,
            Kind::Pooling(windows) => match (windows.size.len(), windows.average) {
                (3, true) => LayerType::AveragePooling3D,
                (3, false) => LayerType::MaxPooling3D,
                (_, true) => LayerType::AveragePooling2D,
                (_, false) => LayerType::MaxPooling2D,
            },
            Kind::Dropout { .. } => LayerType::Dropout,
            Kind::BatchNorm { .. } => LayerType::BatchNormalization,
            Kind::LayerNorm { .. } => LayerType::LayerNormalization,
            Kind::Embedding { .. } => LayerType::Embedding,
            Kind::Recurrent(recurrent) => match recurrent.cell {
                Cell::Rnn => LayerType::RNN,
                Cell::Lstm => LayerType::LSTM,
                Cell::Gru => LayerType::GRU,
            },
            Kind::Attention { .. } => LayerType::Attention,
            Kind::Flatten => LayerType::Flatten,
            Kind::Reshape { .. } => LayerType::Reshape,
            Kind::Residual { .. } => LayerType::Residual,
            Kind::Activation => LayerType::Activation,
        }
    }
}
