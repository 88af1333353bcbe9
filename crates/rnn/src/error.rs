//! Errors. Every message names the remedy.

use std::fmt;

use neurenix::phynexus;

/// The result of fallible calls.
pub type Result<T> = std::result::Result<T, NetworkError>;

/// An error of this crate.
///
/// `Debug` prints the message too, so that `fn main() -> rnn::Result<()>` shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A network that cannot be built.
    #[error("architecture: {message}")]
    Architecture {
        /// What is wrong and what to do.
        message: String,
    },
    /// Training that cannot start or continue.
    #[error("training: {message}")]
    Training {
        /// What is wrong and what to do.
        message: String,
    },
    /// The operating system refused to open, read or write a file.
    #[error("{message}")]
    Io {
        /// The file, what was tried and why it failed.
        message: String,
    },
    /// A file that violates its format, or has another version.
    #[error("{message}")]
    Serialization {
        /// The file and what is wrong with it.
        message: String,
    },
    /// Sizes that do not match.
    #[error("{what}: expected {expected}, got {actual}")]
    DimensionMismatch {
        /// What has these sizes.
        what: String,
        /// The expected size.
        expected: String,
        /// The given size.
        actual: String,
    },
    /// A parameter out of range.
    #[error("{parameter} is {value}: {reason}")]
    InvalidParameter {
        /// The parameter.
        parameter: String,
        /// The given value.
        value: String,
        /// The allowed values.
        reason: String,
    },
    /// Numbers that are not finite.
    #[error("{message}")]
    Numerical {
        /// Where, and what to do.
        message: String,
    },
    /// An error of a device, a memory handle or a stream.
    #[error("{message}")]
    Gpu {
        /// What is wrong and what to do.
        message: String,
    },
    /// A kernel's source that does not compile.
    #[error("kernel {kernel} does not compile as {backend}:\n{message}")]
    KernelCompilation {
        /// The kernel's name.
        kernel: String,
        /// The backend: `cuda`, `opencl`, `metal`, `rocm`, `wgsl`.
        backend: String,
        /// The compiler's messages.
        message: String,
    },
    /// A missing compiler.
    #[error("there is no compiler for {backend} on this machine: {install}")]
    CompilerMissing {
        /// The backend.
        backend: String,
        /// What to install.
        install: String,
    },
    /// Not enough memory.
    #[error("{message}")]
    Memory {
        /// The device's message.
        message: String,
    },
    /// Data that cannot be used.
    #[error("data: {message}")]
    Data {
        /// What is wrong and what to do.
        message: String,
    },
    /// An error of the engine.
    #[error("{message}")]
    Computation {
        /// The engine's message.
        message: String,
    },
}

impl fmt::Debug for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! messages {
    ($($(#[$doc:meta])+ $name:ident $variant:ident;)+) => { $(
        $(#[$doc])+
        pub fn $name(message: impl Into<String>) -> NetworkError {
            NetworkError::$variant { message: message.into() }
        }
    )+ };
}

impl NetworkError {
    messages! {
        /// A [`NetworkError::Architecture`].
        architecture Architecture;
        /// A [`NetworkError::Training`].
        training Training;
        /// A [`NetworkError::Numerical`].
        numerical Numerical;
        /// A [`NetworkError::Gpu`].
        gpu Gpu;
        /// A [`NetworkError::Data`].
        data Data;
        /// A [`NetworkError::Memory`].
        memory Memory;
        /// A [`NetworkError::Computation`].
        computation Computation;
        /// A [`NetworkError::Serialization`].
        serialization Serialization;
        /// A [`NetworkError::Computation`], of a forward or backward pass.
        propagation Computation;
        /// A [`NetworkError::Gpu`], of CUDA.
        cuda Gpu;
    }

    /// A [`NetworkError::Numerical`] for a search that has not converged after `iterations`.
    pub fn convergence(message: impl Into<String>, iterations: usize) -> NetworkError {
        let message = format!("{} (after {iterations} iterations)", message.into());
        NetworkError::Numerical { message }
    }

    /// A [`NetworkError::DimensionMismatch`].
    pub fn dimension_mismatch(
        what: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> NetworkError {
        NetworkError::DimensionMismatch {
            what: what.into(),
            expected: expected.into(),
            actual: actual.into(),
        }
    }

    /// A [`NetworkError::InvalidParameter`].
    pub fn invalid_parameter(
        parameter: impl Into<String>,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) -> NetworkError {
        NetworkError::InvalidParameter {
            parameter: parameter.into(),
            value: value.to_string(),
            reason: reason.into(),
        }
    }

    /// True if the call may succeed later or with other data, after an error of memory, of a device, or of numbers that
    /// are not finite.
    pub fn is_recoverable(&self) -> bool {
        matches!(
            self,
            NetworkError::Memory { .. } | NetworkError::Gpu { .. } | NetworkError::Numerical { .. }
        )
    }

    /// The kind of error as a word.
    pub fn category(&self) -> &'static str {
        match self {
            NetworkError::Architecture { .. } => "architecture",
            NetworkError::Training { .. } => "training",
            NetworkError::Io { .. } => "io",
            NetworkError::Serialization { .. } => "serialization",
            NetworkError::DimensionMismatch { .. } => "dimensions",
            NetworkError::InvalidParameter { .. } => "parameter",
            NetworkError::Numerical { .. } => "numerical",
            NetworkError::Gpu { .. } => "gpu",
            NetworkError::KernelCompilation { .. } | NetworkError::CompilerMissing { .. } => "kernel",
            NetworkError::Memory { .. } => "memory",
            NetworkError::Data { .. } => "data",
            NetworkError::Computation { .. } => "computation",
        }
    }
}

impl From<phynexus::Error> for NetworkError {
    fn from(error: phynexus::Error) -> NetworkError {
        let message = error.to_string();
        match error {
            phynexus::Error::OutOfMemory { .. } | phynexus::Error::HostMemory { .. } => {
                NetworkError::Memory { message }
            }
            phynexus::Error::UnknownDevice { .. } | phynexus::Error::Device { .. } => {
                NetworkError::Gpu { message }
            }
            phynexus::Error::KernelSource { kernel, device, message, .. } => {
                NetworkError::KernelCompilation { kernel, backend: device, message }
            }
            _ => NetworkError::Computation { message },
        }
    }
}

impl From<neurenix::Error> for NetworkError {
    fn from(error: neurenix::Error) -> NetworkError {
        let message = error.to_string();
        match error {
            neurenix::Error::Engine(error) => error.into(),
            neurenix::Error::Io { .. } => NetworkError::Io { message },
            neurenix::Error::Format { .. } => NetworkError::Serialization { message },
            _ => NetworkError::Computation { message },
        }
    }
}

impl From<std::io::Error> for NetworkError {
    fn from(error: std::io::Error) -> NetworkError {
        NetworkError::Io { message: error.to_string() }
    }
}

impl From<serde_json::Error> for NetworkError {
    fn from(error: serde_json::Error) -> NetworkError {
        NetworkError::serialization(error.to_string())
    }
}

impl From<ndarray::ShapeError> for NetworkError {
    fn from(error: ndarray::ShapeError) -> NetworkError {
        NetworkError::data(error.to_string())
    }
}

/// Checks that a number is finite and in a range.
pub(crate) fn within(name: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = match (least > f64::MIN, most.is_finite()) {
        (true, true) => format!("it must be between {least} and {most}"),
        (true, false) => format!("it must be a finite number of at least {least}"),
        (false, true) => format!("it must be a finite number of at most {most}"),
        (false, false) => "it must be finite".to_owned(),
    };
    Err(NetworkError::invalid_parameter(name, value, reason))
}

/// Checks that a number is finite and above 0.
pub(crate) fn positive(name: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(NetworkError::invalid_parameter(name, value, "it must be finite and above 0"))
}

/// Checks that a number is at least 0 and below 1.
pub(crate) fn below_one(name: &str, value: f64) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(NetworkError::invalid_parameter(name, value, "it must be at least 0 and below 1"))
}
