//! The functions of neural networks that are no methods of tensors.

use phynexus::{
    Tensor,
    graph::composite::Cell,
    tensor::{
        AttentionOptions, CrossEntropyOptions, Interpolation, RecurrentOutput, RecurrentWeights, Reduction,
    },
};
use pyo3::prelude::*;

use crate::{
    argument::{Each, Shape},
    create::{PyGenerator, generator},
    error::{Result, value_error},
    tensor::PyTensor,
};

fn optional(tensor: Option<&PyTensor>) -> Result<Option<Tensor>> {
    tensor.map(PyTensor::tensor).transpose()
}

pub(crate) fn reduction(name: &str) -> Result<Reduction> {
    match name {
        "none" => Ok(Reduction::None),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => Err(value_error(format!("reduction is {other:?}: it is \"none\", \"mean\" or \"sum\""))),
    }
}

/// ``input @ weight.T + bias``; trailing dimensions of the input count as one where only their product fits.
#[pyfunction]
#[pyo3(signature = (input, weight, bias=None))]
pub(crate) fn linear(input: &PyTensor, weight: &PyTensor, bias: Option<&PyTensor>) -> Result<PyTensor> {
    let (mut x, weight) = (input.tensor()?, weight.tensor()?);
    if let Some(&features) = weight.shape().last()
        && weight.rank() == 2
        && x.shape().last() != Some(&features)
    {
        let mut trailing = 1;
        let fitting = (1..x.rank()).rev().find(|&axis| {
            trailing *= x.shape()[axis];
            trailing == features
        });
        match fitting {
            Some(axis) => x = x.flatten(axis as i64, -1)?,
            None => {
                let hint = format!("the input's last dimension must be {features}");
                return Err(phynexus::Error::shape("linear", &[x.shape(), weight.shape()], hint).into());
            }
        }
    }
    let product = x.matmul(&if weight.rank() < 2 { weight } else { weight.t()? })?;
    Ok(PyTensor::wrap(match optional(bias)? {
        Some(bias) => product.add(&bias)?,
        None => product,
    }))
}

macro_rules! convolutions {
    ($($dims:literal $conv:ident $transposed:ident;)+) => { $(
        /// A convolution of ``[N, C, spatial...]`` (or one sample without N) with ``weight`` of
        /// ``[out, in / groups, kernel...]``.
        #[pyfunction]
        #[pyo3(signature = (input, weight, bias=None, stride=Each::from(1), padding=Each::from(0), dilation=Each::from(1), groups=1))]
        pub(crate) fn $conv(
            input: &PyTensor,
            weight: &PyTensor,
            bias: Option<&PyTensor>,
            stride: Each,
            padding: Each,
            dilation: Each,
            groups: usize,
        ) -> Result<PyTensor> {
            let (stride, padding) = (stride.of::<$dims>("stride")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            let (x, weight, bias) = (input.tensor()?, weight.tensor()?, optional(bias)?);
            Ok(PyTensor::wrap(x.$conv(&weight, bias.as_ref(), stride, padding, dilation, groups)?))
        }
        /// The adjoint of a convolution: what its gradient does, as an operation of its own.
        #[pyfunction]
        #[pyo3(signature = (input, weight, bias=None, stride=Each::from(1), padding=Each::from(0), output_padding=Each::from(0), groups=1, dilation=Each::from(1)))]
        pub(crate) fn $transposed(
            input: &PyTensor,
            weight: &PyTensor,
            bias: Option<&PyTensor>,
            stride: Each,
            padding: Each,
            output_padding: Each,
            groups: usize,
            dilation: Each,
        ) -> Result<PyTensor> {
            let (stride, padding) = (stride.of::<$dims>("stride")?, padding.of::<$dims>("padding")?);
            let extra = output_padding.of::<$dims>("output_padding")?;
            let dilation = dilation.of::<$dims>("dilation")?;
            let (x, weight, bias) = (input.tensor()?, weight.tensor()?, optional(bias)?);
            Ok(PyTensor::wrap(x.$transposed(&weight, bias.as_ref(), stride, padding, extra, groups, dilation)?))
        }
    )+ };
}

convolutions! {
    1 conv1d conv_transpose1d;
    2 conv2d conv_transpose2d;
    3 conv3d conv_transpose3d;
}

macro_rules! pooling {
    ($($dims:literal $max:ident $indexed:ident $average:ident $adaptive_max:ident $adaptive_average:ident;)+) => { $(
        /// The greatest element of each window.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), dilation=Each::from(1), ceil_mode=false))]
        pub(crate) fn $max(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            dilation: Each,
            ceil_mode: bool,
        ) -> Result<PyTensor> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            Ok(PyTensor::wrap(input.tensor()?.$max(kernel, stride, padding, dilation, ceil_mode)?))
        }
        /// The greatest element of each window and its position.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), dilation=Each::from(1), ceil_mode=false))]
        pub(crate) fn $indexed(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            dilation: Each,
            ceil_mode: bool,
        ) -> Result<(PyTensor, PyTensor)> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            let (values, indices) = input.tensor()?.$indexed(kernel, stride, padding, dilation, ceil_mode)?;
            Ok((PyTensor::wrap(values), PyTensor::wrap(indices)))
        }
        /// The mean of each window.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), ceil_mode=false, count_include_pad=true))]
        pub(crate) fn $average(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            ceil_mode: bool,
            count_include_pad: bool,
        ) -> Result<PyTensor> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            Ok(PyTensor::wrap(input.tensor()?.$average(kernel, stride, padding, ceil_mode, count_include_pad)?))
        }
        /// The greatest elements of as many windows as the output has places.
        #[pyfunction]
        pub(crate) fn $adaptive_max(input: &PyTensor, output_size: Each) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$adaptive_max(output_size.of::<$dims>("output_size")?)?))
        }
        /// The means of as many windows as the output has places.
        #[pyfunction]
        pub(crate) fn $adaptive_average(input: &PyTensor, output_size: Each) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$adaptive_average(output_size.of::<$dims>("output_size")?)?))
        }
    )+ };
}

pooling! {
    1 max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_avg_pool1d;
    2 max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d;
    3 max_pool3d max_pool3d_with_indices avg_pool3d adaptive_max_pool3d adaptive_avg_pool3d;
}

/// Zeros elements with probability ``p`` and divides the others by ``1 - p``; whole channels with ``features``.
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

/// The rows of ``weight`` at these indices.
#[pyfunction]
#[pyo3(signature = (input, weight, padding_idx=None))]
pub(crate) fn embedding(input: &PyTensor, weight: &PyTensor, padding_idx: Option<i64>) -> Result<PyTensor> {
    Ok(PyTensor::wrap(input.tensor()?.embedding(&weight.tensor()?, padding_idx)?))
}

/// Scaled dot-product attention.
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

/// Normalised over the last dimensions.
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

/// Divided by the root of the mean square over the last dimensions.
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

/// Normalised over groups of channels.
#[pyfunction]
#[pyo3(signature = (input, num_groups, weight=None, bias=None, eps=1e-5))]
pub(crate) fn group_norm(
    input: &PyTensor,
    num_groups: usize,
    weight: Option<&PyTensor>,
    bias: Option<&PyTensor>,
    eps: f64,
) -> Result<PyTensor> {
    let (weight, bias) = (optional(weight)?, optional(bias)?);
    Ok(PyTensor::wrap(input.tensor()?.group_norm(num_groups, weight.as_ref(), bias.as_ref(), eps)?))
}

/// Normalised over each channel of each sample.
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

/// Normalised over the batch: by its own mean and variance in training, else by the running ones. In training these
/// are updated in place.
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

/// The cross-entropy of scores against classes, or against probabilities.
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

/// The negative log-likelihood of classes.
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
    /// Squared differences.
    mse_loss();
    /// Absolute differences.
    l1_loss();
    /// Squared where less than ``beta``, else absolute.
    smooth_l1_loss(beta = 1.0);
    /// Squared where less than ``delta``, else linear.
    huber_loss(delta = 1.0);
    /// ``x`` where the target is 1, ``max(0, margin - x)`` where it is -1.
    hinge_embedding_loss(margin = 1.0);
}

/// The cross-entropy of probabilities of two classes.
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

/// The cross-entropy of scores of two classes.
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

/// Kullback and Leibler's divergence of logarithms of probabilities from a target.
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

/// The cosine of the angle between vectors along ``dim``.
#[pyfunction]
#[pyo3(signature = (x1, x2, dim=1, eps=1e-8))]
pub(crate) fn cosine_similarity(x1: &PyTensor, x2: &PyTensor, dim: i64, eps: f64) -> Result<PyTensor> {
    Ok(PyTensor::wrap(x1.tensor()?.cosine_similarity(&x2.tensor()?, dim, eps)?))
}

/// ``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1.
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

/// Images (or lines, or volumes) of another size.
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
                "interpolate: mode is {other:?}: it is \"nearest\", \"linear\", \"bilinear\" or \"trilinear\""
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
        _ => return Err(value_error("interpolate: give size or scale_factor, one of both")),
    }))
}

/// One layer of a recurrent network in one direction: outputs, the last state, and for an LSTM the last cell state.
#[pyfunction]
#[pyo3(signature = (kind, input, w_ih, w_hh, b_ih=None, b_hh=None, h_0=None, c_0=None, reverse=false))]
pub(crate) fn recurrent_layer(
    kind: &str,
    input: &PyTensor,
    w_ih: &PyTensor,
    w_hh: &PyTensor,
    b_ih: Option<&PyTensor>,
    b_hh: Option<&PyTensor>,
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
                "{other:?} is no kind of recurrent layer: it is \"tanh\" or \"relu\""
            )));
        }
    };
    let x = input.tensor()?;
    let RecurrentOutput { output, h_n, c_n } =
        x.recurrent(cell, weights, h_0.as_ref(), c_0.as_ref(), reverse)?;
    Ok((PyTensor::wrap(output), PyTensor::wrap(h_n), c_n.map(PyTensor::wrap)))
}
