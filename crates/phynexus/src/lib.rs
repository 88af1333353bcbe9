//! Phynexus: lazy tensors, one graph, one kernel language, every device.

// Tests that this crate shares with device crates name it.
#[cfg(test)]
extern crate self as phynexus;

pub mod device;
pub mod dtype;
pub mod error;
pub mod graph;
pub mod kernel;
pub mod oracle;
pub mod schedule;
pub mod shape;
pub mod tensor;

pub use device::Device;
pub use dtype::{DType, Element, Kind, Scalar};
pub use error::{Error, Result};
pub use graph::{Gradients, no_grad};
pub use tensor::Tensor;
