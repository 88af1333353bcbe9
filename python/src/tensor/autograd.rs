//! Autograd: gradients, hooks and gradient modes.

use std::{cell::RefCell, sync::Arc};

use neurenix::nn::ViewStep;
use phynexus::{
    GradientMode as Guard, Tensor,
    gradient::{is_enabled, record_gradients},
    graph::HookHandle,
    schedule::capture::is_recording,
};
use pyo3::{prelude::*, types::PyTuple};

use super::{PyTensor, collect::PyHook, transforms};
use crate::{
    argument::tensors,
    dtype::tensor_of,
    error::{Failure, Result, runtime_error, type_error},
    interrupt::compute,
    variable::special::Special,
};

impl PyTensor {
    /// Whether this tensor is a leaf that accumulates gradients.
    pub(crate) fn collects(&self) -> bool {
        self.variable().is_trainable() && !self.special.is_plain()
    }

    /// What holds this tensor's gradient.
    fn collector(&self) -> Result<Tensor> {
        if self.collects() { Ok(self.variable().collector()?) } else { self.tensor() }
    }

    /// Turns this tensor into a leaf that accumulates gradients.
    pub(crate) fn require_grad(&self) -> Result<()> {
        let variable = self.variable();
        let dtype = variable.tensor().dtype();
        if !dtype.is_float() {
            return Err(runtime_error(format!(
                "{} cannot require gradients: only floating-point tensors can",
                tensor_of(dtype)
            )));
        }
        if dtype.float8().is_some() {
            return Err(type_error(format!(
                "{} cannot require gradients: keep numbers that are trained in float32, and multiply them within \
                 autocast(dtype=float8_e4m3fn)",
                tensor_of(dtype)
            )));
        }
        if self.special.is_plain() {
            self.special.part(self.own.view(ViewStep::Detach, variable.fresh()?.detach()?));
        }
        let variable = self.variable();
        variable.set_trainable(true);
        variable.leaf()?;
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    /// Whether autograd tracks this tensor.
    #[getter]
    fn requires_grad(&self) -> bool {
        !self.special.is_plain() && (self.collects() || self.variable().tensor().requires_grad())
    }
    #[setter]
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let tensor = self.variable().tensor();
        if !requires_grad && !self.collects() && !self.special.is_plain() && tensor.requires_grad() {
            return Err(runtime_error("requires_grad can be turned off only for leaves: use detach()"));
        }
        if requires_grad == self.collects() {
            return Ok(());
        }
        if requires_grad {
            // A result that autograd already tracks need not become a leaf.
            let flow = tensor.requires_grad() && !self.special.is_plain();
            return if flow { Ok(()) } else { self.require_grad() };
        }
        let gradient = self.variable().leaf()?.grad();
        self.variable().set_trainable(false);
        self.variable().leaf()?.set_grad(gradient);
        Ok(())
    }
    /// Sets ``requires_grad`` in place and returns the tensor.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> Result<Bound<'py, Self>> {
        slf.get().set_requires_grad(requires_grad)?;
        Ok(slf.clone())
    }
    /// Whether this tensor is a leaf of the autograd graph: created by the user, or not tracked at all.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.special.is_plain() || self.collects() || !self.variable().tensor().requires_grad()
    }
    /// The gradient that ``backward`` accumulated, or ``None``.
    #[getter]
    fn grad(&self) -> Result<Option<PyTensor>> {
        if self.special.is_plain() {
            return Ok(None);
        }
        let gradient = self.variable().gradient()?;
        Ok(gradient.map(|gradient| PyTensor::at(gradient, Special::none())))
    }
    #[setter]
    fn set_grad(&self, gradient: Option<&PyTensor>) -> Result<()> {
        let leaf = self.collector()?;
        if let (Some(given), Some(known)) = (gradient, self.variable().gradient()?)
            && known.is_same(given.variable())
        {
            return Ok(());
        }
        let gradient =
            gradient.map(|gradient| gradient.tensor()?.detach().map_err(Failure::from)).transpose()?;
        if let Some(gradient) = &gradient
            && (gradient.shape() != leaf.shape() || gradient.device() != leaf.device())
        {
            let hint = "a gradient must have the shape and device of its tensor";
            return Err(phynexus::Error::shape("grad", &[leaf.shape(), gradient.shape()], hint).into());
        }
        if let Some(gradient) = &gradient
            && gradient.dtype() != leaf.dtype()
        {
            let hint = "a gradient must have the dtype of its tensor";
            return Err(phynexus::Error::dtype("grad", &[leaf.dtype(), gradient.dtype()], hint).into());
        }
        // A frozen parameter keeps its gradient, which clipping replaces.
        if !self.collects() && gradient.is_some() && leaf.grad().is_none() {
            return Err(runtime_error("this tensor does not require gradients: call requires_grad_() first"));
        }
        self.variable().forget_gradient();
        leaf.set_grad(gradient);
        Ok(())
    }
    /// Clears the accumulated gradient.
    fn _clear_grad(&self) -> Result<()> {
        if self.variable().is_trainable() || self.grad()?.is_some() {
            self.variable().forget_gradient();
            self.collector()?.set_grad(None);
        }
        Ok(())
    }
    /// Computes the gradients of this scalar and adds them to ``grad`` of every leaf. If this tensor is not a scalar,
    /// pass the gradient of the loss with respect to it as ``gradient``. With ``create_graph`` the gradients can be
    /// differentiated again; they keep the graph alive until ``grad`` is cleared. With ``inputs``, only these tensors get
    /// gradients.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<&PyTensor>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        if create_graph && retain_graph == Some(false) {
            return Err(runtime_error(
                "backward: retain_graph=False contradicts create_graph=True, which keeps the graph",
            ));
        }
        let tensor = self.tensor()?;
        let gradient = gradient.map(PyTensor::tensor).transpose()?;
        if let Some(inputs) = inputs {
            let retain_graph = retain_graph.unwrap_or(create_graph);
            return transforms::backward_towards(py, &tensor, gradient, inputs, retain_graph, create_graph);
        }
        compute(py, || match gradient {
            gradient if create_graph => tensor.backward_create_graph(gradient.as_ref()),
            Some(gradient) => tensor.backward_from(&gradient, retain_graph == Some(true)),
            None if retain_graph == Some(true) => tensor.backward_retain(),
            None => tensor.backward(),
        })
    }
    /// Registers ``hook(gradient)``, which is called whenever a gradient of this tensor is computed. If the hook
    /// returns a tensor, it replaces the gradient. Call ``remove()`` on the returned handle to unregister the hook.
    fn register_hook(&self, hook: Py<PyAny>) -> Result<GradientHook> {
        if self.special.is_plain() || !self.requires_grad() {
            return Err(runtime_error("cannot register a hook on a tensor that doesn't require gradient"));
        }
        Ok(GradientHook(self.tensor()?.add_hook(Arc::new(PyHook(hook)))?))
    }
    /// Makes ``backward`` keep the gradient of this non-leaf tensor in ``grad``.
    fn retain_grad(&self) -> Result<()> {
        if self.special.is_plain() || !self.requires_grad() {
            return Err(runtime_error("can't retain_grad on Tensor that has requires_grad=False"));
        }
        Ok(self.tensor()?.retain_grad()?)
    }
    /// Whether ``retain_grad`` was called on this non-leaf tensor.
    #[getter]
    fn retains_grad(&self) -> bool {
        !self.special.is_plain() && self.variable().tensor().retains_grad()
    }
    /// Returns the values without gradients, like ``data``. In-place changes of either tensor change both.
    fn detach(&self) -> Result<PyTensor> {
        self.data()
    }
    /// Detaches this tensor from the autograd graph in place.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        if slf.get().special.is_plain() {
            return Ok(slf.clone());
        }
        let variable = slf.get().variable();
        if variable.is_view() {
            return Err(runtime_error("detach_: a view cannot be detached in place: use detach()"));
        }
        if variable.is_trainable() {
            variable.set_trainable(false);
        }
        let detached = variable.tensor().detach()?;
        variable.set(detached)?;
        Ok(slf.clone())
    }
    /// The values without gradients. In-place changes of ``data`` change this tensor. Assign a tensor of the same shape
    /// to replace the values, also by those of another dtype or device, which then has no gradient yet.
    #[getter]
    fn data(&self) -> Result<PyTensor> {
        let variable = self.variable();
        // A view, which does not keep the graph.
        if !self.special.is_plain() && !self.collects() && variable.fresh()?.requires_grad() {
            return self.viewed(ViewStep::Detach);
        }
        Ok(PyTensor::at(variable.clone(), Special::plain()))
    }
    #[setter]
    fn set_data(&self, value: &PyTensor) -> Result<()> {
        if value.variable().has_elements_of(self.variable()) {
            return Ok(());
        }
        let value = value.tensor()?.detach()?;
        let old = self.tensor()?;
        if value.shape() != old.shape() {
            let hint = "the new data must have the shape of the old data";
            return Err(phynexus::Error::shape("data", &[old.shape(), value.shape()], hint).into());
        }
        let gradient = old.grad();
        let fits = (value.dtype(), value.device()) == (old.dtype(), old.device());
        self.variable().convert_to(value)?;
        if fits && gradient.is_some() && self.variable().is_trainable() {
            self.variable().leaf()?.set_grad(gradient);
        }
        Ok(())
    }
}

/// The handle of a registered hook.
#[pyclass(module = "neurenix._engine", frozen)]
pub(crate) struct GradientHook(HookHandle);

#[pymethods]
impl GradientHook {
    /// Unregisters the hook.
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

/// Context manager that enables or disables autograd; ``no_grad`` and ``enable_grad`` use it.
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

/// Returns whether autograd records operations on this thread.
#[pyfunction]
pub(crate) fn is_grad_enabled() -> bool {
    is_enabled()
}

/// Sets whether autograd records operations on this thread.
#[pyfunction]
pub(crate) fn switch_gradients(enabled: bool) {
    // Dropping the guard would restore the previous mode.
    std::mem::forget(record_gradients(enabled));
}

/// Returns the gradients of ``output`` with respect to ``inputs``, without changing any ``grad``.
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

/// Returns whether a tensor depends on leaves other than these.
#[pyfunction]
pub(crate) fn depends_on_others(tensor: &PyTensor, variables: &Bound<'_, PyAny>) -> Result<bool> {
    let variables = tensors(variables)?;
    let leaves = tensor.tensor()?.gradient_leaves()?;
    Ok(leaves.iter().any(|leaf| !variables.iter().any(|variable| variable.is_same(leaf))))
}

/// The number of a tensor in the order in which tensors are recorded.
#[pyfunction]
pub(crate) fn recorded_number(tensor: &PyTensor) -> Result<u64> {
    Ok(tensor.tensor()?.recorded_number())
}

/// Releases the graphs of tensors as far as they were recorded after the one with this number. Returns what they were
/// computed from.
#[pyfunction]
pub(crate) fn release_graphs(outputs: &Bound<'_, PyAny>, boundary: u64) -> Result<Vec<PyTensor>> {
    let outputs = tensors(outputs)?;
    let sources = Tensor::release_graphs(&outputs.iter().collect::<Vec<_>>(), boundary)?;
    Ok(sources.into_iter().map(PyTensor::wrap).collect())
}

/// The backward pass that runs on this thread: 0 if there is none.
#[pyfunction]
pub(crate) fn running_sweep() -> u64 {
    phynexus::gradient::running_sweep()
}

/// Returns the gradients of ``output`` with respect to ``inputs``, without calling the hooks of these.
#[pyfunction]
pub(crate) fn gradients_before_hooks(
    py: Python<'_>,
    output: &PyTensor,
    inputs: &Bound<'_, PyAny>,
    grad_output: &PyTensor,
    create_graph: bool,
) -> Result<Vec<PyTensor>> {
    let (output, given) = (output.tensor()?, grad_output.tensor()?);
    let inputs = tensors(inputs)?;
    let results = compute(py, || {
        output.gradients_before_hooks(&given, &inputs.iter().collect::<Vec<_>>(), create_graph)
    })?;
    Ok(results.into_iter().map(PyTensor::wrap).collect())
}

/// Returns a tensor with the same values that can be differentiated with respect to; for the functional autograd API.
#[pyfunction]
pub(crate) fn as_variable(tensor: &Bound<'_, PyAny>) -> Result<PyTensor> {
    let Ok(tensor) = tensor.cast::<PyTensor>() else {
        return Err(type_error("expected a tensor to differentiate with respect to"));
    };
    let tensor = tensor.get().tensor()?;
    // A tracked tensor stays connected to its graph so that higher-order gradients reach it.
    if tensor.requires_grad() {
        return Ok(PyTensor::wrap(tensor.reshape(tensor.shape())?));
    }
    Ok(PyTensor::wrap(tensor.as_variable()?))
}

/// Evaluates several tensors together. While a function is recorded, it does nothing: a replay computes all results at
/// the end.
#[pyfunction]
pub(crate) fn evaluate(py: Python<'_>, tensors: &Bound<'_, PyAny>) -> Result<()> {
    if is_recording() {
        return Ok(());
    }
    let tensors = crate::argument::values(tensors)?;
    compute(py, || Tensor::evaluate_all(&tensors.iter().collect::<Vec<_>>()))
}
