//! Reads of integers that go on while the host continues.

use std::sync::{Mutex, PoisonError};

use phynexus::{DType, Error, tensor::Reading};
use pyo3::prelude::*;

use super::PyTensor;
use crate::{error::Result, interrupt::compute};

/// A read of integers that goes on while the host continues: work that is submitted later is not waited for.
#[pyclass(name = "Reading", module = "neurenix._engine", frozen)]
pub(crate) struct PyReading(Mutex<Option<Reading<i64>>>);

#[pymethods]
impl PyReading {
    /// Waits for the integers, which are handed out once.
    fn wait(&self, py: Python<'_>) -> Result<Vec<i64>> {
        let reading = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = || Error::argument("wait", "the integers have been handed out already");
        compute(py, || reading.ok_or_else(taken)?.wait())
    }
}

#[pymethods]
impl PyTensor {
    /// Computes ``int64`` numbers and begins to read them. Work that is submitted later is not waited for.
    fn _begin_read(&self, py: Python<'_>) -> Result<PyReading> {
        let tensor = self.evaluated(py)?;
        let integers = tensor.to_dtype(DType::I64)?;
        let reading = compute(py, || integers.to_vec_async::<i64>())?;
        Ok(PyReading(Mutex::new(Some(reading))))
    }
}
