//! In-place operations. They do not propagate between a tensor and its views.

use neurenix::nn::{Parameter, Watch};
use phynexus::{Error, Tensor, gradient::is_enabled};
use pyo3::{exceptions::PyUserWarning, prelude::*};

use super::PyTensor;
use crate::{
    dtype::tensor_of,
    error::{Result, runtime_error},
};

impl PyTensor {
    /// Wraps the result of an operation that returns a view in PyTorch.
    pub(super) fn view_of(&self, tensor: Tensor) -> PyTensor {
        let viewed = match &self.viewed {
            Some(watch) if watch.is_held() => watch.clone(),
            _ => self.owner.as_ref().map_or_else(|| self.variable().watch(), Parameter::watch),
        };
        PyTensor { viewed: Some(viewed), ..PyTensor::wrap(tensor) }
    }

    /// Applies an operation that returns a view in PyTorch.
    #[inline]
    pub(super) fn map_view(
        &self,
        function: impl FnOnce(&Tensor) -> phynexus::Result<Tensor>,
    ) -> Result<PyTensor> {
        Ok(self.view_of(function(&self.tensor()?)?))
    }

    /// Whether this is a view of a tensor that is still referenced.
    pub(super) fn is_view(&self) -> bool {
        self.viewed.as_ref().is_some_and(Watch::is_held)
    }

    /// Warns about an in-place change of a view: in PyTorch it would also change the base tensor.
    fn warn_of_view(&self) -> Result<()> {
        if !self.is_view() {
            return Ok(());
        }
        Python::attach(|py| {
            let message = c"the in-place operation changes only this view, not the tensor it was taken from: assign to an \
                            index of that tensor (x[1:3] = value), or change a clone() and copy it back with x.copy_()";
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), message, 1)
        })
        .map_err(Into::into)
    }

    /// Stores a value of the same shape, converted to this tensor's dtype and device.
    pub(crate) fn assign(&self, value: Tensor) -> Result<()> {
        self.warn_of_view()?;
        self.replace(value)
    }

    /// As `assign`, without the warning about views.
    pub(crate) fn replace(&self, value: Tensor) -> Result<()> {
        let variable = self.variable();
        let old = variable.tensor();
        if value.shape() != old.shape() {
            let hint = "an in-place operation cannot change the shape";
            return Err(Error::shape("in place", &[old.shape(), value.shape()], hint).into());
        }
        if value.dtype().is_float() && !old.dtype().is_float() {
            let hint = format!("{} cannot store {} values in place", tensor_of(old.dtype()), value.dtype());
            return Err(Error::dtype("in place", &[old.dtype(), value.dtype()], hint).into());
        }
        let value = value.to_dtype(old.dtype())?.to_device(old.device())?;
        if self.collects() && is_enabled() {
            return Err(runtime_error(
                "a leaf that requires gradients cannot be changed in place: change it under `with neurenix.no_grad():`",
            ));
        }
        if self.special.is_plain() && value.requires_grad() && is_enabled() {
            // From now on gradients flow through this tensor, and not through the tensor whose values it shares.
            self.special.part(Parameter::buffer(value.clone()));
            return put(&self.own, value.detach()?);
        }
        let is_constant = variable.is_trainable() || self.special.is_plain();
        let value = if is_constant { value.detach()? } else { value };
        if let Some(owner) = &self.owner {
            let leaf = owner.collector()?;
            if leaf.grad().is_some_and(|grad| grad.is_same(&old)) {
                leaf.set_grad(Some(value.clone()));
            }
        }
        if self.special.is_apart() {
            let shared = self.own.tensor();
            put(&self.own, value.detach()?.to_dtype(shared.dtype())?.to_device(shared.device())?)?;
        }
        put(variable, value)
    }
}

/// Stores a value and keeps the accumulated gradient.
fn put(variable: &Parameter, value: Tensor) -> Result<()> {
    let gradient = if variable.is_trainable() { variable.collector()?.grad() } else { None };
    variable.set(value)?;
    if gradient.is_some() {
        variable.collector()?.set_grad(gradient);
    }
    Ok(())
}
