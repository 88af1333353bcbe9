//! Neural functions and losses.

use neurenix::phynexus::{
    op::composite::Cell,
    tensor::{AttentionOptions, CrossEntropyOptions, GeluApproximation, Interpolation, RecurrentWeights},
};

use super::Call;

pub(super) const NEURAL: &[(&str, Call)] = &[
    ("gelu", |f, x| Ok(vec![x.gelu(f.choice.of(&[GeluApproximation::None, GeluApproximation::Tanh]))?])),
    ("softplus", |f, x| Ok(vec![x.softplus(f.number(), f.number())?])),
    ("hardtanh", |f, x| Ok(vec![x.hardtanh(f.number(), f.number())?])),
    ("leaky_relu", |f, x| Ok(vec![x.leaky_relu(f.number())?])),
    ("elu", |f, x| Ok(vec![x.elu(f.number())?])),
    ("celu", |f, x| Ok(vec![x.celu(f.number())?])),
    ("hardshrink", |f, x| Ok(vec![x.hardshrink(f.number())?])),
    ("softshrink", |f, x| Ok(vec![x.softshrink(f.number())?])),
    ("threshold", |f, x| Ok(vec![x.threshold(f.number(), f.number())?])),
    ("attention", |f, x| {
        let (k, v, mask) = (f.partner(x), f.partner(x), f.option());
        let options = AttentionOptions {
            dropout_p: f.number(),
            is_causal: f.flag(),
            scale: f.flag().then(|| f.number()),
            enable_gqa: f.flag(),
        };
        Ok(vec![x.scaled_dot_product_attention(&k, &v, mask.as_ref(), options)?])
    }),
    ("embedding", |f, x| {
        let weight = f.tensor();
        let padding = f.flag().then(|| f.axis());
        Ok(vec![x.embedding(&weight, padding)?])
    }),
    ("dropout", |f, x| Ok(vec![x.dropout(f.number(), f.flag())?])),
    ("feature_dropout", |f, x| Ok(vec![x.feature_dropout(f.number(), f.flag())?])),
    ("interpolate", |f, x| {
        let mode =
            if f.flag() { Interpolation::Nearest } else { Interpolation::Linear { align_corners: f.flag() } };
        Ok(vec![x.interpolate(&f.sizes(), mode)?])
    }),
    ("interpolate_by", |f, x| {
        let mode =
            if f.flag() { Interpolation::Nearest } else { Interpolation::Linear { align_corners: f.flag() } };
        Ok(vec![x.interpolate_by(f.number(), mode)?])
    }),
    ("layer_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        let shape = if f.flag() { x.shape().last().copied().into_iter().collect() } else { f.sizes() };
        Ok(vec![x.layer_norm(&shape, w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("rms_norm", |f, x| {
        let w = f.option();
        let shape = if f.flag() { x.shape().last().copied().into_iter().collect() } else { f.sizes() };
        let eps = f.flag().then(|| f.number());
        Ok(vec![x.rms_norm(&shape, w.as_ref(), eps)?])
    }),
    ("group_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        Ok(vec![x.group_norm(f.size(), w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("instance_norm", |f, x| {
        let (w, b) = (f.option(), f.option());
        Ok(vec![x.instance_norm(w.as_ref(), b.as_ref(), f.number())?])
    }),
    ("batch_norm", |f, x| {
        let (mean, var, w, b) = (f.option(), f.option(), f.option(), f.option());
        let (training, eps) = (f.flag(), f.number());
        Ok(vec![x.batch_norm(mean.as_ref(), var.as_ref(), w.as_ref(), b.as_ref(), training, eps)?])
    }),
    ("running_statistics", |f, x| {
        let (mean, var) = (f.tensor(), f.tensor());
        x.running_statistics(&mean, &var, f.number()).map(|_| Vec::new())
    }),
    ("recurrent", |f, x| {
        let (w, u, b, c) = (f.tensor(), f.tensor(), f.option(), f.option());
        let (h0, c0) = (f.option(), f.option());
        let weights =
            RecurrentWeights { weight_ih: &w, weight_hh: &u, bias_ih: b.as_ref(), bias_hh: c.as_ref() };
        let cell = f.choice.of(&[Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu]);
        let result = x.recurrent(cell, weights, h0.as_ref(), c0.as_ref(), f.flag())?;
        Ok(vec![result.output, result.h_n])
    }),
    ("projected_lstm", |f, x| {
        let (w, u, r, b, c) = (f.tensor(), f.tensor(), f.tensor(), f.option(), f.option());
        let (h0, c0) = (f.option(), f.option());
        let weights =
            RecurrentWeights { weight_ih: &w, weight_hh: &u, bias_ih: b.as_ref(), bias_hh: c.as_ref() };
        let result = x.projected_lstm(weights, &r, h0.as_ref(), c0.as_ref(), f.flag())?;
        Ok(vec![result.output, result.h_n])
    }),
];

pub(super) const LOSSES: &[(&str, Call)] = &[
    ("cross_entropy", |f, x| {
        let (target, weight) = (f.partner(x), f.option());
        let options = CrossEntropyOptions {
            weight: weight.as_ref(),
            ignore_index: f.axis(),
            label_smoothing: f.number(),
            reduction: f.reduction(),
        };
        Ok(vec![x.cross_entropy_with(&target, &options)?])
    }),
    ("nll_loss", |f, x| {
        let (target, weight) = (f.partner(x), f.option());
        let reduction = f.reduction();
        let options = CrossEntropyOptions { weight: weight.as_ref(), reduction, ..Default::default() };
        Ok(vec![x.nll_loss(&target, &options)?])
    }),
    ("mse_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.mse_loss(&y, f.reduction())?])
    }),
    ("l1_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.l1_loss(&y, f.reduction())?])
    }),
    ("smooth_l1_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.smooth_l1_loss(&y, f.number(), f.reduction())?])
    }),
    ("huber_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.huber_loss(&y, f.number(), f.reduction())?])
    }),
    ("binary_cross_entropy", |f, x| {
        let (y, w) = (f.partner(x), f.option());
        Ok(vec![x.binary_cross_entropy(&y, w.as_ref(), f.reduction())?])
    }),
    ("binary_cross_entropy_with_logits", |f, x| {
        let (y, w, p) = (f.partner(x), f.option(), f.option());
        Ok(vec![x.binary_cross_entropy_with_logits(&y, w.as_ref(), p.as_ref(), f.reduction())?])
    }),
    ("kl_div", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.kl_div(&y, f.flag(), f.reduction())?])
    }),
    ("hinge_embedding_loss", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.hinge_embedding_loss(&y, f.number(), f.reduction())?])
    }),
    ("cosine_similarity", |f, x| {
        let y = f.partner(x);
        Ok(vec![x.cosine_similarity(&y, f.axis(), f.number())?])
    }),
    ("cosine_embedding_loss", |f, x| {
        let (y, target) = (f.partner(x), f.tensor());
        Ok(vec![x.cosine_embedding_loss(&y, &target, f.number(), f.reduction())?])
    }),
];
