//! Decompositions of matrices; `neurenix.linalg` gives them their names and defaults.

use phynexus::Tensor;
use pyo3::prelude::*;

use crate::{error::Result, tensor::PyTensor};

fn both((first, second): (Tensor, Tensor)) -> (PyTensor, PyTensor) {
    (PyTensor::wrap(first), PyTensor::wrap(second))
}

/// The determinants of square matrices.
#[pyfunction]
pub(crate) fn det(input: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.det()?))
}

/// The signs of determinants, and the logarithms of their magnitudes.
#[pyfunction]
pub(crate) fn slogdet(input: &PyTensor) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.slogdet()?))
}

/// The inverses of square matrices.
#[pyfunction]
pub(crate) fn inv(input: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.inv()?))
}

/// X of ``input @ X = other``; a vector ``other`` is one column.
#[pyfunction]
pub(crate) fn solve(input: &PyTensor, other: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.solve(&other.tensor()?)?))
}

/// The triangular factor of symmetric positive definite matrices.
#[pyfunction]
#[pyo3(signature = (input, upper=false))]
pub(crate) fn cholesky(input: &PyTensor, upper: bool) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.cholesky(upper)?))
}

/// Q and R.
#[pyfunction]
#[pyo3(signature = (input, complete=false))]
pub(crate) fn qr(input: &PyTensor, complete: bool) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.qr(complete)?))
}

/// Eigenvalues and eigenvectors of symmetric matrices.
#[pyfunction]
pub(crate) fn eigh(input: &PyTensor) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.eigh()?))
}

/// U, the singular values, and Vh.
#[pyfunction]
#[pyo3(signature = (input, full_matrices=true))]
pub(crate) fn svd(input: &PyTensor, full_matrices: bool) -> Result<(PyTensor, PyTensor, PyTensor)> {
    let (u, s, vh) = input.tensor()?.svd(full_matrices)?;
    Ok((PyTensor::wrap(u), PyTensor::wrap(s), PyTensor::wrap(vh)))
}

/// The pseudoinverses.
#[pyfunction]
#[pyo3(signature = (input, rtol=None))]
pub(crate) fn pinv(input: &PyTensor, rtol: Option<&PyTensor>) -> Result<PyTensor> {
    let rtol = rtol.map(PyTensor::tensor).transpose()?;
    Ok(PyTensor::wrap(input.tensor()?.pinv(rtol.as_ref())?))
}

/// How many singular values count.
#[pyfunction]
#[pyo3(signature = (input, rtol=None))]
pub(crate) fn matrix_rank(input: &PyTensor, rtol: Option<&PyTensor>) -> Result<PyTensor> {
    let rtol = rtol.map(PyTensor::tensor).transpose()?;
    Ok(PyTensor::wrap(input.tensor()?.matrix_rank(rtol.as_ref())?))
}
