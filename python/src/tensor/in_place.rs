//! In-place operations.

use neurenix::nn::ViewStep;
use phynexus::{Error, Tensor, gradient::is_enabled};
use pyo3::prelude::*;

use super::PyTensor;
use crate::{
    dtype::tensor_of,
    error::{Result, runtime_error},
};

impl PyTensor {
    /// Stores a value of the same shape, converted to this tensor's dtype and device.
    pub(crate) fn assign(&self, value: Tensor) -> Result<()> {
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
        if !self.special.is_plain() && is_enabled() && variable.is_view_of_leaf() {
            return Err(runtime_error(
                "a view of a leaf Variable that requires grad is being used in an in-place operation: change it under \
                 `with neurenix.no_grad():`",
            ));
        }
        if variable.has_repeated_elements() {
            return Err(runtime_error(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory location: \
                 use clone() before the operation",
            ));
        }
        if self.special.is_plain() && value.requires_grad() && is_enabled() {
            // From now on gradients flow through this tensor, and not through the tensor whose values it shares.
            self.special.part(self.own.view(ViewStep::Detach, old.detach()?));
            return Ok(self.variable().set(value)?);
        }
        let is_constant = variable.is_trainable() || self.special.is_plain();
        let old = if is_enabled() && !is_constant { variable.fresh()? } else { old };
        if is_enabled() && !is_constant && old.requires_grad() && !value.requires_grad() {
            // The tensor keeps its graph, through which no gradient flows.
            let never = Tensor::scalar(false, old.device())?;
            return Ok(variable.store(never.where_(&old, &value)?)?);
        }
        Ok(variable.store(if is_constant { value.detach()? } else { value })?)
    }
}

#[pymethods]
impl PyTensor {
    /// How often the tensor was changed in place. Views count with the tensor that they share their elements with.
    #[getter]
    fn _version(&self) -> u64 {
        self.variable().version()
    }
}
