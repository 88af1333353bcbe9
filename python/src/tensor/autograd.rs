//! Gradients.

use std::{cell::RefCell, sync::Arc};

use neurenix::nn::Parameter;
use phynexus::{
    GradientMode as Guard, Tensor,
    gradient::{is_enabled, record_gradients},
    graph::HookHandle,
};
use pyo3::{prelude::*, types::PyTuple};

use super::{PyTensor, collect::PyHook};
use crate::{
    argument::tensors,
    dtype::tensor_of,
    error::{Failure, Result, runtime_error, type_error},
    interrupt::compute,
    place::stand_in::Special,
};

impl PyTensor {
    /// Whether gradients are collected here.
    pub(crate) fn collects(&self) -> bool {
        self.place().is_trainable() && !self.special.is_plain()
    }

    /// Collects gradients from now on.
    pub(crate) fn require_grad(&self) -> Result<()> {
        let place = self.place();
        let dtype = place.tensor().dtype();
        if !dtype.is_float() {
            return Err(runtime_error(format!(
                "{} has no gradient: only floating-point ones have",
                tensor_of(dtype)
            )));
        }
        if self.special.is_plain() {
            self.special.part(Parameter::buffer(place.tensor().detach()?));
        }
        let place = self.place();
        place.set_trainable(true);
        place.leaf()?;
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    /// Whether gradients flow to or through this tensor.
    #[getter]
    fn requires_grad(&self) -> bool {
        !self.special.is_plain() && (self.collects() || self.place().tensor().requires_grad())
    }
    #[setter]
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let tensor = self.place().tensor();
        if !requires_grad && !self.collects() && !self.special.is_plain() && tensor.requires_grad() {
            return Err(runtime_error("only a leaf can stop requiring gradients: use detach()"));
        }
        if requires_grad == self.collects() {
            return Ok(());
        }
        if requires_grad {
            // What gradients flow through already need not collect them.
            let flow = tensor.requires_grad() && !self.special.is_plain();
            return if flow { Ok(()) } else { self.require_grad() };
        }
        let gradient = self.place().leaf()?.grad();
        self.place().set_trainable(false);
        self.place().leaf()?.set_grad(gradient);
        Ok(())
    }
    /// Asks for gradients, or no longer.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> Result<Bound<'py, Self>> {
        slf.get().set_requires_grad(requires_grad)?;
        Ok(slf.clone())
    }
    /// Whether this tensor is no result of operations through which gradients flow.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.special.is_plain() || self.collects() || !self.place().tensor().requires_grad()
    }
    /// The gradient that ``backward`` collected, or ``None``.
    #[getter]
    fn grad(&self) -> Result<Option<PyTensor>> {
        if self.special.is_plain() {
            return Ok(None);
        }
        let gradient = self.tensor()?.grad();
        Ok(gradient
            .map(|gradient| PyTensor { owner: Some(self.place().into_owned()), ..PyTensor::wrap(gradient) }))
    }
    #[setter]
    fn set_grad(&self, gradient: Option<&PyTensor>) -> Result<()> {
        let leaf = self.tensor()?;
        let gradient =
            gradient.map(|gradient| gradient.tensor()?.detach().map_err(Failure::from)).transpose()?;
        if let Some(gradient) = &gradient
            && (gradient.shape() != leaf.shape() || gradient.device() != leaf.device())
        {
            let hint = "a gradient has the shape and device of its tensor";
            return Err(phynexus::Error::shape("grad", &[leaf.shape(), gradient.shape()], hint).into());
        }
        if let Some(gradient) = &gradient
            && gradient.dtype() != leaf.dtype()
        {
            let hint = "a gradient has the dtype of its tensor";
            return Err(phynexus::Error::dtype("grad", &[leaf.dtype(), gradient.dtype()], hint).into());
        }
        if !self.collects() && gradient.is_some() {
            return Err(runtime_error("this tensor does not collect gradients: see requires_grad_()"));
        }
        leaf.set_grad(gradient);
        Ok(())
    }
    /// Forgets the collected gradient.
    fn _clear_grad(&self) -> Result<()> {
        if self.place().is_trainable() {
            self.tensor()?.set_grad(None);
        }
        Ok(())
    }
    /// Differentiates this scalar and adds the gradients to ``grad`` of every leaf that asked for them. For a tensor of
    /// another shape, ``gradient`` is the gradient of some loss with respect to it. With ``create_graph`` the gradients can be
    /// differentiated again; they keep the graph until ``grad`` is cleared.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<&PyTensor>,
        retain_graph: Option<bool>,
        create_graph: bool,
    ) -> Result<()> {
        if create_graph && retain_graph == Some(false) {
            return Err(runtime_error(
                "backward: create_graph=True keeps the graph: retain_graph=False cannot be",
            ));
        }
        let tensor = self.tensor()?;
        let gradient = gradient.map(PyTensor::tensor).transpose()?;
        compute(py, || match gradient {
            gradient if create_graph => tensor.backward_create_graph(gradient.as_ref()),
            Some(gradient) => tensor.backward_from(&gradient, retain_graph == Some(true)),
            None if retain_graph == Some(true) => tensor.backward_retain(),
            None => tensor.backward(),
        })
    }
    /// Calls ``hook(gradient)`` whenever a gradient of this tensor is found; a tensor that it gives takes the gradient's place.
    /// ``remove()`` of the result takes the hook away.
    fn register_hook(&self, hook: Py<PyAny>) -> Result<GradientHook> {
        if self.special.is_plain() || !self.requires_grad() {
            return Err(runtime_error("cannot register a hook on a tensor that doesn't require gradient"));
        }
        Ok(GradientHook(self.tensor()?.add_hook(Arc::new(PyHook(hook)))?))
    }
    /// Keeps this tensor's gradient in ``grad`` after ``backward``, though it is no leaf.
    fn retain_grad(&self) -> Result<()> {
        if self.special.is_plain() || !self.requires_grad() {
            return Err(runtime_error("can't retain_grad on Tensor that has requires_grad=False"));
        }
        Ok(self.tensor()?.retain_grad()?)
    }
    /// Whether ``retain_grad`` was asked for of a tensor that is no leaf.
    #[getter]
    fn retains_grad(&self) -> bool {
        !self.special.is_plain() && self.place().tensor().retains_grad()
    }
    /// The values without gradients, as ``data``. Those of a result through which gradients flow are in a place of their own,
    /// which does not keep its graph.
    fn detach(&self) -> Result<PyTensor> {
        let tensor = self.place().tensor();
        if tensor.requires_grad() && !self.collects() && !self.special.is_plain() {
            return Ok(self.view_of(tensor.detach()?));
        }
        Ok(self.data())
    }
    /// Without a gradient, in place.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        if slf.get().special.is_plain() {
            return Ok(slf.clone());
        }
        let place = slf.get().place();
        if place.is_trainable() {
            place.set_trainable(false);
        }
        let detached = place.tensor().detach()?;
        place.set(detached)?;
        Ok(slf.clone())
    }
    /// The values, without gradients: changes in place change this tensor. Assigning puts others of the same shape into the
    /// place.
    #[getter]
    fn data(&self) -> PyTensor {
        PyTensor {
            own: self.place().into_owned(),
            owner: self.owner.clone(),
            viewed: self.viewed.clone(),
            special: Special::plain(),
        }
    }
    #[setter]
    fn set_data(&self, value: &PyTensor) -> Result<()> {
        let value = value.tensor()?.detach()?;
        let old = self.tensor()?;
        if value.shape() != old.shape() {
            let hint = "the new data has the shape of the old";
            return Err(phynexus::Error::shape("data", &[old.shape(), value.shape()], hint).into());
        }
        let gradient = old.grad();
        self.place().convert_to(value.to_dtype(old.dtype())?.to_device(old.device())?)?;
        if gradient.is_some() && self.place().is_trainable() {
            self.place().leaf()?.set_grad(gradient);
        }
        Ok(())
    }
}

/// A hook of a tensor's gradient.
#[pyclass(module = "neurenix._engine", frozen)]
pub(crate) struct GradientHook(HookHandle);

#[pymethods]
impl GradientHook {
    /// Takes the hook away.
    fn remove(&self) {
        self.0.remove();
    }
    fn __enter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.remove();
    }
}

/// Leaves gradients out while it is entered: what ``no_grad`` and its kin are made of.
#[pyclass(module = "neurenix._engine", frozen)]
pub(crate) struct GradientMode {
    enabled: bool,
}

thread_local! {
    static GUARDS: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
}

#[pymethods]
impl GradientMode {
    #[new]
    fn new(enabled: bool) -> GradientMode {
        GradientMode { enabled }
    }
    fn __enter__(&self) {
        let guard = record_gradients(self.enabled);
        GUARDS.with_borrow_mut(|guards| guards.push(guard));
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        drop(GUARDS.with_borrow_mut(Vec::pop));
    }
}

/// Whether operations are recorded for gradients on this thread.
#[pyfunction]
pub(crate) fn is_grad_enabled() -> bool {
    is_enabled()
}

/// Sets from now on whether operations are recorded for gradients on this thread.
#[pyfunction]
pub(crate) fn switch_gradients(enabled: bool) {
    // Without its end the guard leaves the mode as it is.
    std::mem::forget(record_gradients(enabled));
}

/// The gradients of ``output`` with respect to ``inputs``; ``grad`` of leaves is not touched.
#[pyfunction]
#[pyo3(signature = (output, inputs, grad_output=None, create_graph=false))]
pub(crate) fn gradients(
    py: Python<'_>,
    output: &PyTensor,
    inputs: &Bound<'_, PyAny>,
    grad_output: Option<&PyTensor>,
    create_graph: bool,
) -> Result<Vec<PyTensor>> {
    let output = output.tensor()?;
    let inputs = tensors(inputs)?;
    let given = grad_output.map(PyTensor::tensor).transpose()?;
    let results = compute(py, || {
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        match given {
            Some(given) => output.vector_jacobian_product(&given, &inputs, create_graph),
            None if create_graph => output.gradients_create_graph(&inputs),
            None => output.gradients(&inputs),
        }
    })?;
    Ok(results.into_iter().map(PyTensor::wrap).collect())
}

/// Whether a tensor depends on leaves that collect gradients, other than these.
#[pyfunction]
pub(crate) fn depends_on_others(tensor: &PyTensor, variables: &Bound<'_, PyAny>) -> Result<bool> {
    let variables = tensors(variables)?;
    let leaves = tensor.tensor()?.gradient_leaves()?;
    Ok(leaves.iter().any(|leaf| !variables.iter().any(|variable| variable.is_same(leaf))))
}

/// A leaf with a tensor's values for which gradients are found; used by ``grad`` and its kin.
#[pyfunction]
pub(crate) fn as_variable(tensor: &Bound<'_, PyAny>) -> Result<PyTensor> {
    let Ok(tensor) = tensor.cast::<PyTensor>() else {
        return Err(type_error("gradients are with respect to tensors"));
    };
    let tensor = tensor.get().tensor()?;
    // What can be differentiated stays connected, so that gradients of gradients find their way.
    if tensor.requires_grad() {
        return Ok(PyTensor::wrap(tensor.reshape(tensor.shape())?));
    }
    Ok(PyTensor::wrap(tensor.with_grad()?))
}

/// Computes several tensors together.
#[pyfunction]
pub(crate) fn evaluate(py: Python<'_>, tensors: &Bound<'_, PyAny>) -> Result<()> {
    let tensors = crate::argument::tensors(tensors)?;
    compute(py, || Tensor::evaluate_all(&tensors.iter().collect::<Vec<_>>()))
}
