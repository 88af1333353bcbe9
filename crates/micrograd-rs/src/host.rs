//! Services that values need from the extension module that contains them: registering devices, interruptible
//! computation, exception types, and validation of counts.

use std::sync::OnceLock;

use phynexus::Device;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// A computation of the engine that returns numbers.
pub type Work<'a> = Box<dyn FnOnce() -> phynexus::Result<Vec<f64>> + Send + 'a>;

/// Functions of the extension module.
pub struct Host {
    /// Registers the machine's devices, once. The thread need not be attached.
    pub register_devices: fn(),
    /// Finds a device by name. The thread need not be attached.
    pub find_device: fn(&str) -> PyResult<Device>,
    /// Computes without the GIL and without running user-defined signal handlers, because locks are held.
    pub compute: fn(Python<'_>, Work<'_>) -> PyResult<Vec<f64>>,
    /// Converts an engine error to an exception.
    pub exception: fn(phynexus::Error) -> PyErr,
    /// Validates an argument that is a count.
    pub count: fn(&Bound<'_, PyAny>) -> PyResult<usize>,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Sets the functions. Later calls would set the same ones and have no effect.
pub(crate) fn begin(host: Host) {
    HOST.get_or_init(|| host);
}

/// The functions, which are set before the classes exist.
pub(crate) fn host() -> PyResult<&'static Host> {
    HOST.get().ok_or_else(|| PyRuntimeError::new_err("the micrograd_rs module is not initialized"))
}

/// Converts an engine error to an exception.
pub(crate) fn exception(error: phynexus::Error) -> PyErr {
    match host() {
        Ok(host) => (host.exception)(error),
        Err(missing) => missing,
    }
}

/// A number of inputs or neurons.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Count> {
        (host()?.count)(&object).map(Count)
    }
}
