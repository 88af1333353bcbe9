//! What values need of the extension module that they are in: it finds the machine's devices, computes so that Ctrl-C ends
//! it, knows which exceptions the engine's errors are, and has a rule for arguments that count.

use std::sync::OnceLock;

use phynexus::Device;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

/// A computation of the engine's that gives numbers.
pub type Work<'a> = Box<dyn FnOnce() -> phynexus::Result<Vec<f64>> + Send + 'a>;

/// Functions of the extension module.
pub struct Host {
    /// Finds the machine's devices, unless it has done so before. Threads need not be attached.
    pub register_devices: fn(),
    /// The device of a name. Threads need not be attached.
    pub find_device: fn(&str) -> PyResult<Device>,
    /// Computes while other threads of Python go on, and without running functions of the user's: locks are held.
    pub compute: fn(Python<'_>, Work<'_>) -> PyResult<Vec<f64>>,
    /// The exception that an error of the engine's is.
    pub exception: fn(phynexus::Error) -> PyErr,
    /// The number of things that an argument is.
    pub count: fn(&Bound<'_, PyAny>) -> PyResult<usize>,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Sets the functions, once: those of another call would be the same.
pub(crate) fn begin(host: Host) {
    HOST.get_or_init(|| host);
}

/// The functions, which are set before there are classes.
pub(crate) fn host() -> PyResult<&'static Host> {
    HOST.get().ok_or_else(|| PyRuntimeError::new_err("the module of micrograd_rs has not been made"))
}

/// The exception that an error of the engine's is.
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
