//! Functions of neural networks, with PyTorch's names, argument names and conventions. Most record one composite of
//! [`crate::op::composite`]; the others call tensor methods.

mod activation;
mod attention;
mod convolution;
mod embedding;
mod functions;
mod interpolate;
mod loss;
mod normalization;
mod pooling;
mod recurrent;
#[cfg(test)]
mod tests;

pub use activation::GeluApproximation;
pub use attention::AttentionOptions;
pub use interpolate::Interpolation;
pub use loss::{CrossEntropyOptions, Reduction};
pub use recurrent::{RecurrentOutput, RecurrentWeights};
