//! Elements as lists of Python's numbers.

use std::cell::Cell;

use phynexus::{DType, Element, Tensor, host_memory};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyList};

use crate::{error::Result, interrupt::compute};

/// Memory that one of Python's lists takes beside its elements.
const LIST_BYTES: usize = 128;

/// The elements as Python's numbers, in lists by the shape.
pub(super) fn numbers<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    /// `object`: bytes of one of Python's.
    fn read<'py, T>(py: Python<'py>, tensor: &Tensor, object: usize) -> Result<Bound<'py, PyAny>>
    where
        T: Element + Send + IntoPyObject<'py>,
        PyErr: From<T::Error>,
    {
        let values = compute(py, || tensor.to_vec::<T>())?;
        // A refusal in the midst of a list is a panic: the system is asked before, for the numbers, their places and the lists.
        let mut bytes = tensor.len().saturating_mul(size_of::<usize>() + object);
        let mut lists = 1usize;
        for &size in tensor.shape() {
            bytes = bytes.saturating_add(lists.saturating_mul(LIST_BYTES));
            lists = lists.saturating_mul(size);
        }
        drop(host_memory::room::<u8>(bytes)?);
        nest(py, &values, tensor.shape(), &Cell::new(0))
    }
    match tensor.dtype() {
        DType::Bool => read::<bool>(py, tensor, 0),
        DType::U64 => read::<u64>(py, tensor, 32),
        dtype if dtype.is_integer() => read::<i64>(py, &tensor.to_dtype(DType::I64)?, 32),
        _ => read::<f64>(py, &tensor.detach()?.to_dtype(DType::F64)?, 32),
    }
}

/// Lists in lists, by the shape. `made` counts numbers: between them Python is asked for signals.
fn nest<'py, T>(
    py: Python<'py>,
    values: &[T],
    shape: &[usize],
    made: &Cell<usize>,
) -> Result<Bound<'py, PyAny>>
where
    T: Element + IntoPyObject<'py>,
    PyErr: From<T::Error>,
{
    let Some((&size, inner)) = shape.split_first() else {
        return Ok(values[0].into_bound_py_any(py)?);
    };
    if inner.is_empty() {
        let numbers = values.iter().map(|&value| Counted { value, made });
        return Ok(PyList::new(py, numbers)?.into_any());
    }
    let part = values.len() / size.max(1);
    let parts = (0..size).map(|i| nest(py, &values[i * part..][..part], inner, made));
    Ok(PyList::new(py, parts.collect::<Result<Vec<_>>>()?)?.into_any())
}

/// A number on its way to Python.
struct Counted<'a, T> {
    value: T,
    made: &'a Cell<usize>,
}

impl<'py, T: IntoPyObject<'py>> IntoPyObject<'py> for Counted<'_, T>
where
    PyErr: From<T::Error>,
{
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.made.set(self.made.get() + 1);
        if self.made.get().is_multiple_of(1 << 16) {
            py.check_signals()?;
        }
        self.value.into_bound_py_any(py)
    }
}
