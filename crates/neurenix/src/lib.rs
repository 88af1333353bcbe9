//! Neurenix: train and deploy neural networks on whatever accelerator a person has.

pub mod data;
pub mod error;
pub mod io;
pub mod nn;
pub mod optim;
pub mod train;

pub use error::{Error, Result};
pub use phynexus;
