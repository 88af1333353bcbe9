//! Functions of tensors that are recorded once and replayed.

use phynexus::{Tensor, schedule::capture::Captured};
use pyo3::{prelude::*, types::PyTuple};

use crate::{
    argument::tensors,
    error::{Failure, Result},
    interrupt::compute,
    tensor::PyTensor,
};

type Function = Box<dyn Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>, Failure> + Send + Sync>;

/// Whether a function is being recorded, so that nothing can be read.
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    phynexus::schedule::capture::is_recording()
}

/// A function of a list of tensors that gives a list of tensors, recorded for each combination of shapes and dtypes.
#[pyclass(name = "Captured", module = "neurenix._engine", frozen)]
pub(crate) struct PyCaptured(Captured<Function>);

#[pymethods]
impl PyCaptured {
    #[new]
    fn new(function: Py<PyAny>) -> PyCaptured {
        PyCaptured(Captured::new(Box::new(move |_given, kept| {
            Python::attach(|py| {
                let arguments: Vec<_> = kept.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect();
                tensors(&function.bind(py).call1((arguments,))?)
            })
        })))
    }
    /// The results, computed.
    fn __call__<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyAny>) -> Result<Bound<'py, PyTuple>> {
        let kept = tensors(arguments)?;
        let kept = kept.iter().map(Tensor::detach).collect::<phynexus::Result<Vec<_>>>()?;
        let results = compute(py, || self.0.call(&mut Vec::new(), &kept))?;
        let results = results.into_iter().map(|result| Bound::new(py, PyTensor::wrap(result)));
        Ok(PyTuple::new(py, results.collect::<PyResult<Vec<_>>>()?)?)
    }
}

#[pymethods]
impl PyTensor {
    /// Puts another tensor itself into the place, of any dtype and device.
    fn _exchange(&self, value: &PyTensor) -> Result<()> {
        let place = self.place();
        let trainable = place.is_trainable();
        place.set_trainable(false);
        let result = place.convert_to(value.place().tensor());
        place.set_trainable(trainable);
        Ok(result?)
    }
}
