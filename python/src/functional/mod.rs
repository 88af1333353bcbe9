//! Neural network functions that are not tensor methods.

pub(crate) mod loss;
pub(crate) mod normalization;
pub(crate) mod sparse;
pub(crate) mod window;

use phynexus::{
    Tensor,
    op::composite::Cell,
    tensor::{AttentionOptions, Interpolation, RecurrentOutput, RecurrentWeights},
};
use pyo3::prelude::*;

use crate::{
    argument::Shape,
    create::{PyGenerator, generator},
    error::{Result, value_error},
    precision,
    tensor::PyTensor,
};

fn optional(tensor: Option<&PyTensor>) -> Result<Option<Tensor>> {
    tensor.map(PyTensor::tensor).transpose()
}

/// Returns the tensor with this last dimension: if it does not have it, trailing dimensions with this product are
/// flattened.
#[pyfunction]
pub(crate) fn with_features(input: &PyTensor, features: usize) -> Result<PyTensor> {
    let x = input.tensor()?;
    if x.shape().last() == Some(&features) {
        return Ok(PyTensor::wrap(x));
    }
    let mut trailing = 1;
    let fitting = (1..x.rank()).rev().find(|&axis| {
        trailing *= x.shape()[axis];
        trailing == features
    });
    match fitting {
        Some(axis) => Ok(PyTensor::wrap(x.flatten(axis as i64, -1)?)),
        None => {
            let hint = format!("the input's last dimension must be {features}");
            Err(phynexus::Error::shape("linear", &[x.shape()], hint).into())
        }
    }
}

/// Returns ``input @ weight.T + bias``. If the last dimension does not match, trailing dimensions whose product matches
/// are flattened first.
#[pyfunction]
#[pyo3(signature = (input, weight, bias=None))]
pub(crate) fn linear(input: &PyTensor, weight: &PyTensor, bias: Option<&PyTensor>) -> Result<PyTensor> {
    let weight = weight.tensor()?;
    let x = match weight.shape() {
        &[_, features] => with_features(input, features)?.tensor()?,
        _ => input.tensor()?,
    };
    let product = precision::product(&x, &if weight.rank() < 2 { weight } else { weight.t()? })?;
    Ok(PyTensor::wrap(match optional(bias)? {
        Some(bias) => product.add(&bias)?,
        None => product,
    }))
}

/// Dropout: zeros elements with probability ``p`` and divides the rest by ``1 - p``. With ``features`` it zeros whole
/// channels.
#[pyfunction]
#[pyo3(signature = (input, p=0.5, training=true, features=false, generator=None))]
pub(crate) fn dropout(
    input: &PyTensor,
    p: f64,
    training: bool,
    features: bool,
    generator: Option<&Bound<'_, PyGenerator>>,
) -> Result<PyTensor> {
    let x = input.tensor()?;
    let generator = self::generator(generator.map(|given| given.get()));
    Ok(PyTensor::wrap(match features {
        true => x.feature_dropout(p, training)?,
        false => x.dropout_with(p, training, generator)?,
    }))
}

/// Returns the rows of ``weight`` at the indices ``input``.
#[pyfunction]
#[pyo3(signature = (input, weight, padding_idx=None))]
pub(crate) fn embedding(input: &PyTensor, weight: &PyTensor, padding_idx: Option<i64>) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.embedding(&weight.tensor()?, padding_idx)?))
}

/// Scaled dot-product attention: ``softmax(scale * query @ key.mT + attn_mask) @ value``.
///
/// ``query`` is ``(..., L, E)``, ``key`` ``(..., S, E)``, ``value`` ``(..., S, V)``; leading dimensions are
/// broadcast. ``attn_mask`` is broadcast to ``(..., L, S)``: of ``bool``, true takes part; of floats, it is added. With
/// ``is_causal`` a query attends to keys up to its own index only, also if there is a mask. A query that may attend to
/// nothing gives 0. ``dropout_p`` drops weights (always: pass 0 in evaluation); the whole matrix of weights is then
/// held in memory. ``scale`` defaults to ``1 / sqrt(E)``. With ``enable_gqa`` there may be a multiple of query heads
/// (dimension -3), and neighbouring ones share a key and value head.
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask=None, dropout_p=0.0, is_causal=false, *, scale=None, enable_gqa=false))]
pub(crate) fn scaled_dot_product_attention(
    query: &PyTensor,
    key: &PyTensor,
    value: &PyTensor,
    attn_mask: Option<&PyTensor>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
) -> Result<PyTensor> {
    let options = AttentionOptions { dropout_p, is_causal, scale, enable_gqa };
    let (key, value, mask) = (key.tensor()?, value.tensor()?, optional(attn_mask)?);
    Ok(PyTensor::wrap(query.tensor()?.scaled_dot_product_attention(&key, &value, mask.as_ref(), options)?))
}

/// Resizes the spatial dimensions of ``[N, C, spatial...]``.
#[pyfunction]
#[pyo3(signature = (input, size=None, scale_factor=None, mode="nearest", align_corners=false))]
pub(crate) fn interpolate(
    input: &PyTensor,
    size: Option<Shape>,
    scale_factor: Option<f64>,
    mode: &str,
    align_corners: bool,
) -> Result<PyTensor> {
    let x = input.tensor()?;
    let spatial = x.rank().saturating_sub(2);
    let mode = match mode {
        "nearest" => Interpolation::Nearest,
        "linear" | "bilinear" | "trilinear" => Interpolation::Linear { align_corners },
        other => {
            let message = format!(
                "interpolate: unknown mode {other:?}: use \"nearest\", \"linear\", \"bilinear\" or \"trilinear\""
            );
            return Err(value_error(message));
        }
    };
    Ok(PyTensor::wrap(match (size, scale_factor) {
        (Some(Shape(mut size)), None) => {
            if size.len() == 1 {
                size = vec![size[0]; spatial];
            }
            x.interpolate(&size, mode)?
        }
        (None, Some(factor)) => x.interpolate_by(factor, mode)?,
        _ => return Err(value_error("interpolate: give either size or scale_factor")),
    }))
}

/// Runs one layer of a recurrent network in one direction. Returns the outputs, the final state and, for an LSTM, the
/// final cell state.
#[pyfunction]
#[pyo3(signature = (kind, input, w_ih, w_hh, b_ih=None, b_hh=None, w_hr=None, h_0=None, c_0=None, reverse=false))]
pub(crate) fn recurrent_layer(
    kind: &str,
    input: &PyTensor,
    w_ih: &PyTensor,
    w_hh: &PyTensor,
    b_ih: Option<&PyTensor>,
    b_hh: Option<&PyTensor>,
    w_hr: Option<&PyTensor>,
    h_0: Option<&PyTensor>,
    c_0: Option<&PyTensor>,
    reverse: bool,
) -> Result<(PyTensor, PyTensor, Option<PyTensor>)> {
    let (w_ih, w_hh, b_ih, b_hh) = (w_ih.tensor()?, w_hh.tensor()?, optional(b_ih)?, optional(b_hh)?);
    let weights = RecurrentWeights {
        weight_ih: &w_ih,
        weight_hh: &w_hh,
        bias_ih: b_ih.as_ref(),
        bias_hh: b_hh.as_ref(),
    };
    let (h_0, c_0) = (optional(h_0)?, optional(c_0)?);
    let cell = match kind {
        "LSTM" => Cell::Lstm,
        "GRU" => Cell::Gru,
        "tanh" => Cell::Tanh,
        "relu" => Cell::Relu,
        other => {
            return Err(value_error(format!(
                "unknown recurrent cell {other:?}: use \"LSTM\", \"GRU\", \"tanh\" or \"relu\""
            )));
        }
    };
    let x = input.tensor()?;
    let RecurrentOutput { output, h_n, c_n } = match w_hr {
        Some(w_hr) => x.projected_lstm(weights, &w_hr.tensor()?, h_0.as_ref(), c_0.as_ref(), reverse)?,
        None => x.recurrent(cell, weights, h_0.as_ref(), c_0.as_ref(), reverse)?,
    };
    Ok((PyTensor::wrap(output), PyTensor::wrap(h_n), c_n.map(PyTensor::wrap)))
}
