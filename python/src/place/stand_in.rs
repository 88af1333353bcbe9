//! Which place a tensor's values are in, where that is not simply its own: stand-ins while a thread records a function, and
//! tensors that share another's place without its gradients.

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

/// What sets a tensor apart, in one number, so that operations on all others ask only once: the lowest bit says that it shares
/// a place without its gradients, the next that it has gradients of its own since, the others count the threads that have a
/// stand-in for it.
pub(crate) struct Special {
    bits: AtomicU32,
    /// The place with the gradients of a tensor that was plain.
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
        // A thread reads here what it wrote itself: other threads' stand-ins are not its own.
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
    /// Gives a plain tensor a place for gradients of its own.
    pub(crate) fn part(&self, place: Parameter) {
        if self.apart.set(place).is_ok() {
            self.bits.fetch_xor(PLAIN | APART, Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// The places that stand in for those of tensors on this thread, by the tensors' addresses.
    static STAND_INS: RefCell<HashMap<usize, Parameter>> = RefCell::default();
}

fn address(tensor: &PyTensor) -> usize {
    std::ptr::from_ref(tensor).addr()
}

impl PyTensor {
    /// The place: where this thread has a stand-in for it, that one.
    pub(crate) fn place(&self) -> Cow<'_, Parameter> {
        if self.special.bits() >= STAND_IN
            && let Some(found) = STAND_INS.with_borrow(|places| places.get(&address(self)).cloned())
        {
            return Cow::Owned(found);
        }
        Cow::Borrowed(self.special.apart.get().unwrap_or(&self.own))
    }

    /// The value now of a tensor that something sets apart.
    #[cold]
    pub(crate) fn special_tensor(&self) -> Result<Tensor> {
        let place = self.place();
        if self.special.is_plain() {
            return Ok(place.tensor().detach()?);
        }
        if place.is_trainable() { Ok(place.leaf()?) } else { Ok(place.tensor()) }
    }
}

/// While it is entered, the values of ``copies`` stand in for ``tensors`` on this thread, which a recording wants to tell
/// from constants. Changes in place go to the stand-ins; other threads see the tensors themselves.
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
            return Err(value_error(format!("{} tensors and {} stand-ins", tensors.len(), copies.len())));
        }
        let copies = copies.iter().map(|copy| copy.get().tensor()).collect::<Result<Vec<_>>>()?;
        Ok(StandIns { tensors: tensors.into_iter().map(Bound::unbind).collect(), copies })
    }
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.tensors.iter().try_for_each(|tensor| visit.call(tensor))
    }
    fn __enter__(&self) -> Result<()> {
        let is_entered = |tensor: &Py<PyTensor>| {
            STAND_INS.with_borrow(|places| places.contains_key(&address(tensor.get())))
        };
        // Leaving would end the first one's, too.
        if self.tensors.iter().any(is_entered) {
            return Err(runtime_error(
                "StandIns: a tensor has a stand-in on this thread already: leave that first",
            ));
        }
        for (tensor, copy) in self.tensors.iter().zip(&self.copies) {
            let place = Parameter::buffer(copy.clone());
            let former = STAND_INS.with_borrow_mut(|places| places.insert(address(tensor.get()), place));
            // A tensor that is named twice has one.
            if former.is_none() {
                tensor.get().special.bits.fetch_add(STAND_IN, Ordering::Relaxed);
            }
        }
        Ok(())
    }
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        for tensor in &self.tensors {
            // Dropped behind the borrow: what hangs on it may be much.
            let place = STAND_INS.with_borrow_mut(|places| places.remove(&address(tensor.get())));
            if place.is_some() {
                tensor.get().special.bits.fetch_sub(STAND_IN, Ordering::Relaxed);
            }
        }
    }
}
