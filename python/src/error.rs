//! Conversion of engine errors to Python exceptions. The message is the engine's.

use neurenix::Error as FrameworkError;
use phynexus::Error as EngineError;
use pyo3::{
    PyErr, Python,
    exceptions::{
        PyFileNotFoundError, PyIndexError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError,
        PyTypeError, PyValueError,
    },
};

/// An error that becomes a Python exception.
pub(crate) struct Failure(PyErr);

/// The result of functions that Python calls.
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

/// Rust names in the engine's messages and their Python equivalents, replaced in this order.
const NAMES: &[(&str, &str)] = &[
    ("convert with .to_dtype(int64)", "convert with .long()"),
    (".to_dtype(float32)", ".float()"),
    (".to_dtype()", ".to(dtype)"),
    (".to_dtype(", ".to("),
    (".to_device()", ".to(device)"),
    (
        "make leaves with .with_grad(), and compute outside no_grad()",
        "make leaves with requires_grad=True, and compute outside no_grad()",
    ),
    ("with_grad", "requires_grad_"),
    ("backward_retain()", "backward(retain_graph=True)"),
    ("with backward_from()", "as backward(gradient=...)"),
    ("with vector_jacobian_product()", "as grad(..., grad_outputs=...)"),
    ("gradients: shape", "grad: shape"),
    ("gradients: dtype", "grad: dtype"),
    ("compare with .ne_scalar(0)", "compare with != 0"),
    ("give it one with .gradient()", "give it one with gradient="),
    ("Parameter::set", "in place"),
    ("Parameter::convert_to", "data"),
    ("Parameter::convert", "to"),
];

/// Replaces Rust names in a message by Python names.
fn in_python(message: String) -> String {
    NAMES.iter().fold(message, |message, (rust, python)| match message.contains(rust) {
        true => message.replace(rust, python),
        false => message,
    })
}

/// Wraps a Python exception so that it can pass through the engine.
pub(crate) fn through_engine(error: PyErr) -> EngineError {
    EngineError::Callback(std::sync::Arc::new(error))
}

/// The exception type of an error. It depends on the error's variant only, never on the message.
fn exception(error: &FrameworkError) -> fn(String) -> PyErr {
    match error {
        FrameworkError::Engine(error) => match error {
            EngineError::Shape { .. }
            | EngineError::Argument { .. }
            | EngineError::DeviceMismatch { .. }
            | EngineError::UnknownDevice { .. }
            | EngineError::KernelArgument { .. } => PyValueError::new_err,
            EngineError::DType { .. } | EngineError::KernelDType { .. } => PyTypeError::new_err,
            EngineError::Axis { .. } | EngineError::Index { .. } | EngineError::SomeIndex { .. } => {
                PyIndexError::new_err
            }
            EngineError::OutOfMemory { .. } | EngineError::HostMemory { .. } => PyMemoryError::new_err,
            _ => PyRuntimeError::new_err,
        },
        FrameworkError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err,
            std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err,
            _ => PyOSError::new_err,
        },
        FrameworkError::Memory { .. } => PyMemoryError::new_err,
        FrameworkError::Format { .. } | FrameworkError::Data { .. } => PyValueError::new_err,
        _ => PyRuntimeError::new_err,
    }
}

impl Failure {
    /// The exception of an engine's error, with another message.
    pub(crate) fn with_message(error: EngineError, message: String) -> Failure {
        match error {
            EngineError::Callback(_) => error.into(),
            _ => Failure(exception(&FrameworkError::Engine(error))(in_python(message))),
        }
    }
}

impl From<FrameworkError> for Failure {
    fn from(error: FrameworkError) -> Failure {
        // An exception raised by a Python callback is raised again unchanged.
        if let FrameworkError::Engine(EngineError::Callback(inner)) = &error
            && let Some(raised) = inner.downcast_ref::<PyErr>()
        {
            return Failure(Python::attach(|py| raised.clone_ref(py)));
        }
        Failure(exception(&error)(in_python(error.to_string())))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        FrameworkError::Engine(error).into()
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

/// An `IndexError`.
pub(crate) fn index_error(message: impl Into<String>) -> Failure {
    Failure(PyIndexError::new_err(message.into()))
}

/// A `RuntimeError`.
pub(crate) fn runtime_error(message: impl Into<String>) -> Failure {
    Failure(PyRuntimeError::new_err(message.into()))
}

/// Applies the table of names; for its test.
#[pyo3::pyfunction]
pub(crate) fn _translated(message: String) -> String {
    in_python(message)
}
