//! Complex numbers. A complex tensor is an instance of ``neurenix._complex.ComplexTensor``, a subclass of ``Tensor``. Its
//! variable holds pairs of parts; a mark says so. [`PyTensor::tensor`] refuses a marked tensor, so that an operation that
//! does not know complex numbers never takes the pairs for numbers. The subclass overrides the methods that do.

pub(crate) mod functions;

use neurenix::complex::Complex;
use phynexus::{DType, Tensor};
use pyo3::{prelude::*, types::PyModule};

use crate::{
    error::{Result, type_error},
    variable::PyTensor,
};

/// A tensor that is to be seen as complex numbers: the argument from which ``ComplexTensor`` is made.
#[pyclass(name = "Pair", module = "neurenix._engine", frozen)]
pub(crate) struct PyPair(PyTensor);

#[pymethods]
impl PyPair {
    /// Pairs of parts along the last axis, in ``float32`` or ``float64``.
    #[new]
    fn new(pair: &PyTensor) -> Result<PyPair> {
        Complex::from_pair(&pair.tensor()?)?;
        Ok(PyPair(pair.seen(true)))
    }
    /// The pairs of a complex tensor, which share its place.
    #[staticmethod]
    fn of(tensor: &PyTensor) -> Result<PyTensor> {
        if !tensor.special.is_complex() {
            return Err(type_error("expected a complex tensor"));
        }
        Ok(tensor.seen(false))
    }
}

impl PyPair {
    /// The complex tensor, which shares the place of the pairs, or a new leaf.
    pub(crate) fn tensor(&self, requires_grad: bool) -> Result<PyTensor> {
        if !requires_grad {
            return Ok(self.0.seen(true));
        }
        Ok(PyTensor::trainable(&self.0.seen(false).tensor()?.detach()?)?.seen(true))
    }
}

/// An instance of ``ComplexTensor`` for pairs.
pub(crate) fn wrapped<'py>(py: Python<'py>, pair: &PyTensor) -> Result<Bound<'py, PyTensor>> {
    let class = PyModule::import(py, "neurenix._complex")?.getattr("ComplexTensor")?;
    let made = class.call1((PyPair(pair.seen(true)),))?;
    made.cast_into().map_err(|_| type_error("expected a tensor"))
}

/// Real numbers as complex ones with parts of this dtype.
pub(crate) fn from_real<'py>(
    py: Python<'py>,
    real: &Tensor,
    component: DType,
) -> Result<Bound<'py, PyTensor>> {
    let complex = Complex::from_real(&real.to_dtype(component)?)?;
    wrapped(py, &PyTensor::wrap(complex.pair().clone()))
}

/// A real tensor as a complex one.
pub(crate) fn as_complex<'py>(py: Python<'py>, real: &PyTensor) -> Result<Bound<'py, PyAny>> {
    let real = real.tensor()?;
    Ok(from_real(py, &real, neurenix::complex::component(real.dtype()))?.into_any())
}
