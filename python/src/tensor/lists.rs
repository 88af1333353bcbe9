//! Conversion of tensors to nested Python lists.

use std::cell::Cell;

use phynexus::{DType, Element, Tensor, host_memory};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyList};

use crate::{error::Result, interrupt::compute};

/// The memory of a Python list without its elements.
const LIST_BYTES: usize = 128;

/// The elements as nested lists of Python numbers.
pub(super) fn numbers<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    /// `object` is the size of one Python number in bytes.
    fn read<'py, T>(py: Python<'py>, tensor: &Tensor, object: usize) -> Result<Bound<'py, PyAny>>
    where
        T: Element + Send + IntoPyObject<'py>,
        PyErr: From<T::Error>,
    {
        let values = compute(py, || tensor.to_vec::<T>())?;
        // PyO3 panics if an allocation fails inside a list, so the memory for numbers and lists is tried first.
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

/// Builds nested lists. `made` counts the numbers, so that signals are checked at intervals.
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

/// A number to convert, with the shared counter.
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
