//! Python's garbage collector and tensors: hooks that hold, through what they refer to, the tensor they belong to.
//!
//! The collector counts the references that it is shown against all that an object has, in several passes. What it is shown
//! must therefore be owned once, and the same in each pass. A tensor shows its hooks if no graph holds it, and while no
//! thread computes; no other handle of the place (an optimiser's, that of `data`) shows or calls them.

use std::any::Any;

use phynexus::{Tensor, graph::HookFunction};
use pyo3::{PyTraverseError, PyVisit, prelude::*};

use super::PyTensor;
use crate::{
    error::{through_engine, type_error},
    placement::is_quiet,
};

/// A function of Python's as a hook.
pub(super) struct PyHook(pub(super) Py<PyAny>);

impl HookFunction for PyHook {
    fn call(&self, gradient: &Tensor) -> phynexus::Result<Option<Tensor>> {
        Python::attach(|py| {
            let given = self.0.bind(py).call1((PyTensor::wrap(gradient.clone()),))?;
            if given.is_none() {
                return Ok(None);
            }
            match given.cast::<PyTensor>() {
                Ok(given) => Ok(Some(given.get().tensor()?)),
                Err(_) => Err(PyErr::from(type_error("a hook gives a tensor, or None"))),
            }
        })
        .map_err(through_engine)
    }
}

impl PyTensor {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut result = Ok(());
        if is_quiet() && !self.special.is_plain() {
            self.place().with_own_hooks(&mut |hooks| {
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
            self.place().with_own_hooks(&mut |hooks| taken.append(&mut hooks.take_own()));
        }
        // Where no lock is held: functions of Python's may run.
        drop(taken);
    }
}
