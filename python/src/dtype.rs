//! Element types in Python.

use phynexus::{DType, DTypeKind, Device, tensor::default_dtype};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyInt, PyString, PyType},
};

use crate::{
    device::{Named, PyDevice},
    error::{Failure, Result, type_error, value_error},
    refusal::no_complex,
};

/// The type of a tensor's elements, such as ``nx.float32``.
#[pyclass(name = "dtype", module = "neurenix", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType {
    /// The engine's type; for complex numbers, that of a part.
    component: DType,
    is_complex: bool,
}

impl PyDType {
    pub(crate) fn real(dtype: DType) -> PyDType {
        PyDType { component: dtype, is_complex: false }
    }
    /// The type of complex numbers with these parts, `float32` or `float64`.
    pub(crate) fn complex(component: DType) -> PyDType {
        PyDType { component, is_complex: true }
    }
    /// The engine's type; for complex numbers, that of a part.
    pub(crate) fn component(self) -> DType {
        self.component
    }
    /// The engine's type; an error for complex numbers.
    pub(crate) fn engine(self) -> Result<DType> {
        if self.is_complex { Err(no_complex()) } else { Ok(self.component) }
    }
}

#[pymethods]
impl PyDType {
    #[new]
    fn new(name: AnyDType) -> PyDType {
        name.0
    }
    /// The name, such as ``"float32"``.
    #[getter]
    pub(crate) fn name(&self) -> &'static str {
        match (self.is_complex, self.component) {
            (false, dtype) => dtype.name(),
            (true, DType::F64) => "complex128",
            (true, _) => "complex64",
        }
    }
    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.component.size() * if self.is_complex { 2 } else { 1 }
    }
    /// Whether the type is a floating-point type.
    #[getter]
    fn is_floating_point(&self) -> bool {
        !self.is_complex && self.component.is_float()
    }
    /// Whether the type is a complex floating-point type.
    #[getter]
    fn is_complex(&self) -> bool {
        self.is_complex
    }
    /// The real type of the same precision: for complex numbers, that of a part.
    #[pyo3(name = "to_real")]
    fn part_type(&self) -> PyDType {
        PyDType::real(self.component)
    }
    /// The complex type of the same precision: ``complex128`` for ``float64``, else ``complex64``.
    #[pyo3(name = "to_complex")]
    fn complex_type(&self) -> PyDType {
        PyDType::complex(neurenix::complex::component(self.component))
    }
    /// Whether the type is a signed or unsigned integer type.
    #[getter]
    fn is_integer(&self) -> bool {
        self.component.is_integer()
    }
    /// Whether the type can represent negative numbers.
    #[getter]
    fn is_signed(&self) -> bool {
        matches!(self.component.kind(), DTypeKind::Signed | DTypeKind::Float)
    }
    fn __repr__(&self) -> String {
        format!("neurenix.{}", self.name())
    }
    fn __str__(&self) -> String {
        self.__repr__()
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (self.name(),))
    }
}

/// A dtype argument that may be complex.
#[derive(Clone, Copy)]
pub(crate) struct AnyDType(pub(crate) PyDType);

impl<'py> FromPyObject<'_, 'py> for AnyDType {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyDType> {
        Ok(AnyDType(wanted(&object)?))
    }
}

/// A dtype argument: a ``dtype``, its name, Python's ``float``, ``int`` or ``bool``, or a NumPy dtype.
#[derive(Clone, Copy)]
pub(crate) struct Wanted(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for Wanted {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Wanted> {
        Ok(Wanted(wanted(&object)?.engine()?))
    }
}

/// Describes a tensor of this dtype in messages, with its article: `an int64 tensor`.
pub(crate) fn tensor_of(dtype: DType) -> String {
    let article = if dtype.name().starts_with("int") { "an" } else { "a" };
    format!("{article} {dtype} tensor")
}

fn wanted(object: &Bound<'_, PyAny>) -> Result<PyDType> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(*dtype.get());
    }
    let unknown = || type_error(format!("{object} is not a dtype: use one such as neurenix.float32"));
    if let Ok(class) = object.cast::<PyType>() {
        let name = class.name()?;
        return match name.to_str()? {
            "float" => Ok(PyDType::real(default_dtype())),
            "int" => Ok(PyDType::real(DType::I64)),
            "bool" => Ok(PyDType::real(DType::Bool)),
            "complex" => Ok(get_default_dtype().complex_type()),
            other => named(other).ok_or_else(unknown),
        };
    }
    if let Ok(name) = object.cast::<PyString>() {
        let name = name.to_str()?;
        return named(name).ok_or_else(|| no_dtype(name));
    }
    // A NumPy dtype.
    let name = match object.getattr("name") {
        Ok(name) => name.cast_into::<PyString>().map_err(|_| unknown())?,
        Err(_) => return Err(unknown()),
    };
    named(name.to_str()?).ok_or_else(unknown)
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
    DType(PyDType),
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
        return wanted(object).map(Meant::DType);
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
        Meant::DType(dtype) => dtype.into_bound_py_any(py)?,
        Meant::Device(device) => PyDevice(device).into_bound_py_any(py)?,
    })
}

fn named(name: &str) -> Option<PyDType> {
    Some(match name {
        "half" => PyDType::real(DType::F16),
        "float" | "single" => PyDType::real(DType::F32),
        "double" => PyDType::real(DType::F64),
        "int" | "long" => PyDType::real(DType::I64),
        "complex64" | "cfloat" => PyDType::complex(DType::F32),
        "complex128" | "cdouble" => PyDType::complex(DType::F64),
        _ => PyDType::real(DType::parse(name)?),
    })
}

/// Returns all dtypes of real numbers.
#[pyfunction]
pub(crate) fn all_dtypes() -> Vec<PyDType> {
    DType::ALL.map(PyDType::real).into()
}

/// Sets the dtype of floats that neither a tensor nor an argument decides, for the whole process.
#[pyfunction]
pub(crate) fn set_default_dtype(dtype: AnyDType) -> Result<()> {
    if dtype.0.is_complex {
        return Err(type_error(format!(
            "set_default_dtype: expected a dtype of real floats, got {}",
            dtype.0.name()
        )));
    }
    Ok(phynexus::tensor::set_default_dtype(dtype.0.component)?)
}

/// Returns what ``set_default_dtype`` set.
#[pyfunction]
pub(crate) fn get_default_dtype() -> PyDType {
    PyDType::real(default_dtype())
}

/// Returns the dtype of the result of an operation on operands of these two dtypes.
#[pyfunction]
pub(crate) fn promote_types(a: AnyDType, b: AnyDType) -> PyDType {
    let component = a.0.component.promote(b.0.component);
    if a.0.is_complex || b.0.is_complex {
        // An integer takes the precision of the complex number.
        PyDType::complex(neurenix::complex::component(component))
    } else {
        PyDType::real(component)
    }
}
