//! Variables that are not simply a tensor's own: stand-ins while a thread records a function, and gradient-free aliases of
//! another tensor's variable.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use neurenix::nn::Parameter;
use phynexus::Tensor;
use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyTuple};

use super::PyTensor;
use crate::error::{Result, runtime_error, value_error};

/// What is special about a tensor, in one number so that ordinary tensors pay for a single check. The lowest bit: the
/// tensor is plain, a gradient-free alias of a variable. The next bit: a formerly plain tensor has its own gradients now.
/// The other bits count the threads that have a stand-in for it.
pub(crate) struct Special {
    bits: AtomicU32,
    /// The variable of a formerly plain tensor that has its own gradients.
    apart: OnceLock<Parameter>,
}

const PLAIN: u32 = 1;
const APART: u32 = 2;
const STAND_IN: u32 = 4;

impl Special {
    pub(crate) fn none() -> Special {
        Special { bits: AtomicU32::new(0), apart: OnceLock::new() }
    }
    pub(crate) fn plain() -> Special {
        Special { bits: AtomicU32::new(PLAIN), apart: OnceLock::new() }
    }
    fn bits(&self) -> u32 {
        // Relaxed is enough: a thread only needs its own writes, since stand-ins are per thread.
        self.bits.load(Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.bits() != 0
    }
    pub(crate) fn is_plain(&self) -> bool {
        self.bits() & PLAIN != 0
    }
    pub(crate) fn is_apart(&self) -> bool {
        self.bits() & APART != 0
    }
    /// Gives a plain tensor its own variable for gradients.
    pub(crate) fn part(&self, variable: Parameter) {
        if self.apart.set(variable).is_ok() {
            self.bits.fetch_xor(PLAIN | APART, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// The stand-ins of this thread, by the address of the tensor.
    static STAND_INS: RefCell<HashMap<usize, Parameter>> = RefCell::default();
}

fn address(tensor: &PyTensor) -> usize {
    std::ptr::from_ref(tensor).addr()
}

impl PyTensor {
    /// The tensor's variable, or this thread's stand-in for it.
    pub(crate) fn variable(&self) -> Cow<'_, Parameter> {
        if self.special.bits() >= STAND_IN
            && let Some(found) = STAND_INS.with_borrow(|variables| variables.get(&address(self)).cloned())
        {
            return Cow::Owned(found);
        }
        Cow::Borrowed(self.special.apart.get().unwrap_or(&self.own))
    }

    /// The current value of a special tensor.
    #[cold]
    pub(crate) fn special_tensor(&self) -> Result<Tensor> {
        let variable = self.variable();
        if self.special.is_plain() {
            return Ok(variable.tensor().detach()?);
        }
        if variable.is_trainable() { Ok(variable.leaf()?) } else { Ok(variable.tensor()) }
    }
}

/// Context manager that replaces ``tensors`` by ``copies`` on this thread, so that a recording can tell them from
/// constants. In-place changes go to the stand-ins. Other threads see the original tensors.
#[pyclass(module = "neurenix._engine", frozen)]
pub(crate) struct StandIns {
    tensors: Vec<Py<PyTensor>>,
    copies: Vec<Tensor>,
}

#[pymethods]
impl StandIns {
    #[new]
    fn new(tensors: Vec<Bound<'_, PyTensor>>, copies: Vec<Bound<'_, PyTensor>>) -> Result<StandIns> {
        if tensors.len() != copies.len() {
            return Err(value_error(format!(
                "StandIns: expected as many stand-ins as tensors, got {1} for {0}",
                tensors.len(),
                copies.len()
            )));
        }
        let copies = copies.iter().map(|copy| copy.get().tensor()).collect::<Result<Vec<_>>>()?;
        Ok(StandIns { tensors: tensors.into_iter().map(Bound::unbind).collect(), copies })
    }
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.tensors.iter().try_for_each(|tensor| visit.call(tensor))
    }
    fn __enter__(&self) -> Result<()> {
        let is_entered = |tensor: &Py<PyTensor>| {
            STAND_INS.with_borrow(|variables| variables.contains_key(&address(tensor.get())))
        };
        // Leaving the inner context would also remove the stand-in of the outer one.
        if self.tensors.iter().any(is_entered) {
            return Err(runtime_error(
                "StandIns: a tensor already has a stand-in on this thread: exit that context first",
            ));
        }
        for (tensor, copy) in self.tensors.iter().zip(&self.copies) {
            let variable = Parameter::buffer(copy.clone());
            let former =
                STAND_INS.with_borrow_mut(|variables| variables.insert(address(tensor.get()), variable));
            // A tensor that is listed twice counts once.
            if former.is_none() {
                tensor.get().special.bits.fetch_add(STAND_IN, Ordering::Relaxed);
            }
        }
        Ok(())
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        for tensor in &self.tensors {
            // Binding the value ends the borrow before the drop, which may free a whole graph.
            let variable = STAND_INS.with_borrow_mut(|variables| variables.remove(&address(tensor.get())));
            if variable.is_some() {
                tensor.get().special.bits.fetch_sub(STAND_IN, Ordering::Relaxed);
            }
        }
    }
}
