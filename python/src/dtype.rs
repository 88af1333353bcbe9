//! Element types in Python.

use phynexus::{DType, DTypeKind, Device};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyInt, PyString, PyType},
};

use crate::{
    device::{Named, PyDevice},
    error::{Failure, Result, type_error, value_error},
};

/// The type of a tensor's elements, such as ``nx.float32``.
#[pyclass(name = "dtype", module = "neurenix", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub(crate) DType);

#[pymethods]
impl PyDType {
    #[new]
    fn new(name: Wanted) -> PyDType {
        PyDType(name.0)
    }
    /// The name, such as ``"float32"``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }
    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
    /// Whether the type is a floating-point type.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }
    /// Whether the type is a signed or unsigned integer type.
    #[getter]
    fn is_integer(&self) -> bool {
        self.0.is_integer()
    }
    /// Whether the type can represent negative numbers.
    #[getter]
    fn is_signed(&self) -> bool {
        matches!(self.0.kind(), DTypeKind::Signed | DTypeKind::Float)
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

/// A dtype argument: a ``dtype``, its name, Python's ``float``, ``int`` or ``bool``, or a NumPy dtype.
#[derive(Clone, Copy)]
pub(crate) struct Wanted(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for Wanted {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Wanted> {
        Ok(wanted(&object)?)
    }
}

/// Describes a tensor of this dtype in messages, with its article: `an int64 tensor`.
pub(crate) fn tensor_of(dtype: DType) -> String {
    let article = if dtype.name().starts_with("int") { "an" } else { "a" };
    format!("{article} {dtype} tensor")
}

fn wanted(object: &Bound<'_, PyAny>) -> Result<Wanted> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(Wanted(dtype.get().0));
    }
    let unknown = || type_error(format!("{object} is not a dtype: use one such as neurenix.float32"));
    if let Ok(class) = object.cast::<PyType>() {
        let name = class.name()?;
        return Ok(Wanted(match name.to_str()? {
            "float" => DType::F32,
            "int" => DType::I64,
            "bool" => DType::Bool,
            other => named(other).ok_or_else(unknown)?,
        }));
    }
    if let Ok(name) = object.cast::<PyString>() {
        let name = name.to_str()?;
        return named(name).map(Wanted).ok_or_else(|| no_dtype(name));
    }
    // A NumPy dtype.
    let name = match object.getattr("name") {
        Ok(name) => name.cast_into::<PyString>().map_err(|_| unknown())?,
        Err(_) => return Err(unknown()),
    };
    Ok(Wanted(named(name.to_str()?).ok_or_else(unknown)?))
}

/// The Levenshtein distance between two strings.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[b.len()]
}

/// The dtype names closest to `name`, within a distance of 2.
fn near(name: &str) -> Vec<&'static str> {
    let lower = name.trim().to_ascii_lowercase();
    let own = lower.rsplit('.').next().unwrap_or_default();
    let apart = |dtype: &DType| distance(own, dtype.name());
    let least = DType::ALL.iter().map(apart).min().filter(|least| *least <= 2);
    DType::ALL.iter().filter(|&dtype| Some(apart(dtype)) == least).map(|dtype| dtype.name()).collect()
}

fn no_dtype(name: &str) -> Failure {
    let quoted: Vec<String> = near(name).iter().map(|near| format!("{near:?}")).collect();
    let meant = match quoted.is_empty() {
        true => String::new(),
        false => format!("did you mean {}? ", quoted.join(" or ")),
    };
    value_error(format!(
        "unknown dtype {name:?}: {meant}the dtypes are {}",
        DType::ALL.map(DType::name).join(", ")
    ))
}

/// The kind of argument that ``to`` received.
pub(crate) enum Meant {
    DType(DType),
    Device(Device),
}

/// Interprets an argument as a dtype or a device.
pub(crate) fn meant(object: &Bound<'_, PyAny>) -> Result<Meant> {
    if let Ok(device) = object.cast::<PyDevice>() {
        return Ok(Meant::Device(device.get().0));
    }
    let Ok(name) = object.cast::<PyString>() else {
        // As in PyTorch, a plain integer is a GPU index.
        if object.is_exact_instance_of::<PyInt>() {
            return Ok(Meant::Device(object.extract::<Named>()?.0));
        }
        return wanted(object).map(|wanted| Meant::DType(wanted.0));
    };
    let name = name.to_str()?;
    if let Some(dtype) = named(name) {
        return Ok(Meant::DType(dtype));
    }
    match object.extract::<Named>() {
        Ok(device) => Ok(Meant::Device(device.0)),
        Err(error) if near(name).is_empty() => Err(error.into()),
        Err(_) => Err(no_dtype(name)),
    }
}

/// Converts an object or name to a dtype or a device.
#[pyfunction]
pub(crate) fn dtype_or_device<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    Ok(match meant(object)? {
        Meant::DType(dtype) => PyDType(dtype).into_bound_py_any(py)?,
        Meant::Device(device) => PyDevice(device).into_bound_py_any(py)?,
    })
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

/// Returns all dtypes.
#[pyfunction]
pub(crate) fn all_dtypes() -> Vec<PyDType> {
    DType::ALL.map(PyDType).into()
}

/// Returns the dtype of the result of an operation on operands of these two dtypes.
#[pyfunction]
pub(crate) fn promote_types(a: Wanted, b: Wanted) -> PyDType {
    PyDType(a.0.promote(b.0))
}
