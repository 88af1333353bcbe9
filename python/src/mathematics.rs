//! Mathematical functions. The engine computes them; Python modules add defaults and PyTorch's result types.

use phynexus::{Error, Tensor, tensor::QuantileMethod};
use pyo3::prelude::*;

use crate::{
    argument::{Count, Number, kind},
    error::{Result, index_error, type_error, value_error},
    interrupt::compute,
    tensor::{PyTensor, operand::Operand, reduce::some_element},
};

macro_rules! of_one {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => { $(
        $(#[doc = $doc])+
        #[pyfunction]
        pub(crate) fn $name(input: &PyTensor) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$name()?))
        }
    )+ };
}

of_one! {
    /// ``1 - erf(x)``, computed without cancellation.
    erfc;
    /// The inverse of ``erf``.
    erfinv;
    /// The fractional part.
    frac;
    /// True where the sign bit is set.
    signbit;
}

macro_rules! of_two {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => { $(
        $(#[doc = $doc])+
        #[pyfunction]
        pub(crate) fn $name(input: &PyTensor, other: &PyTensor) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$name(&other.tensor()?)?))
        }
    )+ };
}

of_two! {
    /// The magnitude of ``input`` with the sign of ``other``.
    copysign;
    /// ``sqrt(input ** 2 + other ** 2)`` without overflow.
    hypot;
    /// True where an element of ``input`` is among those of ``other``.
    isin;
    /// ``log(exp(input) + exp(other))`` without overflow.
    logaddexp;
    /// The next representable number after ``input`` towards ``other``.
    nextafter;
    /// ``input * log(other)``; 0 where ``input`` is 0 and ``other`` is not NaN.
    xlogy;
}

/// Converts the other operand to a tensor.
fn operand(beside: &Tensor, object: &Bound<'_, PyAny>) -> Result<Tensor> {
    match Operand::beside(beside, object)? {
        Some(operand) => operand.into_tensor(beside),
        None => Err(unknown(object)),
    }
}

fn unknown(object: &Bound<'_, PyAny>) -> crate::error::Failure {
    type_error(format!("expected a tensor or a number, got {}", kind(object)))
}

/// Elementwise remainder of a division, with the sign of ``input``.
#[pyfunction]
pub(crate) fn fmod(input: &PyTensor, other: &Bound<'_, PyAny>) -> Result<PyTensor> {
    let tensor = input.tensor()?;
    Ok(PyTensor::wrap(match Operand::beside(&tensor, other)? {
        Some(Operand::Tensor(other)) => tensor.fmod(&other)?,
        Some(Operand::Number(value)) => tensor.fmod_scalar(value)?,
        None => return Err(unknown(other)),
    }))
}

/// ``input + weight * (end - input)``.
#[pyfunction]
pub(crate) fn lerp(input: &PyTensor, end: &Bound<'_, PyAny>, weight: &Bound<'_, PyAny>) -> Result<PyTensor> {
    let tensor = input.tensor()?;
    let end = operand(&tensor, end)?;
    Ok(PyTensor::wrap(match Operand::beside(&tensor, weight)? {
        Some(Operand::Tensor(weight)) => tensor.lerp(&end, &weight)?,
        Some(Operand::Number(weight)) => tensor.lerp_scalar(&end, weight)?,
        None => return Err(unknown(weight)),
    }))
}

/// Replaces NaN and infinities with the given numbers.
#[pyfunction]
#[pyo3(signature = (input, nan, posinf, neginf))]
pub(crate) fn nan_to_num(
    input: &PyTensor,
    nan: f64,
    posinf: Option<f64>,
    neginf: Option<f64>,
) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.nan_to_num(nan, posinf, neginf)?))
}

/// Returns the p-norm distance between each pair of rows of two matrices.
#[pyfunction]
pub(crate) fn cdist(input: &PyTensor, other: &PyTensor, p: Number) -> Result<PyTensor> {
    let (a, b, Number(p)) = (input.tensor()?, other.tensor()?, p);
    match a.cdist(&b, p) {
        // PyTorch raises IndexError here, as for `amax`.
        Err(Error::Shape { .. })
            if p.as_f64() == f64::INFINITY && [&a, &b].iter().all(|rows| rows.shape().last() == Some(&0)) =>
        {
            Err(index_error("cdist: p=inf needs rows with at least one element"))
        }
        result => Ok(PyTensor::wrap(result?)),
    }
}

type Ranked = fn(&Tensor, i64, bool) -> phynexus::Result<(Tensor, Tensor)>;

fn ranked(
    name: &str,
    function: Ranked,
    input: &PyTensor,
    dim: i64,
    keepdim: bool,
) -> Result<(PyTensor, PyTensor)> {
    let tensor = input.tensor()?;
    some_element(name, &tensor, &[dim])?;
    let (values, indices) = function(&tensor, dim, keepdim)?;
    Ok((PyTensor::wrap(values), PyTensor::wrap(indices)))
}

/// Returns the medians along ``dim`` (the lower of two) and their indices.
#[pyfunction]
pub(crate) fn median(input: &PyTensor, dim: i64, keepdim: bool) -> Result<(PyTensor, PyTensor)> {
    ranked("median", Tensor::median, input, dim, keepdim)
}

/// As ``median``, ignoring NaN.
#[pyfunction]
pub(crate) fn nanmedian(input: &PyTensor, dim: i64, keepdim: bool) -> Result<(PyTensor, PyTensor)> {
    ranked("nanmedian", Tensor::nanmedian, input, dim, keepdim)
}

/// Returns the most frequent elements along ``dim`` and the last index of each.
#[pyfunction]
pub(crate) fn mode(input: &PyTensor, dim: i64, keepdim: bool) -> Result<(PyTensor, PyTensor)> {
    ranked("mode", Tensor::mode, input, dim, keepdim)
}

/// Returns the ``k``-th smallest elements along ``dim``, counted from 1, and their indices.
#[pyfunction]
pub(crate) fn kthvalue(input: &PyTensor, k: Count, dim: i64, keepdim: bool) -> Result<(PyTensor, PyTensor)> {
    let (values, indices) = input.tensor()?.kthvalue(k.0, dim, keepdim)?;
    Ok((PyTensor::wrap(values), PyTensor::wrap(indices)))
}

/// Returns the quantiles ``q`` along ``dim``; the result has a leading dimension for ``q``.
#[pyfunction]
#[pyo3(signature = (input, q, dim, keepdim, interpolation))]
pub(crate) fn quantile(
    input: &PyTensor,
    q: Vec<f64>,
    dim: Option<i64>,
    keepdim: bool,
    interpolation: &str,
) -> Result<PyTensor> {
    let method = match interpolation {
        "linear" => QuantileMethod::Linear,
        "lower" => QuantileMethod::Lower,
        "higher" => QuantileMethod::Higher,
        "midpoint" => QuantileMethod::Midpoint,
        "nearest" => QuantileMethod::Nearest,
        other => return Err(value_error(format!("quantile: unknown interpolation '{other}'"))),
    };
    Ok(PyTensor::wrap(input.tensor()?.quantile(&q, dim, keepdim, method)?))
}

/// Counts the occurrences of each integer from 0 in a vector, or sums their weights.
#[pyfunction]
#[pyo3(signature = (input, weights, minlength))]
pub(crate) fn bincount(
    py: Python<'_>,
    input: &PyTensor,
    weights: Option<&PyTensor>,
    minlength: i64,
) -> Result<PyTensor> {
    let (tensor, weights) = (input.tensor()?, weights.map(PyTensor::tensor).transpose()?);
    let minlength = usize::try_from(minlength).unwrap_or(0);
    Ok(PyTensor::wrap(compute(py, || tensor.bincount(weights.as_ref(), minlength))?))
}

/// Counts the elements in each of ``bins`` equal intervals.
#[pyfunction]
pub(crate) fn histc(
    py: Python<'_>,
    input: &PyTensor,
    bins: Count,
    min: Number,
    max: Number,
) -> Result<PyTensor> {
    let tensor = input.tensor()?;
    Ok(PyTensor::wrap(compute(py, || tensor.histc(bins.0, min.0, max.0))?))
}

/// The differences of adjacent elements along ``dim``, ``n`` times.
#[pyfunction]
pub(crate) fn diff(input: &PyTensor, n: Count, dim: i64) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.diff(n.0, dim)?))
}

/// Integrates along ``dim`` by the trapezoidal rule, at points ``x`` or with spacing ``dx``.
#[pyfunction]
#[pyo3(signature = (input, x, dx, dim))]
pub(crate) fn trapezoid(input: &PyTensor, x: Option<&PyTensor>, dx: f64, dim: i64) -> Result<PyTensor> {
    let tensor = input.tensor()?;
    Ok(PyTensor::wrap(match x {
        Some(x) => tensor.trapezoid_at(&x.tensor()?, dim)?,
        None => tensor.trapezoid(dx, dim)?,
    }))
}

/// Returns a copy with the slices of ``source`` written at the positions ``index`` along ``dim``.
#[pyfunction]
pub(crate) fn index_copy(
    input: &PyTensor,
    dim: i64,
    index: &PyTensor,
    source: &PyTensor,
) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.index_copy(dim, &index.tensor()?, &source.tensor()?)?))
}

/// Returns a copy with the elements of ``source`` written in order where ``mask`` is true.
#[pyfunction]
pub(crate) fn masked_scatter(
    py: Python<'_>,
    input: &PyTensor,
    mask: &PyTensor,
    source: &PyTensor,
) -> Result<PyTensor> {
    let (tensor, mask, source) = (input.tensor()?, mask.tensor()?, source.tensor()?);
    Ok(PyTensor::wrap(compute(py, || tensor.masked_scatter(&mask, &source))?))
}
