//! Support for Python's garbage collector: a hook can refer to the tensor that it belongs to.
//!
//! In several passes, the collector compares the references that objects show with their reference counts. A shown
//! reference must therefore be owned exactly once and be shown in every pass. A tensor shows its hooks only if no graph
//! holds it and no thread computes. Other handles of the variable, such as an optimiser's or that of `data`, neither show
//! nor call them.

use std::any::Any;

use phynexus::{Tensor, graph::HookFunction};
use pyo3::{PyTraverseError, PyVisit, prelude::*};

use super::PyTensor;
use crate::{
    error::{through_engine, type_error},
    placement::is_quiet,
};

/// A Python function as a hook.
pub(super) struct PyHook(pub(super) Py<PyAny>);

impl HookFunction for PyHook {
    fn call(&self, gradient: &Tensor) -> phynexus::Result<Option<Tensor>> {
        self.pass(gradient.clone())
    }

    /// A hook that returns ``NotImplemented`` ends the gradient's flow, as an ``autograd.Function`` without a gradient
    /// does.
    fn pass(&self, gradient: Tensor) -> phynexus::Result<Option<Tensor>> {
        Python::attach(|py| {
            let given = self.0.bind(py).call1((PyTensor::wrap(gradient.clone()),))?;
            if given.is_none() {
                return Ok(Some(gradient));
            }
            if given.is(py.NotImplemented()) {
                return Ok(None);
            }
            match given.cast::<PyTensor>() {
                Ok(given) => Ok(Some(given.get().tensor()?)),
                Err(_) => Err(PyErr::from(type_error("a hook must return a tensor or None"))),
            }
        })
        .map_err(through_engine)
    }
}

impl PyTensor {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut result = Ok(());
        if is_quiet() && !self.special.is_plain() {
            self.variable().with_own_hooks(&mut |hooks| {
                hooks.visit_own(&mut |hook| {
                    if let (Ok(()), Some(hook)) = (&result, (hook as &dyn Any).downcast_ref::<PyHook>()) {
                        result = visit.call(&hook.0);
                    }
                });
            });
        }
        result
    }

    pub(super) fn clear(&self) {
        let mut taken = Vec::new();
        if is_quiet() && !self.special.is_plain() {
            self.variable().with_own_hooks(&mut |hooks| taken.append(&mut hooks.take_own()));
        }
        // Dropped without any lock held, because this may run Python code.
        drop(taken);
    }
}
