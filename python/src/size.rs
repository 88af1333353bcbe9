//! Shapes as Python sees them.

use std::sync::{Mutex, PoisonError};

use phynexus::shape::Dims;
use pyo3::{prelude::*, sync::PyOnceLock, types::PyTuple};

type Known = Option<(Dims, Py<PyAny>)>;

/// Recently used shapes, by a hash. Python's tuples do not change, so tensors can share them.
static RECENT: Mutex<[Known; 64]> = Mutex::new([const { None }; 64]);

/// A shape as a ``Size``.
pub(crate) fn size_of<'py>(py: Python<'py>, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let place = shape.iter().fold(shape.len(), |hash, &size| hash.wrapping_mul(31).wrapping_add(size)) % 64;
    let recent = || RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, size)) = &recent()[place]
        && known.as_slice() == shape
    {
        return Ok(size.bind(py).clone());
    }
    let made = CLASS.import(py, "neurenix._size", "Size")?.call1((PyTuple::new(py, shape)?,))?;
    // Dropped after the lock.
    let former = recent()[place].replace((shape.into(), made.clone().unbind()));
    drop(former);
    Ok(made)
}

/// The number of elements, which can be called for the shape.
pub(crate) fn counted<'py>(py: Python<'py>, count: usize, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(py, "neurenix._size", "Count")?.call1((count, size_of(py, shape)?))
}
