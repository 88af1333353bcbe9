//! Errors of runtimes and of what they compile.

use std::{io, path::PathBuf};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with a network on an NPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network is not valid, or the CPU could not compute a part of it.
    #[error(transparent)]
    Onnx(#[from] neurenix_onnx::Error),
    /// A computation of the engine failed.
    #[error(transparent)]
    Engine(#[from] phynexus::Error),
    /// A runtime refused or failed.
    #[error("{runtime}: {message}")]
    Runtime {
        /// The runtime.
        runtime: String,
        /// What it says.
        message: String,
    },
    /// A runtime's program took too long, and was ended.
    #[error("{runtime}: it did not end within {seconds} seconds")]
    TimedOut {
        /// The program.
        runtime: String,
        /// Its limit.
        seconds: u64,
    },
    /// A device, library or tool is missing.
    #[error("{0}")]
    Missing(String),
    /// What was asked for is not valid, or what was asked for as strict cannot be had.
    #[error("{0}")]
    Invalid(String),
    /// The device does not take all nodes, and work for the CPU was excluded.
    #[error(
        "{device} does not take {} of the nodes, and strict mode excludes the CPU: {}",
        nodes.len(),
        nodes.join("; ")
    )]
    Refused {
        /// The device.
        device: String,
        /// Each node with its operator and the reason.
        nodes: Vec<String>,
    },
    /// A compiled part differs from the CPU by more than the error bound of its numbers.
    #[error(
        "{device} differs from the CPU at the node {node:?} ({operator}): its output {value:?} is off by \
         {difference:.3e}, and {bound:.3e} is within the error of quantization or rounding; it belongs on the CPU \
         (`cpu_nodes`; without strict mode, it goes there by itself), or needs another quantization"
    )]
    Difference {
        /// The device.
        device: String,
        /// The first node that differs.
        node: String,
        /// Its operator.
        operator: String,
        /// The output that differs.
        value: String,
        /// The largest difference of an element.
        difference: f64,
        /// The most that is accepted.
        bound: f64,
    },
    /// A value is beyond the range of the floats of 16 bits in which devices compute.
    #[error("{value:?} has floats that are not finite, or beyond 65504: the device computes in 16 bits")]
    Range {
        /// The value's name.
        value: String,
    },
    /// The network does not fit the memory limit.
    #[error(
        "the network needs {needed} bytes for the tensors between its nodes, and the limit is {limit} bytes"
    )]
    Memory {
        /// The bytes that it needs at least.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
