//! Errors of the engine as Python's exceptions, with the engine's message.

use neurenix::Error as FrameworkError;
use phynexus::Error as EngineError;
use pyo3::{
    PyErr,
    exceptions::{
        PyFileNotFoundError, PyIndexError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError,
        PyTypeError, PyValueError,
    },
};

/// An error on its way to Python.
pub(crate) struct Failure(PyErr);

/// The result of what Python calls.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        failure.0
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure(error)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let message = error.to_string();
        Failure(match error {
            EngineError::Shape { .. }
            | EngineError::Argument { .. }
            | EngineError::DeviceMismatch { .. }
            | EngineError::UnknownDevice { .. }
            | EngineError::KernelArgument { .. } => PyValueError::new_err(message),
            EngineError::DType { .. } => PyTypeError::new_err(message),
            EngineError::Axis { .. } | EngineError::Index { .. } => PyIndexError::new_err(message),
            EngineError::OutOfMemory { .. } => PyMemoryError::new_err(message),
            _ => PyRuntimeError::new_err(message),
        })
    }
}

impl From<FrameworkError> for Failure {
    fn from(error: FrameworkError) -> Failure {
        match error {
            FrameworkError::Engine(error) => error.into(),
            FrameworkError::Io { ref source, .. } => {
                let message = error.to_string();
                Failure(match source.kind() {
                    std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
                    std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
                    _ => PyOSError::new_err(message),
                })
            }
            other => Failure(PyValueError::new_err(other.to_string())),
        }
    }
}

/// A `TypeError`.
pub(crate) fn type_error(message: impl Into<String>) -> Failure {
    Failure(PyTypeError::new_err(message.into()))
}

/// A `ValueError`.
pub(crate) fn value_error(message: impl Into<String>) -> Failure {
    Failure(PyValueError::new_err(message.into()))
}

/// A `RuntimeError`.
pub(crate) fn runtime_error(message: impl Into<String>) -> Failure {
    Failure(PyRuntimeError::new_err(message.into()))
}
