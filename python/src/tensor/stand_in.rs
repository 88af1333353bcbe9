//! Places that stand in for a tensor's own while a thread records a function, and what else sets a tensor apart.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
};

use neurenix::nn::Parameter;
use phynexus::Tensor;
use pyo3::{prelude::*, types::PyTuple};

use super::PyTensor;
use crate::error::{Result, runtime_error, value_error};

/// What sets a tensor apart, in one number, so that operations on all others ask only once: the lowest bit says that it is
/// plain, the others count the threads that have a stand-in for it.
pub(super) struct Special(AtomicU32);

const PLAIN: u32 = 1;
const STAND_IN: u32 = 2;

impl Special {
    pub(super) fn none() -> Special {
        Special(AtomicU32::new(0))
    }
    pub(super) fn plain() -> Special {
        Special(AtomicU32::new(PLAIN))
    }
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        // A thread reads here what it wrote itself: other threads' stand-ins are not its own.
        self.0.load(Ordering::Relaxed) != 0
    }
    pub(super) fn is_plain(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PLAIN != 0
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
        if self.special.0.load(Ordering::Relaxed) >= STAND_IN {
            let found = STAND_INS.with_borrow(|places| places.get(&address(self)).cloned());
            return found.map_or(Cow::Borrowed(&self.own), Cow::Owned);
        }
        Cow::Borrowed(&self.own)
    }

    /// The value now of a tensor that something sets apart.
    #[cold]
    pub(super) fn special_tensor(&self) -> Result<Tensor> {
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
                tensor.get().special.0.fetch_add(STAND_IN, Ordering::Relaxed);
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
                tensor.get().special.0.fetch_sub(STAND_IN, Ordering::Relaxed);
            }
        }
    }
}
