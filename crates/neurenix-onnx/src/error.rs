//! Errors of reading and running ONNX files.

use std::{io, path::PathBuf};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with an ONNX file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A computation failed.
    #[error(transparent)]
    Engine(#[from] phynexus::Error),
    /// The file, or what was given to its network, is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The file needs operators, types or features that are not supported: all of them.
    #[error("not supported: {}", .0.join("; "))]
    Unsupported(Vec<String>),
    /// A node failed.
    #[error("{node}: {source}")]
    Node {
        /// The operator and the node's name.
        node: String,
        /// What went wrong.
        source: Box<Error>,
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

impl Error {
    /// Invalid, with this message.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// One thing that is not supported.
    pub(crate) fn unsupported(what: impl Into<String>) -> Error {
        Error::Unsupported(vec![what.into()])
    }
}
