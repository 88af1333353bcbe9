//! Element types as Python sees them.

use phynexus::{DType, Kind};
use pyo3::{
    prelude::*,
    types::{PyString, PyType},
};

use crate::error::{Result, type_error};

/// The type of a tensor's elements, as ``nx.float32``.
#[pyclass(name = "dtype", module = "neurenix", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub(crate) DType);

#[pymethods]
impl PyDType {
    #[new]
    fn new(name: Wanted) -> PyDType {
        PyDType(name.0)
    }
    /// The name, as ``"float32"``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }
    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
    /// Whether elements are floating-point numbers.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }
    /// Whether elements are integers, signed or not.
    #[getter]
    fn is_integer(&self) -> bool {
        self.0.is_integer()
    }
    /// Whether elements have a sign.
    #[getter]
    fn is_signed(&self) -> bool {
        matches!(self.0.kind(), Kind::Signed | Kind::Float)
    }
    fn __repr__(&self) -> String {
        format!("neurenix.{}", self.0.name())
    }
    fn __str__(&self) -> String {
        self.__repr__()
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (self.0.name(),))
    }
}

/// A dtype as a caller names it: one of ours, its name, Python's ``float``, ``int`` or ``bool``, or NumPy's.
#[derive(Clone, Copy)]
pub(crate) struct Wanted(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for Wanted {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Wanted> {
        Ok(wanted(&object)?)
    }
}

fn wanted(object: &Bound<'_, PyAny>) -> Result<Wanted> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(Wanted(dtype.get().0));
    }
    let unknown =
        || type_error(format!("{object} is no dtype: use one of neurenix's, such as neurenix.float32"));
    if let Ok(class) = object.cast::<PyType>() {
        let name = class.name()?;
        return Ok(Wanted(match name.to_str()? {
            "float" => DType::F32,
            "int" => DType::I64,
            "bool" => DType::Bool,
            other => named(other).ok_or_else(unknown)?,
        }));
    }
    let name = match object.cast::<PyString>() {
        Ok(text) => text.clone(),
        // NumPy's dtype.
        Err(_) => match object.getattr("name") {
            Ok(name) => name.cast_into::<PyString>().map_err(|_| unknown())?,
            Err(_) => return Err(unknown()),
        },
    };
    Ok(Wanted(named(name.to_str()?).ok_or_else(unknown)?))
}

fn named(name: &str) -> Option<DType> {
    match name {
        "half" => Some(DType::F16),
        "float" | "single" => Some(DType::F32),
        "double" => Some(DType::F64),
        "int" | "long" => Some(DType::I64),
        _ => DType::parse(name),
    }
}

/// The dtype of this name.
#[pyfunction]
pub(crate) fn all_dtypes() -> Vec<PyDType> {
    [
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ]
    .map(PyDType)
    .into()
}

/// The dtype to which an operation on elements of these two brings them.
#[pyfunction]
pub(crate) fn promote_types(a: Wanted, b: Wanted) -> PyDType {
    PyDType(a.0.promote(b.0))
}
