//! Ctrl-C in long calls: while the engine computes for the main thread, it asks Python for signals.

use std::cell::{Cell, RefCell};

use phynexus::interrupt;
use pyo3::prelude::*;

use crate::error::{Failure, Result};

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
/// handler raised, and tensors are as they were.
pub(crate) fn compute<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T> {
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
