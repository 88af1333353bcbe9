//! Normalisation functions.

use pyo3::prelude::*;

use super::optional;
use crate::{argument::Shape, error::Result, tensor::PyTensor};

/// Layer normalisation over the last dimensions, which have shape ``normalized_shape``.
#[pyfunction]
#[pyo3(signature = (input, normalized_shape, weight=None, bias=None, eps=1e-5))]
pub(crate) fn layer_norm(
    input: &PyTensor,
    normalized_shape: Shape,
    weight: Option<&PyTensor>,
    bias: Option<&PyTensor>,
    eps: f64,
) -> Result<PyTensor> {
    let (weight, bias) = (optional(weight)?, optional(bias)?);
    let x = input.tensor()?;
    Ok(PyTensor::wrap(x.layer_norm(&normalized_shape.0, weight.as_ref(), bias.as_ref(), eps)?))
}

/// RMS normalisation: divides by the root mean square over the last dimensions, which have shape ``normalized_shape``.
#[pyfunction]
#[pyo3(signature = (input, normalized_shape, weight=None, eps=None))]
pub(crate) fn rms_norm(
    input: &PyTensor,
    normalized_shape: Shape,
    weight: Option<&PyTensor>,
    eps: Option<f64>,
) -> Result<PyTensor> {
    let weight = optional(weight)?;
    Ok(PyTensor::wrap(input.tensor()?.rms_norm(&normalized_shape.0, weight.as_ref(), eps)?))
}

/// Instance normalisation of ``[N, C, ...]``: each channel of each sample has its own mean and variance.
#[pyfunction]
#[pyo3(signature = (input, weight=None, bias=None, eps=1e-5))]
pub(crate) fn instance_norm(
    input: &PyTensor,
    weight: Option<&PyTensor>,
    bias: Option<&PyTensor>,
    eps: f64,
) -> Result<PyTensor> {
    let (weight, bias) = (optional(weight)?, optional(bias)?);
    Ok(PyTensor::wrap(input.tensor()?.instance_norm(weight.as_ref(), bias.as_ref(), eps)?))
}

/// Batch normalisation of ``[N, C, ...]``. In training it uses the batch's mean and variance and updates the running
/// statistics in place. Otherwise it uses the running statistics.
#[pyfunction]
#[pyo3(signature = (input, running_mean, running_var, weight=None, bias=None, training=false, momentum=0.1, eps=1e-5))]
pub(crate) fn batch_norm(
    input: &PyTensor,
    running_mean: Option<&PyTensor>,
    running_var: Option<&PyTensor>,
    weight: Option<&PyTensor>,
    bias: Option<&PyTensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<PyTensor> {
    let x = input.tensor()?;
    let (weight, bias) = (optional(weight)?, optional(bias)?);
    let (mean, variance) = (optional(running_mean)?, optional(running_var)?);
    let result =
        x.batch_norm(mean.as_ref(), variance.as_ref(), weight.as_ref(), bias.as_ref(), training, eps)?;
    if training
        && let (Some(mean_place), Some(variance_place), Some(mean), Some(variance)) =
            (running_mean, running_var, mean, variance)
    {
        let (new_mean, new_variance) = x.detach()?.running_statistics(&mean, &variance, momentum)?;
        mean_place.assign(new_mean)?;
        variance_place.assign(new_variance)?;
    }
    Ok(PyTensor::wrap(result))
}
