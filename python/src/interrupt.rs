//! Ctrl-C in long calls: while the engine computes for the main thread, it asks Python for signals.

use std::cell::{Cell, RefCell};

use phynexus::interrupt;
use pyo3::prelude::*;

use crate::{
    error::{Failure, Result},
    placement::{self, Computing},
};

thread_local! {
    /// What a handler of signals raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether this is the main thread, where alone Python runs handlers of signals; nothing until it is known.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs handlers of signals that have come; true if one raised an exception.
fn ask() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    })
}

/// The same where locks are held or a step is half done: not if a handler is a function of the user's, which might want what
/// is locked. Such a handler runs when the call has ended.
fn ask_no_function() -> bool {
    let harmless = |py: Python<'_>| -> PyResult<bool> {
        // The module in C: a function in Python would run the handlers on its way.
        let signal = py.import("_signal")?;
        let (raises, get) = (signal.getattr("default_int_handler")?, signal.getattr("getsignal")?);
        let count: i32 = signal.getattr("NSIG")?.extract()?;
        // Numbers that are no signals are an error, and have no handler.
        let function = |number| get.call1((number,)).is_ok_and(|h| h.is_callable() && !h.is(&raises));
        Ok(!(1..count).any(function))
    };
    Python::attach(harmless).unwrap_or(false) && ask()
}

/// Waits for another thread's computation without Python's global lock: that thread may be asking Python for signals.
fn wait_detached(wait: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(wait));
}

/// Tells the engine how threads of Python wait.
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

/// Computes while other threads of Python go on. On the main thread Ctrl-C ends it: then its error is the exception that the
/// handler raised, and tensors are as they were. Behind it Python is told what was planned on another device.
pub(crate) fn compute<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
    let result = watched(py, ask, work);
    placement::behind(py, result)
}

/// The same for work that holds locks or must not be seen half done. What is to be told is told behind a later one, or by
/// [`placement::behind`].
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
    // Whatever the work made of it.
    match RAISED.take() {
        Some(raised) => Err(raised.into()),
        None => result.map_err(Into::into),
    }
}
