//! Reductions and scans.

use phynexus::{DType, Tensor, text::show_shape};
use pyo3::{prelude::*, types::PyModule};

use super::PyTensor;
use crate::{
    argument::{Axes, number, one_of},
    dtype::Wanted,
    error::{Result, index_error, runtime_error, type_error, value_error},
    size::counted,
};

impl PyTensor {
    /// Reduces over axes. An empty list of axes reduces each element by itself.
    fn reduced(
        &self,
        axes: &Axes,
        keepdim: bool,
        function: impl Fn(&Tensor, &[i64], bool) -> phynexus::Result<Tensor>,
    ) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        Ok(PyTensor::wrap(match axes.list() {
            Some(list) => function(&tensor, &list, keepdim)?,
            None => function(&tensor.unsqueeze(0)?, &[0], false)?,
        }))
    }

    fn extreme_over(
        &self,
        name: &str,
        function: fn(&Tensor, &[i64], bool) -> phynexus::Result<Tensor>,
        axes: &Axes,
        keepdim: bool,
    ) -> Result<PyTensor> {
        if let Some(list) = axes.list() {
            some_element(name, &self.tensor()?, &list)?;
        }
        self.reduced(axes, keepdim, function)
    }

    fn extreme(
        &self,
        py: Python<'_>,
        kind: &Extreme,
        dim: Option<&Bound<'_, PyAny>>,
        keepdim: bool,
    ) -> Result<Py<PyAny>> {
        let tensor = self.tensor()?;
        let alone = |result: Tensor| -> Result<Py<PyAny>> {
            Ok(Bound::new(py, PyTensor::wrap(result))?.into_any().unbind())
        };
        let Some(dim) = dim.filter(|dim| !dim.is_none()) else {
            some_element(kind.name, &tensor, &[])?;
            return alone((kind.over)(&tensor, &[], keepdim)?);
        };
        if let Ok(other) = dim.cast::<PyTensor>() {
            return alone((kind.of_two)(&tensor, &other.get().tensor()?)?);
        }
        let Axes::One(axis) = dim.extract::<Axes>()? else {
            return Err(type_error(
                "expected one integer as dim: to reduce over several dims use amax or amin",
            ));
        };
        some_element(kind.name, &tensor, &[axis])?;
        let index = (kind.index)(&tensor, Some(axis), keepdim)?;
        // Gathering the values sends the gradient to one of several equal elements, as in PyTorch.
        let kept = if keepdim { index.clone() } else { index.unsqueeze(axis_of(&tensor, axis))? };
        let values = if tensor.rank() == 0 {
            tensor.clone()
        } else {
            let values = tensor.take_along_dim(&kept, axis)?;
            if keepdim { values } else { values.squeeze(axis_of(&tensor, axis))? }
        };
        Ok(pair(py, kind.name, values, index)?.unbind())
    }
}

/// The functions behind `max` or `min`.
struct Extreme {
    name: &'static str,
    over: fn(&Tensor, &[i64], bool) -> phynexus::Result<Tensor>,
    of_two: fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>,
    index: fn(&Tensor, Option<i64>, bool) -> phynexus::Result<Tensor>,
}

const GREATEST: Extreme =
    Extreme { name: "max", over: Tensor::max, of_two: Tensor::maximum, index: Tensor::argmax };
const LEAST: Extreme =
    Extreme { name: "min", over: Tensor::min, of_two: Tensor::minimum, index: Tensor::argmin };

/// Fails if a reduced axis is empty, with PyTorch's exceptions. An empty list means all axes.
pub(crate) fn some_element(name: &str, tensor: &Tensor, axes: &[i64]) -> Result<()> {
    let shape = || show_shape(tensor.shape());
    if axes.is_empty() && tensor.is_empty() {
        return Err(runtime_error(format!(
            "{name}: a tensor of shape {} has no elements: give a dim whose size is not 0",
            shape()
        )));
    }
    for &axis in axes {
        if usize::try_from(axis_of(tensor, axis)).ok().and_then(|axis| tensor.shape().get(axis)) == Some(&0) {
            return Err(index_error(format!(
                "{name}: dimension {axis} of shape {} has no elements",
                shape()
            )));
        }
    }
    Ok(())
}

/// PyTorch sums and multiplies unsigned integers as int64.
pub(super) fn summand(tensor: &Tensor) -> phynexus::Result<Tensor> {
    match tensor.dtype() {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => tensor.to_dtype(DType::I64),
        _ => Ok(tensor.clone()),
    }
}

fn same(tensor: &Tensor) -> phynexus::Result<Tensor> {
    Ok(tensor.clone())
}

/// The axis counted from the front.
fn axis_of(tensor: &Tensor, axis: i64) -> i64 {
    if axis < 0 { axis + tensor.rank() as i64 } else { axis }
}

/// The named tuple of values and indices that PyTorch returns.
pub(crate) fn pair<'py>(
    py: Python<'py>,
    name: &str,
    values: Tensor,
    indices: Tensor,
) -> Result<Bound<'py, PyAny>> {
    let class = PyModule::import(py, "neurenix._results")?.getattr(name)?;
    Ok(class.call1((PyTensor::wrap(values), PyTensor::wrap(indices)))?)
}

// NumPy's names ``axis`` and ``keepdims`` are accepted beside PyTorch's.
macro_rules! over_axes {
    ($($(#[doc = $doc:literal])+ $name:ident = $function:expr;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=Axes::All, keepdim=false, *, axis=None, keepdims=false))]
            fn $name(&self, dim: Axes, keepdim: bool, axis: Option<Axes>, keepdims: bool) -> Result<PyTensor> {
                self.reduced(&dim.or(axis)?, keepdim || keepdims, $function)
            }
        )+ }
    };
}

over_axes! {
    /// Returns True where all elements over ``dim`` are nonzero.
    all = Tensor::all;
    /// Returns True where any element over ``dim`` is nonzero.
    any = Tensor::any;
    /// Returns the number of nonzero elements over ``dim``.
    count_nonzero = |t, axes, keep| t.to_dtype(DType::Bool)?.sum(axes, keep);
    /// Returns ``log(sum(exp(x)))`` over ``dim`` without overflow.
    logsumexp = Tensor::logsumexp;
}

macro_rules! in_dtype {
    ($($(#[doc = $doc:literal])+ $name:ident of $prepared:expr;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=Axes::All, keepdim=false, dtype=None, *, axis=None, keepdims=false))]
            fn $name(
                &self,
                dim: Axes,
                keepdim: bool,
                dtype: Option<Wanted>,
                axis: Option<Axes>,
                keepdims: bool,
            ) -> Result<PyTensor> {
                self.reduced(&dim.or(axis)?, keepdim || keepdims, |t, axes, keep| match dtype {
                    Some(dtype) => t.to_dtype(dtype.0)?.$name(axes, keep)?.to_dtype(dtype.0),
                    None => $prepared(t)?.$name(axes, keep),
                })
            }
        )+ }
    };
}

#[pymethods]
impl PyTensor {
    /// Returns the maximum over ``dim``. Equal maxima share the gradient.
    #[pyo3(signature = (dim=Axes::All, keepdim=false, *, axis=None, keepdims=false))]
    fn amax(&self, dim: Axes, keepdim: bool, axis: Option<Axes>, keepdims: bool) -> Result<PyTensor> {
        self.extreme_over("amax", Tensor::max, &dim.or(axis)?, keepdim || keepdims)
    }
    /// Returns the minimum over ``dim``. Equal minima share the gradient.
    #[pyo3(signature = (dim=Axes::All, keepdim=false, *, axis=None, keepdims=false))]
    fn amin(&self, dim: Axes, keepdim: bool, axis: Option<Axes>, keepdims: bool) -> Result<PyTensor> {
        self.extreme_over("amin", Tensor::min, &dim.or(axis)?, keepdim || keepdims)
    }
}

in_dtype! {
    /// Returns the sum over ``dim``, one axis or several; all by default. Sums of ``bool`` and integer tensors are
    /// ``int64``, also for unsigned types. (The function ``neurenix.sum`` gives ``uint64`` for those.)
    sum of summand;
    /// Returns the product over ``dim``.
    prod of summand;
    /// Returns the mean over ``dim``. Integer tensors give ``float32``.
    mean of same;
}

macro_rules! deviations {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=Axes::All, unbiased=None, keepdim=false, *, correction=None, axis=None, keepdims=false))]
            fn $name(
                &self,
                dim: Axes,
                unbiased: Option<bool>,
                keepdim: bool,
                correction: Option<f64>,
                axis: Option<Axes>,
                keepdims: bool,
            ) -> Result<PyTensor> {
                let correction = corrected(unbiased, correction)?;
                self.reduced(&dim.or(axis)?, keepdim || keepdims, |t, axes, keep| t.$name(axes, correction, keep))
            }
        )+ }
    };
}

deviations! {
    /// Returns the variance over ``dim``: the sum of squared deviations divided by ``count - correction``.
    var;
    /// Returns the standard deviation over ``dim``: the square root of ``var``.
    std;
}

macro_rules! extremes {
    ($($(#[doc = $doc:literal])+ $name:ident = $kind:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
            fn $name(
                &self,
                py: Python<'_>,
                dim: Option<&Bound<'_, PyAny>>,
                keepdim: bool,
                axis: Option<&Bound<'_, PyAny>>,
                keepdims: bool,
            ) -> Result<Py<PyAny>> {
                self.extreme(py, &$kind, one_of(dim, axis)?, keepdim || keepdims)
            }
        )+ }
    };
}

extremes! {
    /// Returns the maximum of all elements; with ``dim``, the values and indices of the maxima along it; with another
    /// tensor, the elementwise maximum.
    max = GREATEST;
    /// Returns the minimum of all elements; with ``dim``, the values and indices of the minima along it; with another
    /// tensor, the elementwise minimum.
    min = LEAST;
}

macro_rules! places {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=None, keepdim=false, *, axis=None, keepdims=false))]
            fn $name(
                &self,
                dim: Option<i64>,
                keepdim: bool,
                axis: Option<i64>,
                keepdims: bool,
            ) -> Result<PyTensor> {
                let dim = one_of(dim, axis)?;
                let tensor = self.tensor()?;
                match dim {
                    Some(dim) => some_element(stringify!($name), &tensor, &[dim])?,
                    None if tensor.is_empty() => {
                        return Err(index_error(concat!(stringify!($name), ": a tensor with no elements")));
                    }
                    None => {}
                }
                Ok(PyTensor::wrap(tensor.$name(dim, keepdim || keepdims)?))
            }
        )+ }
    };
}

places! {
    /// Returns the index of the maximum along ``dim``, or in the flattened tensor.
    argmax;
    /// Returns the index of the minimum along ``dim``, or in the flattened tensor.
    argmin;
}

macro_rules! running {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            #[pyo3(signature = (dim=None, dtype=None, *, axis=None))]
            fn $name(&self, dim: Option<i64>, dtype: Option<Wanted>, axis: Option<i64>) -> Result<PyTensor> {
                let missing = || type_error(concat!(stringify!($name), ": missing argument dim"));
                let dim = one_of(dim, axis)?.ok_or_else(missing)?;
                self.map(|t| match dtype {
                    Some(dtype) => t.to_dtype(dtype.0)?.$name(dim)?.to_dtype(dtype.0),
                    None => summand(t)?.$name(dim),
                })
            }
        )+ }
    };
}

running! {
    /// Returns the cumulative sum along ``dim``.
    cumsum;
    /// Returns the cumulative product along ``dim``.
    cumprod;
}

macro_rules! running_extremes {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            fn $name<'py>(&self, py: Python<'py>, dim: i64) -> Result<Bound<'py, PyAny>> {
                let (values, indices) = self.tensor()?.$name(dim)?;
                pair(py, stringify!($name), values, indices)
            }
        )+ }
    };
}

running_extremes! {
    /// Returns the cumulative maximum along ``dim`` and its indices. Of equal elements the last one counts.
    cummax;
    /// Returns the cumulative minimum along ``dim`` and its indices. Of equal elements the last one counts.
    cummin;
}

#[pymethods]
impl PyTensor {
    /// Returns the p-norm over ``dim``. ``p`` is a number, possibly infinite, or ``"fro"``.
    #[pyo3(signature = (p=None, dim=Axes::All, keepdim=false, *, axis=None, keepdims=false))]
    fn norm(
        &self,
        p: Option<&Bound<'_, PyAny>>,
        dim: Axes,
        keepdim: bool,
        axis: Option<Axes>,
        keepdims: bool,
    ) -> Result<PyTensor> {
        let p = match p {
            None => 2.0,
            Some(given) => match (number(given)?, given.extract::<&str>()) {
                (Some(scalar), _) => scalar.as_f64(),
                (None, Ok("fro")) => 2.0,
                (None, Ok("inf")) => f64::INFINITY,
                _ => {
                    return Err(value_error(format!("norm: expected a number or \"fro\" as p, got {given}")));
                }
            },
        };
        self.reduced(&dim.or(axis)?, keepdim || keepdims, |t, axes, keep| t.norm(p, axes, keep))
    }
    /// Returns ``log(cumsum(exp(x)))`` along ``dim`` without overflow.
    fn logcumsumexp(&self, dim: i64) -> Result<PyTensor> {
        self.map(|t| t.logcumsumexp(dim))
    }
    /// The number of elements, as in the array API: ``x.size == 6``. As in PyTorch it can be called: ``x.size()``
    /// returns the shape and ``x.size(0)`` the size of one dimension.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sizes = self.sizes();
        counted(py, sizes.iter().product::<usize>(), &sizes)
    }
}

fn corrected(unbiased: Option<bool>, correction: Option<f64>) -> Result<f64> {
    match (unbiased, correction) {
        (Some(_), Some(_)) => Err(value_error("give either unbiased or correction, not both")),
        (Some(unbiased), None) => Ok(f64::from(unbiased)),
        (None, correction) => Ok(correction.unwrap_or(1.0)),
    }
}
