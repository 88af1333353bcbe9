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
    /// A device, library or tool is missing.
    #[error("{0}")]
    Missing(String),
    /// What was asked for is not valid, or what was asked for as strict cannot be had.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
