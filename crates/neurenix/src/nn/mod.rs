//! Layers and networks. Names, defaults, parameter names and gate order are PyTorch's.

pub mod activation;
mod container;
mod conv;
pub(crate) mod follow;
pub mod init;
mod linear;
mod module;
mod normalization;
mod onnx;
mod parameter;
mod pooling;
pub(crate) mod recording;
mod recurrent;
mod regularization;
mod transformer;
mod view;

// All public items of these modules, so that a layer is added in one file.
pub use self::{
    container::*, conv::*, linear::*, module::*, normalization::*, onnx::*, parameter::*, pooling::*,
    recurrent::*, regularization::*, transformer::*, view::ViewStep,
};
