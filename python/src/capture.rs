//! Functions of tensors that are recorded once and replayed.

use std::sync::{Arc, Mutex, PoisonError};

use phynexus::{Tensor, schedule::capture::Captured};
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyTuple};

use crate::{
    argument::tensors,
    error::{Failure, Result, runtime_error},
    interrupt::compute,
    tensor::PyTensor,
};

type Function = Box<dyn Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>, Failure> + Send + Sync>;

/// Returns whether this thread records a function. Tensor values cannot be read while it does.
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    phynexus::schedule::capture::is_recording()
}

/// A function from a list of tensors to a list of tensors, recorded once per combination of shapes and dtypes.
#[pyclass(name = "Captured", module = "neurenix._engine", frozen)]
pub(crate) struct PyCaptured {
    captured: Captured<Function>,
    /// The Python function; `None` after the garbage collector cleared it.
    function: Arc<Mutex<Option<Py<PyAny>>>>,
}

#[pymethods]
impl PyCaptured {
    #[new]
    fn new(function: Py<PyAny>) -> PyCaptured {
        let function = Arc::new(Mutex::new(Some(function)));
        let called = function.clone();
        let captured = Captured::new(Box::new(move |_given: &[Tensor], kept: &[Tensor]| {
            Python::attach(|py| {
                let place = called.lock().unwrap_or_else(PoisonError::into_inner);
                let function = place.as_ref().map(|function| function.clone_ref(py));
                drop(place);
                let function =
                    function.ok_or_else(|| runtime_error("the captured function was garbage collected"))?;
                let arguments: Vec<_> = kept.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect();
                tensors(&function.bind(py).call1((arguments,))?)
            })
        }) as Function);
        PyCaptured { captured, function }
    }
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.function.try_lock().as_deref() {
            Ok(Some(function)) => visit.call(function),
            _ => Ok(()),
        }
    }
    fn __clear__(&self) {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(function);
    }
    /// Runs the function or its recording. Returns evaluated tensors.
    fn __call__<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyAny>) -> Result<Bound<'py, PyTuple>> {
        let kept = tensors(arguments)?;
        let kept = kept.iter().map(Tensor::detach).collect::<phynexus::Result<Vec<_>>>()?;
        let results = compute(py, || self.captured.call(&mut Vec::new(), &kept))?;
        let results = results.into_iter().map(|result| Bound::new(py, PyTensor::wrap(result)));
        Ok(PyTuple::new(py, results.collect::<PyResult<Vec<_>>>()?)?)
    }
}

#[pymethods]
impl PyTensor {
    /// Replaces the tensor that this object holds; the new one may have another dtype and device.
    fn _exchange(&self, value: &PyTensor) -> Result<()> {
        let variable = self.variable();
        let trainable = variable.is_trainable();
        variable.set_trainable(false);
        let result = variable.convert_to(value.variable().tensor());
        variable.set_trainable(trainable);
        Ok(result?)
    }
}
