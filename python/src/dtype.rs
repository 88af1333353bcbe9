//! Element types as Python sees them.

use phynexus::{DType, Device, Kind};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyInt, PyString, PyType},
};

use crate::{
    device::{Named, PyDevice},
    error::{Failure, Result, type_error, value_error},
};

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

/// A tensor of this dtype, for messages: `an int64 tensor`.
pub(crate) fn tensor_of(dtype: DType) -> String {
    let article = if dtype.name().starts_with("int") { "an" } else { "a" };
    format!("{article} {dtype} tensor")
}

fn wanted(object: &Bound<'_, PyAny>) -> Result<Wanted> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(Wanted(dtype.get().0));
    }
    let unknown =
        || type_error(format!("{object} is not a dtype: use one of neurenix's, such as neurenix.float32"));
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
    // NumPy's dtype.
    let name = match object.getattr("name") {
        Ok(name) => name.cast_into::<PyString>().map_err(|_| unknown())?,
        Err(_) => return Err(unknown()),
    };
    Ok(Wanted(named(name.to_str()?).ok_or_else(unknown)?))
}

/// How many letters must be put in, left out or changed to make one text of the other.
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

/// The dtypes whose names differ least from this one, if any is like it.
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
    value_error(format!("no dtype {name:?}: {meant}there are {}", DType::ALL.map(DType::name).join(", ")))
}

/// What an argument of ``to`` names.
pub(crate) enum Meant {
    DType(DType),
    Device(Device),
}

/// A dtype or a device, whichever an object is or names.
pub(crate) fn meant(object: &Bound<'_, PyAny>) -> Result<Meant> {
    if let Ok(device) = object.cast::<PyDevice>() {
        return Ok(Meant::Device(device.get().0));
    }
    let Ok(name) = object.cast::<PyString>() else {
        // A number alone is a GPU's.
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

/// The dtype or the device that an object is or names.
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
