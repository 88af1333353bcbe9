//! Neurenix: train and deploy neural networks on whatever accelerator a person has.

pub mod data;
pub mod error;
pub mod io;

pub use error::{Error, Result};
