//! Reports to Python about steps that run on another device than requested.
//!
//! The engine reports them during a computation, when our locks may be held and a step may be half done. Reports are
//! therefore queued, and the Python callback runs when the thread's outermost computation has ended.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use phynexus::schedule::{
    placement::{self, Placement},
    recovery,
};
use pyo3::prelude::*;

use crate::error::{Result, type_error};

static CALLBACK: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

thread_local! {
    /// Reports of this thread that the callback has not received yet.
    static NEWS: RefCell<VecDeque<Placement>> = const { RefCell::new(VecDeque::new()) };
    /// The nesting depth of computations on this thread.
    static COMPUTING: Cell<usize> = const { Cell::new(0) };
}

/// Python code must not run while this lock is held.
fn callback() -> MutexGuard<'static, Option<Py<PyAny>>> {
    CALLBACK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of computations on all threads.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether no thread computes. While the GIL is held no computation can begin either, so state that computations hold
/// temporarily does not change.
pub(crate) fn is_quiet() -> bool {
    RUNNING.load(Ordering::Acquire) == 0
}

/// A computation of this thread, until dropped. Reports are queued meanwhile.
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

/// Passes queued reports to the callback, unless a computation is still running. Returns the first exception that the
/// callback raises; later ones go to `sys.unraisablehook`.
fn tell(py: Python<'_>) -> PyResult<()> {
    if COMPUTING.get() > 0 || NEWS.with_borrow(VecDeque::is_empty) {
        return Ok(());
    }
    // Computations inside the callback queue their reports instead of calling it recursively.
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

/// Delivers queued reports, then returns the result of the computation. An exception of the callback is raised if the
/// computation succeeded, else only printed.
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

/// A step that runs on another device than requested, and the reason.
#[pyclass(name = "Placement", module = "neurenix", frozen)]
pub(crate) struct PyPlacement(Placement);

#[pymethods]
impl PyPlacement {
    /// The step, as text.
    #[getter]
    fn step(&self) -> &str {
        &self.0.step
    }
    /// The name of the requested device.
    #[getter]
    fn wanted(&self) -> &str {
        &self.0.wanted
    }
    /// The name of the device that runs the step.
    #[getter]
    fn device(&self) -> &str {
        &self.0.device
    }
    /// The reason.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }
    fn __repr__(&self) -> String {
        let Placement { step, wanted, device, reason } = &self.0;
        format!("Placement({step:?} on {device}, not on {wanted}: {reason:?})")
    }
}

/// Sets the function that is called with a ``Placement`` for every step that runs on another device than requested;
/// ``None`` removes it. Returns the previous function.
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
        // During thread exit the queue no longer exists.
        let _ = NEWS.try_with(|news| news.borrow_mut().push_back(placement.clone()));
    });
    placement::on_fallback(is_wanted.then_some(note));
    Ok(before)
}

/// With ``True``, a step that its device does not support is an error instead of running elsewhere.
#[pyfunction]
pub(crate) fn set_strict_placement(strict: bool) {
    placement::set_strict(strict);
}

/// Returns the setting of ``set_strict_placement``.
#[pyfunction]
pub(crate) fn is_strict_placement() -> bool {
    placement::is_strict()
}

/// With ``True``, the CPU computes what a device fails to compute.
#[pyfunction]
pub(crate) fn set_recovery(on: bool) {
    recovery::set_recovery(on);
}

/// Returns whether computations of this thread recover.
#[pyfunction]
pub(crate) fn is_recovery() -> bool {
    recovery::is_recovery()
}

/// Calls ``function``, and recovers what it computes. Returns its result, and a ``Placement`` for each step that ran on
/// another device than requested.
#[pyfunction]
pub(crate) fn recovering(function: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Vec<PyPlacement>)> {
    let (result, placements) = placement::observe(|| recovery::recovering(|| function.call0()));
    Ok((result?.unbind(), placements.into_iter().map(PyPlacement).collect()))
}
