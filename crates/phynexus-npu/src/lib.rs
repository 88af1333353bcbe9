//! Neural processing units, through the runtimes of their vendors.
//!
//! A runtime takes a whole graph in ONNX's form, compiles what it can and runs it. This crate finds the installed
//! runtimes, splits a graph between one of them and the CPU, compares the result with the CPU's, and reports what ran
//! where. Libraries are loaded at run time: the crate builds and works without any of them.

mod error;
mod runtime;

pub use error::{Error, Result};
pub use runtime::{Accepts, Options, Place, Placed, Program, Properties, Runtime};
