//! Phynexus: lazy tensors, one graph, one kernel language, every device.

pub mod dtype;
pub mod error;
pub mod graph;
pub mod shape;

pub use dtype::{DType, Element, Kind, Scalar};
pub use error::{Error, Result};
