//! Functions of tensors that are recorded once and replayed.

use std::sync::{Mutex, MutexGuard};

use neurenix::{optim::Optimizer, train::Recorded};
use phynexus::Tensor;
use pyo3::prelude::*;

use crate::{
    argument::tensors,
    error::{Failure, Result},
    interrupt::compute_undisturbed,
    optim::PyOptimizer,
    placement,
    refusal::no_complex,
    tensor::PyTensor,
};

/// Returns whether this thread records a function. Tensor values cannot be read while it does.
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    phynexus::schedule::capture::is_recording()
}

/// How often the function that this thread records has drawn random numbers so far.
#[pyfunction]
pub(crate) fn recorded_draws() -> usize {
    phynexus::schedule::capture::draws()
}

/// An optimizer of a recorded function, with the learning rate and weight decay of each group.
type Stepping<'py> = (Bound<'py, PyOptimizer>, Vec<(f64, f64)>);

/// A function from a list of tensors to a list of tensors, recorded for one combination of shapes and dtypes. Tensors
/// that it reads otherwise are read again at each run, and those that it changes are changed.
#[pyclass(name = "Recorded", module = "neurenix._engine", frozen)]
pub(crate) struct PyRecorded(Recorded);

#[pymethods]
impl PyRecorded {
    /// Records ``function(given)``. It is called now, but computes nothing.
    #[new]
    fn new(py: Python<'_>, function: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> Result<PyRecorded> {
        let given = plain(given)?;
        let recorded = Recorded::of(&given, |copies| -> Result<Vec<Tensor>, Failure> {
            let copies: Vec<_> = copies.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect();
            tensors(&function.call1((copies,))?)
        });
        Ok(PyRecorded(placement::behind(py, recorded)?))
    }
    /// The number of optimizers' steps that a run takes.
    fn steps(&self) -> usize {
        self.0.steps()
    }
    /// Runs the recording. Returns evaluated tensors, or ``None`` if it does not fit these tensors and optimizers.
    fn run<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyAny>,
        optimizers: Vec<Stepping<'py>>,
    ) -> Result<Option<Vec<Bound<'py, PyTensor>>>> {
        let given = plain(given)?;
        // Locked in one order everywhere, so that two threads never wait for each other.
        let mut order: Vec<usize> = (0..optimizers.len()).collect();
        order.sort_by_key(|&position| optimizers[position].0.as_ptr().addr());
        let mut guards: Vec<Option<MutexGuard<'_, Optimizer>>> = optimizers.iter().map(|_| None).collect();
        for position in order {
            let (optimizer, settings) = &optimizers[position];
            let mut native = optimizer.get().lock(py);
            for (group, (rate, decay)) in settings.iter().enumerate() {
                native.set_group(group, *rate, *decay)?;
            }
            guards[position] = Some(native);
        }
        let mut locked: Vec<MutexGuard<'_, Optimizer>> = guards.into_iter().flatten().collect();
        let stepping =
            Mutex::new(locked.iter_mut().map(|guard| &mut **guard).collect::<Vec<&mut Optimizer>>());
        let result = compute_undisturbed(py, || {
            let mut stepping = stepping.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.0.run(&given, &mut stepping)
        });
        drop(stepping);
        drop(locked);
        let Some(results) = placement::behind(py, result)? else { return Ok(None) };
        let results = results.into_iter().map(|result| Bound::new(py, PyTensor::wrap(result)));
        Ok(Some(results.collect::<PyResult<Vec<_>>>()?))
    }
}

/// The values of tensors, without gradients.
fn plain(given: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    Ok(tensors(given)?.iter().map(Tensor::detach).collect::<phynexus::Result<Vec<_>>>()?)
}

#[pymethods]
impl PyTensor {
    /// Replaces the tensor that this object holds; the new one may have another dtype and device.
    fn _exchange(&self, value: &PyTensor) -> Result<()> {
        if self.special.is_complex() != value.special.is_complex() {
            return Err(no_complex());
        }
        let variable = self.variable();
        if value.variable().is_same(variable) {
            return Ok(());
        }
        let trainable = variable.is_trainable();
        variable.set_trainable(false);
        let result = variable.convert_to(value.variable().tensor());
        variable.set_trainable(trainable);
        Ok(result?)
    }
    /// Whether gradients could still flow back from this tensor to others.
    fn _has_graph(&self) -> Result<bool> {
        Ok(!self.special.is_plain() && self.tensor()?.has_graph())
    }
}
