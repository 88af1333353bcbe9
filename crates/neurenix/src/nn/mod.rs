//! Layers and networks. Names, defaults, parameter names and gate order are PyTorch's.

pub mod activation;
mod container;
mod conv;
pub mod init;
mod linear;
mod module;
mod normalization;
mod parameter;
mod pooling;
pub(crate) mod recording;
mod recurrent;
mod regularization;
mod transformer;

pub use container::{Function, Sequential};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvOptions, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use linear::Linear;
pub use module::{Mode, Module, Role, Visitor};
pub use normalization::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions, GroupNorm, LayerNorm, RMSNorm,
};
pub use parameter::{Parameter, Watch};
pub use pooling::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use recurrent::{GRU, LSTM, RNN, Recurrent, RecurrentOptions, RecurrentResult};
pub use regularization::{Dropout, Embedding};
pub use transformer::{AttentionMasks, MultiheadAttention, TransformerEncoderLayer, TransformerOptions};
