//! Reductions and scans.

use phynexus::{DType, Tensor};
use pyo3::{
    prelude::*,
    types::{PyModule, PyTuple},
};

use super::PyTensor;
use crate::{
    argument::{Axes, number},
    dtype::Wanted,
    error::{Result, type_error, value_error},
};

impl PyTensor {
    /// A reduction over axes; over none at all each element is reduced by itself.
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

    fn extreme(
        &self,
        dim: Option<&Bound<'_, PyAny>>,
        keepdim: bool,
        py: Python<'_>,
        greatest: bool,
    ) -> Result<Py<PyAny>> {
        let tensor = self.tensor()?;
        let value =
            |axes: &[i64]| if greatest { tensor.max(axes, keepdim) } else { tensor.min(axes, keepdim) };
        let Some(dim) = dim.filter(|dim| !dim.is_none()) else {
            return Ok(Bound::new(py, PyTensor::wrap(value(&[])?))?.into_any().unbind());
        };
        if let Ok(other) = dim.cast::<PyTensor>() {
            let other = other.get().tensor()?;
            let result = if greatest { tensor.maximum(&other)? } else { tensor.minimum(&other)? };
            return Ok(Bound::new(py, PyTensor::wrap(result))?.into_any().unbind());
        }
        let Axes::One(axis) = dim.extract::<Axes>()? else {
            return Err(type_error("dim is one whole number here; amax and amin take several"));
        };
        let index = if greatest {
            tensor.argmax(Some(axis), keepdim)?
        } else {
            tensor.argmin(Some(axis), keepdim)?
        };
        // The values at the indices: the gradient goes to one of equal elements, as PyTorch's does.
        let kept = if keepdim { index.clone() } else { index.unsqueeze(axis_of(&tensor, axis))? };
        let values = if tensor.rank() == 0 {
            tensor.clone()
        } else {
            let values = tensor.take_along_dim(&kept, axis)?;
            if keepdim { values } else { values.squeeze(axis_of(&tensor, axis))? }
        };
        let name = if greatest { "max" } else { "min" };
        Ok(pair(py, name, values, index)?.unbind())
    }
}

/// An axis counted from the front.
fn axis_of(tensor: &Tensor, axis: i64) -> i64 {
    if axis < 0 { axis + tensor.rank() as i64 } else { axis }
}

/// Values and indices as PyTorch names them.
pub(crate) fn pair<'py>(
    py: Python<'py>,
    name: &str,
    values: Tensor,
    indices: Tensor,
) -> Result<Bound<'py, PyAny>> {
    let class = PyModule::import(py, "neurenix._results")?.getattr(name)?;
    Ok(class.call1((PyTensor::wrap(values), PyTensor::wrap(indices)))?)
}

#[pymethods]
impl PyTensor {
    /// The sum over ``dim``, an axis or several; over all without it. Integers and ``bool`` are summed as ``int64``.
    #[pyo3(signature = (dim=Axes::All, keepdim=false, dtype=None))]
    fn sum(&self, dim: Axes, keepdim: bool, dtype: Option<Wanted>) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, |t, axes, keep| match dtype {
            Some(dtype) => t.to_dtype(dtype.0)?.sum(axes, keep)?.to_dtype(dtype.0),
            None => t.sum(axes, keep),
        })
    }
    /// The product over ``dim``.
    #[pyo3(signature = (dim=Axes::All, keepdim=false, dtype=None))]
    fn prod(&self, dim: Axes, keepdim: bool, dtype: Option<Wanted>) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, |t, axes, keep| match dtype {
            Some(dtype) => t.to_dtype(dtype.0)?.prod(axes, keep)?.to_dtype(dtype.0),
            None => t.prod(axes, keep),
        })
    }
    /// The mean over ``dim``; integers give ``float32``.
    #[pyo3(signature = (dim=Axes::All, keepdim=false, dtype=None))]
    fn mean(&self, dim: Axes, keepdim: bool, dtype: Option<Wanted>) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, |t, axes, keep| match dtype {
            Some(dtype) => t.to_dtype(dtype.0)?.mean(axes, keep),
            None => t.mean(axes, keep),
        })
    }
    /// The variance over ``dim``: the sum of squares is divided by the count less ``correction``.
    #[pyo3(signature = (dim=Axes::All, unbiased=None, keepdim=false, *, correction=None))]
    fn var(
        &self,
        dim: Axes,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
    ) -> Result<PyTensor> {
        let correction = corrected(unbiased, correction)?;
        self.reduced(&dim, keepdim, |t, axes, keep| t.var(axes, correction, keep))
    }
    /// The standard deviation over ``dim``, the root of ``var``.
    #[pyo3(signature = (dim=Axes::All, unbiased=None, keepdim=false, *, correction=None))]
    fn std(
        &self,
        dim: Axes,
        unbiased: Option<bool>,
        keepdim: bool,
        correction: Option<f64>,
    ) -> Result<PyTensor> {
        let correction = corrected(unbiased, correction)?;
        self.reduced(&dim, keepdim, |t, axes, keep| t.std(axes, correction, keep))
    }
    /// The greatest element; with ``dim``, values and indices along it; with a tensor, the greater of each pair.
    #[pyo3(signature = (dim=None, keepdim=false))]
    fn max(&self, py: Python<'_>, dim: Option<&Bound<'_, PyAny>>, keepdim: bool) -> Result<Py<PyAny>> {
        self.extreme(dim, keepdim, py, true)
    }
    /// The least element; with ``dim``, values and indices along it; with a tensor, the lesser of each pair.
    #[pyo3(signature = (dim=None, keepdim=false))]
    fn min(&self, py: Python<'_>, dim: Option<&Bound<'_, PyAny>>, keepdim: bool) -> Result<Py<PyAny>> {
        self.extreme(dim, keepdim, py, false)
    }
    /// The greatest element over ``dim``; equal ones share the gradient.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn amax(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, Tensor::max)
    }
    /// The least element over ``dim``; equal ones share the gradient.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn amin(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, Tensor::min)
    }
    /// The index of the greatest element along ``dim``, or among all.
    #[pyo3(signature = (dim=None, keepdim=false))]
    fn argmax(&self, dim: Option<i64>, keepdim: bool) -> Result<PyTensor> {
        self.map(|t| t.argmax(dim, keepdim))
    }
    /// The index of the least element along ``dim``, or among all.
    #[pyo3(signature = (dim=None, keepdim=false))]
    fn argmin(&self, dim: Option<i64>, keepdim: bool) -> Result<PyTensor> {
        self.map(|t| t.argmin(dim, keepdim))
    }
    /// True where all elements over ``dim`` are not zero.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn all(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, Tensor::all)
    }
    /// True where any element over ``dim`` is not zero.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn any(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, Tensor::any)
    }
    /// How many elements over ``dim`` are not zero.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn count_nonzero(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, |t, axes, keep| t.to_dtype(DType::Bool)?.sum(axes, keep))
    }
    /// ``log(sum(exp(x)))`` over ``dim``, without overflow.
    #[pyo3(signature = (dim=Axes::All, keepdim=false))]
    fn logsumexp(&self, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        self.reduced(&dim, keepdim, Tensor::logsumexp)
    }
    /// The p-norm over ``dim``; ``p`` may be infinite, or ``"fro"``.
    #[pyo3(signature = (p=None, dim=Axes::All, keepdim=false))]
    fn norm(&self, p: Option<&Bound<'_, PyAny>>, dim: Axes, keepdim: bool) -> Result<PyTensor> {
        let p = match p {
            None => 2.0,
            Some(given) => match (number(given)?, given.extract::<&str>()) {
                (Some(scalar), _) => scalar.as_f64(),
                (None, Ok("fro")) => 2.0,
                (None, Ok("inf")) => f64::INFINITY,
                _ => return Err(value_error(format!("norm: p is {given}: it is a number or \"fro\""))),
            },
        };
        self.reduced(&dim, keepdim, |t, axes, keep| t.norm(p, axes, keep))
    }
    /// The sums of all elements up to each along ``dim``.
    #[pyo3(signature = (dim, dtype=None))]
    fn cumsum(&self, dim: i64, dtype: Option<Wanted>) -> Result<PyTensor> {
        self.map(|t| match dtype {
            Some(dtype) => t.to_dtype(dtype.0)?.cumsum(dim)?.to_dtype(dtype.0),
            None => t.cumsum(dim),
        })
    }
    /// The products of all elements up to each along ``dim``.
    #[pyo3(signature = (dim, dtype=None))]
    fn cumprod(&self, dim: i64, dtype: Option<Wanted>) -> Result<PyTensor> {
        self.map(|t| match dtype {
            Some(dtype) => t.to_dtype(dtype.0)?.cumprod(dim)?.to_dtype(dtype.0),
            None => t.cumprod(dim),
        })
    }
    /// The number of elements; called, the sizes, or the size of one dimension: ``x.size == 6``, ``x.size()``,
    /// ``x.size(0)``. The array API has the first, PyTorch the others.
    #[getter]
    fn size<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.place().tensor();
        let class = PyModule::import(py, "neurenix._results")?.getattr("Size")?;
        Ok(class.call1((tensor.len(), PyTuple::new(py, tensor.shape())?))?)
    }
}

fn corrected(unbiased: Option<bool>, correction: Option<f64>) -> Result<f64> {
    match (unbiased, correction) {
        (Some(_), Some(_)) => Err(value_error("give unbiased or correction, not both")),
        (Some(unbiased), None) => Ok(f64::from(unbiased)),
        (None, correction) => Ok(correction.unwrap_or(1.0)),
    }
}
