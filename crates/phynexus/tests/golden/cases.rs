//! The functions behind `neural.json`, by name: one table for the oracle and for every device.

use phynexus::{
    DType, Result, Scalar, Tensor,
    op::composite::Cell,
    tensor::{
        AttentionOptions, CrossEntropyOptions, GeluApproximation, Interpolation, RecurrentOutput,
        RecurrentWeights, Reduction,
    },
};

type Function = fn(&[Tensor]) -> Result<Tensor>;

/// Several results, flattened and concatenated.
fn flat(parts: &[&Tensor]) -> Result<Tensor> {
    let flat = |t: &&Tensor| t.to_dtype(DType::F64)?.reshape(&[t.len()]);
    let parts: Vec<Tensor> = parts.iter().map(flat).collect::<Result<_>>()?;
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)
}

/// A recurrent layer on operands in PyTorch's order.
fn recurrent(cell: Cell, reverse: bool, x: &[Tensor]) -> Result<Tensor> {
    let (states, weights) = x[1..].split_at(if cell == Cell::Lstm { 2 } else { 1 });
    let weights = RecurrentWeights {
        weight_ih: &weights[0],
        weight_hh: &weights[1],
        bias_ih: weights.get(2),
        bias_hh: weights.get(3),
    };
    let RecurrentOutput { output, h_n, c_n } =
        x[0].recurrent(cell, weights, Some(&states[0]), states.get(1), reverse)?;
    let mut parts = vec![&output, &h_n];
    parts.extend(&c_n);
    flat(&parts)
}

fn classes<'a>(
    weight: Option<&'a Tensor>,
    label_smoothing: f64,
    reduction: Reduction,
) -> CrossEntropyOptions<'a> {
    CrossEntropyOptions { weight, label_smoothing, reduction, ..Default::default() }
}

const PLAIN: AttentionOptions =
    AttentionOptions { dropout_p: 0.0, is_causal: false, scale: None, enable_gqa: false };
const BILINEAR: Interpolation = Interpolation::Linear { align_corners: false };
const CORNERS: Interpolation = Interpolation::Linear { align_corners: true };

pub(crate) const CASES: &[(&str, Function)] = &[
    ("relu", |x| x[0].relu()),
    ("relu6", |x| x[0].relu6()),
    ("selu", |x| x[0].selu()),
    ("hardsigmoid", |x| x[0].hardsigmoid()),
    ("hardswish", |x| x[0].hardswish()),
    ("silu", |x| x[0].silu()),
    ("mish", |x| x[0].mish()),
    ("softsign", |x| x[0].softsign()),
    ("tanhshrink", |x| x[0].tanhshrink()),
    ("logsigmoid", |x| x[0].logsigmoid()),
    ("sigmoid", |x| x[0].sigmoid()),
    ("leaky_relu", |x| x[0].leaky_relu(0.2)),
    ("elu", |x| x[0].elu(1.3)),
    ("celu", |x| x[0].celu(0.5)),
    ("hardtanh", |x| x[0].hardtanh(-0.5, 3.0)),
    ("hardshrink", |x| x[0].hardshrink(0.5)),
    ("softshrink", |x| x[0].softshrink(0.5)),
    ("threshold", |x| x[0].threshold(1.0, -7.0)),
    ("softplus", |x| x[0].softplus(2.0, 15.0)),
    ("gelu", |x| x[0].gelu(GeluApproximation::None)),
    ("gelu_tanh", |x| x[0].gelu(GeluApproximation::Tanh)),
    ("clamp", |x| x[0].clamp(Some(Scalar::Float(-0.5)), Some(Scalar::Float(3.0)))),
    ("prelu", |x| x[0].prelu(&x[1])),
    ("glu", |x| x[0].glu(1)),
    ("softmax", |x| x[0].softmax(1)),
    ("log_softmax", |x| x[0].log_softmax(-1)),
    ("softmin", |x| x[0].softmin(0)),
    ("layer_norm", |x| x[0].layer_norm(&[4, 3], Some(&x[1]), Some(&x[2]), 1e-5)),
    ("rms_norm", |x| x[0].rms_norm(&[5], Some(&x[1]), Some(1e-6))),
    ("rms_norm_default", |x| x[0].rms_norm(&[5], None, None)),
    ("group_norm", |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5)),
    ("instance_norm", |x| x[0].instance_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
    ("batch_norm_training", |x| x[0].batch_norm(None, None, Some(&x[1]), Some(&x[2]), true, 1e-5)),
    ("batch_norm_inference", |x| {
        x[0].batch_norm(Some(&x[1]), Some(&x[2]), Some(&x[3]), Some(&x[4]), false, 1e-5)
    }),
    ("running_statistics", |x| {
        let full = |value: f64| Tensor::full(&[4], value, DType::F64, x[0].device());
        let (mean, variance) = x[0].running_statistics(&full(0.5)?, &full(2.0)?, 0.3)?;
        flat(&[&mean, &variance])
    }),
    ("conv1d", |x| x[0].conv1d(&x[1], Some(&x[2]), [2], [1], [2], 2)),
    ("conv2d", |x| x[0].conv2d(&x[1], Some(&x[2]), [2, 1], [1, 2], [1, 2], 1)),
    ("conv2d_unbatched", |x| x[0].conv2d(&x[1], None, [1; 2], [0; 2], [1; 2], 1)),
    ("conv2d_depthwise", |x| x[0].conv2d(&x[1], None, [1; 2], [1; 2], [1; 2], 4)),
    ("conv3d", |x| x[0].conv3d(&x[1], Some(&x[2]), [1, 2, 1], [0, 1, 1], [1; 3], 1)),
    ("conv_transpose1d", |x| x[0].conv_transpose1d(&x[1], Some(&x[2]), [3], [1], [2], 2, [2])),
    ("conv_transpose1d_beyond", |x| x[0].conv_transpose1d(&x[1], None, [3], [0], [2], 1, [1])),
    ("conv_transpose2d", |x| x[0].conv_transpose2d(&x[1], Some(&x[2]), [2; 2], [1; 2], [1; 2], 1, [1; 2])),
    ("conv_transpose3d", |x| x[0].conv_transpose3d(&x[1], None, [1, 2, 1], [0, 1, 1], [0; 3], 1, [1; 3])),
    ("max_pool1d", |x| x[0].max_pool1d([3], Some([2]), [1], [2], false)),
    ("max_pool2d", |x| x[0].max_pool2d([2, 3], None, [1, 1], [1, 1], false)),
    ("max_pool2d_ceil", |x| x[0].max_pool2d([3; 2], Some([2; 2]), [1; 2], [1; 2], true)),
    ("max_pool2d_with_indices", |x| {
        let (values, indices) = x[0].max_pool2d_with_indices([2; 2], Some([2; 2]), [0; 2], [1; 2], false)?;
        flat(&[&values, &indices])
    }),
    ("max_pool3d", |x| x[0].max_pool3d([2; 3], Some([1; 3]), [0; 3], [1; 3], false)),
    ("avg_pool1d", |x| x[0].avg_pool1d([3], Some([2]), [1], false, true)),
    ("avg_pool2d", |x| x[0].avg_pool2d([2, 3], Some([1, 2]), [1, 1], false, false)),
    ("avg_pool2d_ceil", |x| x[0].avg_pool2d([3; 2], Some([2; 2]), [1; 2], true, true)),
    ("avg_pool2d_ceil_without_pad", |x| x[0].avg_pool2d([3; 2], Some([2; 2]), [1; 2], true, false)),
    ("avg_pool3d", |x| x[0].avg_pool3d([2; 3], None, [0; 3], false, true)),
    ("adaptive_avg_pool2d", |x| x[0].adaptive_avg_pool2d([3, 2])),
    ("adaptive_avg_pool1d_even", |x| x[0].adaptive_avg_pool1d([3])),
    ("adaptive_max_pool2d", |x| x[0].adaptive_max_pool2d([3, 2])),
    ("attention", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, PLAIN)),
    ("attention_causal", |x| {
        let options = AttentionOptions { is_causal: true, scale: Some(0.3), ..PLAIN };
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, options)
    }),
    ("attention_mask", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), PLAIN)),
    ("attention_bias", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&x[3]), PLAIN)),
    ("attention_three", |x| x[0].scaled_dot_product_attention(&x[1], &x[2], None, PLAIN)),
    ("attention_grouped", |x| {
        let options = AttentionOptions { enable_gqa: true, ..PLAIN };
        x[0].scaled_dot_product_attention(&x[1], &x[2], None, options)
    }),
    ("lstm", |x| recurrent(Cell::Lstm, false, x)),
    ("lstm_reverse", |x| recurrent(Cell::Lstm, true, x)),
    ("gru", |x| recurrent(Cell::Gru, false, x)),
    ("gru_reverse", |x| recurrent(Cell::Gru, true, x)),
    ("rnn_tanh", |x| recurrent(Cell::Tanh, false, x)),
    ("rnn_relu", |x| recurrent(Cell::Relu, false, x)),
    ("embedding", |x| x[0].embedding(&x[1], Some(1))),
    ("nearest", |x| x[0].interpolate(&[8, 3], Interpolation::Nearest)),
    ("bilinear", |x| x[0].interpolate(&[7, 3], BILINEAR)),
    ("bilinear_corners", |x| x[0].interpolate(&[7, 3], CORNERS)),
    ("linear_one", |x| x[0].interpolate(&[1], CORNERS)),
    ("trilinear", |x| x[0].interpolate(&[3, 2, 5], BILINEAR)),
    ("cross_entropy", |x| x[0].cross_entropy(&x[1], None, 0.0)),
    ("cross_entropy_smooth", |x| x[0].cross_entropy(&x[1], None, 0.2)),
    ("cross_entropy_weighted", |x| x[0].cross_entropy(&x[1], Some(&x[2]), 0.1)),
    ("cross_entropy_sum", |x| x[0].cross_entropy_with(&x[1], &classes(Some(&x[2]), 0.0, Reduction::Sum))),
    ("cross_entropy_none", |x| {
        let options = CrossEntropyOptions { ignore_index: 1, ..classes(None, 0.0, Reduction::None) };
        x[0].cross_entropy_with(&x[1], &options)
    }),
    ("cross_entropy_one", |x| x[0].cross_entropy(&x[1], None, 0.0)),
    ("cross_entropy_probabilities", |x| x[0].cross_entropy(&x[1].softmax(1)?, None, 0.1)),
    ("nll_loss", |x| x[0].nll_loss(&x[1], &classes(Some(&x[2]), 0.0, Reduction::Mean))),
    ("mse_loss", |x| x[0].mse_loss(&x[1], Reduction::Mean)),
    ("l1_loss", |x| x[0].l1_loss(&x[1], Reduction::Sum)),
    ("smooth_l1_loss", |x| x[0].smooth_l1_loss(&x[1], 0.7, Reduction::Mean)),
    ("huber_loss", |x| x[0].huber_loss(&x[1], 0.7, Reduction::None)),
    ("binary_cross_entropy", |x| x[0].binary_cross_entropy(&x[1], None, Reduction::Mean)),
    ("binary_cross_entropy_with_logits", |x| {
        x[0].binary_cross_entropy_with_logits(&x[1], None, Some(&x[2]), Reduction::Mean)
    }),
    ("kl_div", |x| x[0].kl_div(&x[1], false, Reduction::Sum)),
    ("kl_div_log", |x| x[0].kl_div(&x[1], true, Reduction::None)),
    ("hinge_embedding_loss", |x| {
        x[0].hinge_embedding_loss(&x[1].to_dtype(DType::F64)?, 0.4, Reduction::Mean)
    }),
    ("cosine_similarity", |x| x[0].cosine_similarity(&x[1], 1, 1e-8)),
    ("binary_cross_entropy_ends", |x| x[0].binary_cross_entropy(&x[1], None, Reduction::Sum)),
    ("binary_cross_entropy_missed", |x| x[0].binary_cross_entropy(&x[1], None, Reduction::Sum)),
    ("cosine_embedding_loss_short", |x| x[0].cosine_embedding_loss(&x[1], &x[2], 0.0, Reduction::None)),
    ("kl_div_batch_mean", |x| x[0].kl_div_batch_mean(&x[1], false)),
    ("cosine_embedding_loss", |x| x[0].cosine_embedding_loss(&x[1], &x[2], 0.1, Reduction::Mean)),
];
