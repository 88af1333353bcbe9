//! Weights of which two of each four neighbours are kept.

use pyo3::prelude::*;

use crate::{error::Result, interrupt::compute, precision, tensor::PyTensor};

/// Zeros the two smallest magnitudes of each four neighbours along the last dimension. Of equal magnitudes the first
/// are kept; NaN counts as the greatest.
#[pyfunction]
pub(crate) fn keep_two_of_four(input: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.keep_two_of_four()?))
}

/// Returns the values ``(N, K / 2)`` and places ``(N, K / 8)``, ``uint8``, of a matrix ``(N, K)`` that has at most two
/// numbers other than 0 in each four neighbours of a row. Reads the matrix.
#[pyfunction]
pub(crate) fn compress_two_of_four(py: Python<'_>, input: &PyTensor) -> Result<(PyTensor, PyTensor)> {
    let tensor = input.tensor()?;
    let (values, places) = compute(py, || tensor.compress_two_of_four())?;
    Ok((PyTensor::wrap(values), PyTensor::wrap(places)))
}

/// Returns the matrix that ``compress_two_of_four`` compressed.
#[pyfunction]
pub(crate) fn decompress_two_of_four(values: &PyTensor, places: &PyTensor) -> Result<PyTensor> {
    Ok(PyTensor::wrap(values.tensor()?.decompress_two_of_four(&places.tensor()?)?))
}

/// Returns ``input @ weight.T`` for the matrix ``weight`` that ``compress_two_of_four`` compressed, in the autocast
/// dtype if one is set.
#[pyfunction]
pub(crate) fn matmul_sparse(input: &PyTensor, values: &PyTensor, places: &PyTensor) -> Result<PyTensor> {
    let operands = precision::low(vec![input.tensor()?, values.tensor()?])?;
    Ok(PyTensor::wrap(operands[0].matmul_sparse(&operands[1], &places.tensor()?)?))
}
