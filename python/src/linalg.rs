//! Matrix decompositions. `neurenix.linalg` wraps them with PyTorch's signatures.

use phynexus::Tensor;
use pyo3::prelude::*;

use crate::{error::Result, tensor::PyTensor};

fn both((first, second): (Tensor, Tensor)) -> (PyTensor, PyTensor) {
    (PyTensor::wrap(first), PyTensor::wrap(second))
}

/// Returns the determinant of each matrix in ``[..., n, n]``.
#[pyfunction]
pub(crate) fn det(input: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.det()?))
}

/// Returns the sign and the logarithm of the absolute value of each determinant.
#[pyfunction]
pub(crate) fn slogdet(input: &PyTensor) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.slogdet()?))
}

/// Returns the inverse of each matrix in ``[..., n, n]``.
#[pyfunction]
pub(crate) fn inv(input: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.inv()?))
}

/// Solves ``input @ X = other`` for X. A vector ``other`` is treated as one column.
#[pyfunction]
pub(crate) fn solve(input: &PyTensor, other: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.solve(&other.tensor()?)?))
}

/// Returns the Cholesky factor of each symmetric positive definite matrix: lower triangular, or upper with ``upper``.
#[pyfunction]
#[pyo3(signature = (input, upper=false))]
pub(crate) fn cholesky(input: &PyTensor, upper: bool) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.cholesky(upper)?))
}

/// Returns the QR decomposition as ``(Q, R)``.
#[pyfunction]
#[pyo3(signature = (input, complete=false))]
pub(crate) fn qr(input: &PyTensor, complete: bool) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.qr(complete)?))
}

/// Returns the eigenvalues and eigenvectors of symmetric matrices.
#[pyfunction]
pub(crate) fn eigh(input: &PyTensor) -> Result<(PyTensor, PyTensor)> {
    Ok(both(input.tensor()?.eigh()?))
}

/// Returns the singular value decomposition as ``(U, S, Vh)``.
#[pyfunction]
#[pyo3(signature = (input, full_matrices=true))]
pub(crate) fn svd(input: &PyTensor, full_matrices: bool) -> Result<(PyTensor, PyTensor, PyTensor)> {
    let (u, s, vh) = input.tensor()?.svd(full_matrices)?;
    Ok((PyTensor::wrap(u), PyTensor::wrap(s), PyTensor::wrap(vh)))
}

/// Returns the pseudoinverse of each matrix.
#[pyfunction]
#[pyo3(signature = (input, rtol=None))]
pub(crate) fn pinv(input: &PyTensor, rtol: Option<&PyTensor>) -> Result<PyTensor> {
    let rtol = rtol.map(PyTensor::tensor).transpose()?;
    Ok(PyTensor::wrap(input.tensor()?.pinv(rtol.as_ref())?))
}

/// Returns the number of singular values above the tolerance.
#[pyfunction]
#[pyo3(signature = (input, rtol=None))]
pub(crate) fn matrix_rank(input: &PyTensor, rtol: Option<&PyTensor>) -> Result<PyTensor> {
    let rtol = rtol.map(PyTensor::tensor).transpose()?;
    Ok(PyTensor::wrap(input.tensor()?.matrix_rank(rtol.as_ref())?))
}
