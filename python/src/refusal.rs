//! The refusal of complex numbers by operations that do not take them.

use pyo3::{create_exception, exceptions::PyTypeError, prelude::*, types::PyComplex};

use crate::error::Failure;

create_exception!(
    neurenix._engine,
    NoComplexNumbers,
    PyTypeError,
    "The operation does not take complex numbers."
);

/// The error of operations that do not take complex numbers.
pub(crate) fn no_complex() -> Failure {
    let message = "this operation does not take complex numbers yet: compute with x.real and x.imag, or with \
                   neurenix.view_as_real(x)";
    Failure::from(NoComplexNumbers::new_err(message))
}

/// Whether an error says that an operation does not take complex numbers.
pub(crate) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<NoComplexNumbers>(py)
}

/// Whether an object is a complex number of Python or NumPy.
pub(crate) fn is_number(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyComplex>()
}
