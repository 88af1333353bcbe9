//! Ctrl-C during long calls: while the engine computes for the main thread, it lets Python check for signals.

use std::cell::{Cell, RefCell};

use phynexus::interrupt;
use pyo3::prelude::*;

use crate::{
    error::{Failure, Result},
    placement::{self, Computing},
};

thread_local! {
    /// The exception that a signal handler raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether this is the main thread, the only one on which Python runs signal handlers; `None` until determined.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs pending signal handlers. Returns true if one raised an exception.
fn ask() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    })
}

/// As `ask`, for work that holds locks or is half done. If any signal handler is a user's function, it does nothing:
/// the function could need those locks. Such a handler runs after the call.
fn ask_no_function() -> bool {
    let harmless = |py: Python<'_>| -> PyResult<bool> {
        // The C module: calling a Python function would run the pending handlers.
        let signal = py.import("_signal")?;
        let (raises, get) = (signal.getattr("default_int_handler")?, signal.getattr("getsignal")?);
        let count: i32 = signal.getattr("NSIG")?.extract()?;
        // Numbers that are not signals raise an error and have no handler.
        let function = |number| get.call1((number,)).is_ok_and(|h| h.is_callable() && !h.is(&raises));
        Ok(!(1..count).any(function))
    };
    Python::attach(harmless).unwrap_or(false) && ask()
}

/// Waits for another thread's computation without the GIL, which that thread may need to check for signals.
fn wait_detached(wait: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(wait));
}

/// Sets how Python threads wait in the engine.
pub(crate) fn begin() {
    interrupt::set_wait(wait_detached);
}

fn is_main(py: Python<'_>) -> bool {
    IS_MAIN.get().unwrap_or_else(|| {
        let asked = || -> PyResult<bool> {
            let threading = py.import("threading")?;
            let main = threading.call_method0("main_thread")?.getattr("ident")?;
            main.eq(threading.call_method0("get_ident")?)
        };
        let is_main = asked().unwrap_or(false);
        IS_MAIN.set(Some(is_main));
        is_main
    })
}

/// Computes without the GIL. On the main thread, Ctrl-C stops the computation: the error is then the exception that the
/// handler raised, and tensors are unchanged. Afterwards it reports steps that were planned on another device.
pub(crate) fn compute<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
    let result = watched(py, ask, work);
    placement::behind(py, result)
}

/// As `compute`, for work that holds locks or must not be observed half done. It delivers no reports; a later `compute`
/// or [`placement::behind`] does.
pub(crate) fn compute_undisturbed<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
    watched(py, ask_no_function, work)
}

fn watched<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    ask: interrupt::Check,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
    let _computing = Computing::begin();
    if !is_main(py) {
        return py.detach(work).map_err(Into::into);
    }
    let watch = interrupt::watch(ask);
    let result = py.detach(work);
    drop(watch);
    // The handler's exception takes precedence over the result.
    match RAISED.take() {
        Some(raised) => Err(raised.into()),
        None => result.map_err(Into::into),
    }
}
