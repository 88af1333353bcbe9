//! What is planned on another device than the one it was meant for, as Python is told.
//!
//! The engine tells of it while it works, when locks of ours may be held and a step may be half done. So it is only noted then,
//! and Python's function is called when the outermost computation of the thread has ended.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use phynexus::schedule::placement::{self, Placement};
use pyo3::prelude::*;

use crate::error::{Result, type_error};

static CALLBACK: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

thread_local! {
    /// What Python is yet to be told of this thread's computations.
    static NEWS: RefCell<VecDeque<Placement>> = const { RefCell::new(VecDeque::new()) };
    /// How many computations this thread is in, one inside the other.
    static COMPUTING: Cell<usize> = const { Cell::new(0) };
}

/// No Python runs while it is locked.
fn callback() -> MutexGuard<'static, Option<Py<PyAny>>> {
    CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many computations there are of all threads.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether no thread computes. While Python's global lock is held, none begins then either: so nothing that computations
/// hold for a moment changes.
pub(crate) fn is_quiet() -> bool {
    RUNNING.load(Ordering::Acquire) == 0
}

/// A computation of this thread, until it is dropped: meanwhile nothing is told.
pub(crate) struct Computing(());

impl Computing {
    pub(crate) fn begin() -> Computing {
        COMPUTING.set(COMPUTING.get() + 1);
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Computing(())
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        COMPUTING.set(COMPUTING.get() - 1);
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Calls Python's function for everything that was noted, unless a computation goes on; what it raised first. What it
/// raises after that goes to `sys.unraisablehook`.
fn tell(py: Python<'_>) -> PyResult<()> {
    if COMPUTING.get() > 0 || NEWS.with_borrow(VecDeque::is_empty) {
        return Ok(());
    }
    // What the function computes is told behind it, not inside it.
    let _inside = Computing::begin();
    let mut raised = None;
    while let Some(news) = NEWS.with_borrow_mut(VecDeque::pop_front) {
        let function = callback().as_ref().map(|function| function.clone_ref(py));
        if let Some(function) = function
            && let Err(error) = function.call1(py, (PyPlacement(news),))
        {
            if raised.is_none() {
                raised = Some(error);
            } else {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        }
    }
    raised.map_or(Ok(()), Err)
}

/// The result of a computation that has ended, after Python was told. What its function raises is raised, and only printed if
/// the computation failed itself.
pub(crate) fn behind<T>(py: Python<'_>, result: Result<T>) -> Result<T> {
    match (tell(py), result) {
        (Ok(()), result) => result,
        (Err(raised), Ok(_)) => Err(raised.into()),
        (Err(raised), Err(failure)) => {
            raised.write_unraisable(py, None);
            Err(failure)
        }
    }
}

/// A step that runs elsewhere than on the device it was meant for, and why.
#[pyclass(name = "Placement", module = "neurenix", frozen)]
pub(crate) struct PyPlacement(Placement);

#[pymethods]
impl PyPlacement {
    /// What it is.
    #[getter]
    fn step(&self) -> &str {
        &self.0.step
    }
    /// The name of the device it was meant for.
    #[getter]
    fn wanted(&self) -> &str {
        &self.0.wanted
    }
    /// The name of the device on which it runs.
    #[getter]
    fn device(&self) -> &str {
        &self.0.device
    }
    /// Why.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }
    fn __repr__(&self) -> String {
        let Placement { step, wanted, device, reason } = &self.0;
        format!("Placement({step:?} on {device}, not on {wanted}: {reason:?})")
    }
}

/// Calls a function for every step that is planned elsewhere than on its device; the function before.
#[pyfunction]
pub(crate) fn on_fallback(function: Option<Bound<'_, PyAny>>) -> Result<Option<Py<PyAny>>> {
    if let Some(given) = &function
        && !given.is_callable()
    {
        return Err(type_error("on_fallback takes a function of one argument, or None"));
    }
    let is_wanted = function.is_some();
    let before = std::mem::replace(&mut *callback(), function.map(Bound::unbind));
    let note: Arc<dyn Fn(&Placement) + Send + Sync> = Arc::new(|placement: &Placement| {
        // A thread that ends has nobody to tell any more.
        let _ = NEWS.try_with(|news| news.borrow_mut().push_back(placement.clone()));
    });
    placement::on_fallback(is_wanted.then_some(note));
    Ok(before)
}

/// With ``True``, a step that its device refuses is an error.
#[pyfunction]
pub(crate) fn set_strict_placement(strict: bool) {
    placement::set_strict(strict);
}

/// What ``set_strict_placement`` set.
#[pyfunction]
pub(crate) fn is_strict_placement() -> bool {
    placement::is_strict()
}
