//! Loss functions and similarities.

use phynexus::tensor::{CrossEntropyOptions, Reduction};
use pyo3::prelude::*;

use super::optional;
use crate::{
    error::{Result, value_error},
    tensor::PyTensor,
};

pub(crate) fn reduction(name: &str) -> Result<Reduction> {
    match name {
        "none" => Ok(Reduction::None),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => Err(value_error(format!("unknown reduction {other:?}: use \"none\", \"mean\" or \"sum\""))),
    }
}

/// Cross-entropy between logits ``[N, C, ...]`` and class indices or class probabilities.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0))]
pub(crate) fn cross_entropy(
    input: &PyTensor,
    target: &PyTensor,
    weight: Option<&PyTensor>,
    ignore_index: i64,
    reduction: &str,
    label_smoothing: f64,
) -> Result<PyTensor> {
    let weight = optional(weight)?;
    let reduction = self::reduction(reduction)?;
    let options = CrossEntropyOptions { weight: weight.as_ref(), ignore_index, label_smoothing, reduction };
    Ok(PyTensor::wrap(input.tensor()?.cross_entropy_with(&target.tensor()?, &options)?))
}

/// Negative log-likelihood loss: log-probabilities ``[N, C, ...]`` against class indices.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, ignore_index=-100, reduction="mean"))]
pub(crate) fn nll_loss(
    input: &PyTensor,
    target: &PyTensor,
    weight: Option<&PyTensor>,
    ignore_index: i64,
    reduction: &str,
) -> Result<PyTensor> {
    let weight = optional(weight)?;
    let reduction = self::reduction(reduction)?;
    let options =
        CrossEntropyOptions { weight: weight.as_ref(), ignore_index, label_smoothing: 0.0, reduction };
    Ok(PyTensor::wrap(input.tensor()?.nll_loss(&target.tensor()?, &options)?))
}

macro_rules! losses {
    ($($(#[doc = $doc:literal])+ $name:ident($($option:ident = $default:literal),*);)+) => { $(
        $(#[doc = $doc])+
        #[pyfunction]
        #[pyo3(signature = (input, target, reduction="mean" $(, $option=$default)*))]
        pub(crate) fn $name(input: &PyTensor, target: &PyTensor, reduction: &str $(, $option: f64)*) -> Result<PyTensor> {
            let reduction = self::reduction(reduction)?;
            Ok(PyTensor::wrap(input.tensor()?.$name(&target.tensor()? $(, $option)*, reduction)?))
        }
    )+ };
}

losses! {
    /// Mean squared error: ``(input - target) ** 2``, reduced.
    mse_loss();
    /// Mean absolute error: ``abs(input - target)``, reduced.
    l1_loss();
    /// Quadratic for absolute errors below ``beta``, linear above.
    smooth_l1_loss(beta = 1.0);
    /// Quadratic for absolute errors up to ``delta``, linear above.
    huber_loss(delta = 1.0);
    /// ``x`` where the target is 1, ``max(0, margin - x)`` where the target is -1.
    hinge_embedding_loss(margin = 1.0);
}

/// Binary cross-entropy between probabilities and targets from 0 to 1.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, reduction="mean"))]
pub(crate) fn binary_cross_entropy(
    input: &PyTensor,
    target: &PyTensor,
    weight: Option<&PyTensor>,
    reduction: &str,
) -> Result<PyTensor> {
    let weight = optional(weight)?;
    let reduction = self::reduction(reduction)?;
    Ok(PyTensor::wrap(input.tensor()?.binary_cross_entropy(&target.tensor()?, weight.as_ref(), reduction)?))
}

/// Binary cross-entropy between logits and targets from 0 to 1.
#[pyfunction]
#[pyo3(signature = (input, target, weight=None, reduction="mean", pos_weight=None))]
pub(crate) fn binary_cross_entropy_with_logits(
    input: &PyTensor,
    target: &PyTensor,
    weight: Option<&PyTensor>,
    reduction: &str,
    pos_weight: Option<&PyTensor>,
) -> Result<PyTensor> {
    let (weight, pos_weight) = (optional(weight)?, optional(pos_weight)?);
    let reduction = self::reduction(reduction)?;
    let (x, target) = (input.tensor()?, target.tensor()?);
    let loss =
        x.binary_cross_entropy_with_logits(&target, weight.as_ref(), pos_weight.as_ref(), reduction)?;
    Ok(PyTensor::wrap(loss))
}

/// Kullback-Leibler divergence; ``input`` holds log-probabilities.
#[pyfunction]
#[pyo3(signature = (input, target, reduction="mean", log_target=false))]
pub(crate) fn kl_div(
    input: &PyTensor,
    target: &PyTensor,
    reduction: &str,
    log_target: bool,
) -> Result<PyTensor> {
    let (x, target) = (input.tensor()?, target.tensor()?);
    Ok(PyTensor::wrap(match reduction {
        "batchmean" => x.kl_div_batch_mean(&target, log_target)?,
        other => x.kl_div(&target, log_target, self::reduction(other)?)?,
    }))
}

/// Cosine similarity along ``dim``.
#[pyfunction]
#[pyo3(signature = (x1, x2, dim=1, eps=1e-8))]
pub(crate) fn cosine_similarity(x1: &PyTensor, x2: &PyTensor, dim: i64, eps: f64) -> Result<PyTensor> {
    Ok(PyTensor::wrap(x1.tensor()?.cosine_similarity(&x2.tensor()?, dim, eps)?))
}

/// ``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where the target is -1.
#[pyfunction]
#[pyo3(signature = (input1, input2, target, margin=0.0, reduction="mean"))]
pub(crate) fn cosine_embedding_loss(
    input1: &PyTensor,
    input2: &PyTensor,
    target: &PyTensor,
    margin: f64,
    reduction: &str,
) -> Result<PyTensor> {
    let reduction = self::reduction(reduction)?;
    let (other, target) = (input2.tensor()?, target.tensor()?);
    Ok(PyTensor::wrap(input1.tensor()?.cosine_embedding_loss(&other, &target, margin, reduction)?))
}
