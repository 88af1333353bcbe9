#!/usr/bin/env python3
"""Writes neural.json: inputs, outputs and gradients of neural functions as PyTorch computes them in float64.

    python make.py > neural.json

Needs torch; the tests that read the file do not. Results of several tensors are flattened one after another. Gradients
are those of the sum of the result's elements, element i times sin(1.3 i + 0.4) + 0.3.
"""

import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(20240601)
torch.set_default_dtype(torch.float64)
cases = {}


def tensor(t):
    dtype = str(t.dtype).removeprefix("torch.")
    values = t.detach().flatten().tolist()
    if t.is_floating_point():
        # As text, for JSON has neither infinities nor NaN.
        values = [f"{v:.15g}" for v in values]
    return {"dtype": dtype, "shape": list(t.shape), "values": values}


def case(name, function, *inputs, fixed=()):
    """Records a case; floating-point inputs are differentiated except those at the positions `fixed`."""
    inputs = [i.detach().clone() for i in inputs]
    given = [tensor(i) for i in inputs]
    differentiated = [p for p, i in enumerate(inputs) if i.is_floating_point() and p not in fixed]
    variables = [inputs[p].requires_grad_() for p in differentiated]
    out = function(*inputs)
    if isinstance(out, tuple):
        out = torch.cat([o.to(torch.float64).flatten() for o in out])
    index = torch.arange(out.numel(), dtype=torch.float64)
    loss = (out.flatten() * (torch.sin(index * 1.3 + 0.4) + 0.3)).sum()
    gradients = torch.autograd.grad(loss, variables)
    assert name not in cases
    gradients = {p: tensor(g) for p, g in zip(differentiated, gradients)}
    cases[name] = {"inputs": given, "output": tensor(out), "gradients": gradients}


def r(*shape):
    """Numbers from -1 to 1 with four digits, so that the file stays small."""
    return torch.round(torch.rand(shape) * 2 - 1, decimals=4)


# Kinks, and values far out on both sides.
x = torch.tensor([-1e3, -100, -20.5, -6, -3, -2.9, -1, -0.5, -1e-9, 0, 1e-9, 0.5, 1, 2.9, 3, 6, 20.5, 100, 1e3])
for name in "relu relu6 selu hardsigmoid hardswish silu mish softsign tanhshrink logsigmoid".split():
    case(name, getattr(F, name), x)
case("sigmoid", torch.sigmoid, x[1:-1])
case("leaky_relu", lambda x: F.leaky_relu(x, 0.2), x)
case("elu", lambda x: F.elu(x, 1.3), x)
case("celu", lambda x: F.celu(x, 0.5), x)
case("hardtanh", lambda x: F.hardtanh(x, -0.5, 3.0), x)
case("hardshrink", lambda x: F.hardshrink(x, 0.5), x)
case("softshrink", lambda x: F.softshrink(x, 0.5), x)
case("threshold", lambda x: F.threshold(x, 1.0, -7.0), x)
case("softplus", lambda x: F.softplus(x, 2.0, 15.0), x)
case("gelu", F.gelu, x)
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x)
case("clamp", lambda x: torch.clamp(x, -0.5, 3.0), x)
case("prelu", F.prelu, r(2, 3, 4), r(3))
case("glu", lambda x: F.glu(x, 1), r(2, 6, 3))
case("softmax", lambda x: F.softmax(x, 1), r(3, 5, 2) * 20)
case("log_softmax", lambda x: F.log_softmax(x, -1), r(3, 5) * 50)
case("softmin", lambda x: F.softmin(x, 0), r(3, 5))

case("layer_norm", lambda x, w, b: F.layer_norm(x, (4, 3), w, b, 1e-5), r(2, 4, 3), r(4, 3), r(4, 3))
case("rms_norm", lambda x, w: F.rms_norm(x, (5,), w, 1e-6), r(3, 5), r(5))
case("rms_norm_default", lambda x: F.rms_norm(x, (5,)), r(3, 5))
case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), r(2, 4, 3, 2), r(4), r(4))
case("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), r(2, 3, 5), r(3), r(3))
case("batch_norm_training", lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), r(3, 4, 2), r(4), r(4))
case("batch_norm_inference", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5),
     r(3, 4, 2), r(4), r(4) + 1.5, r(4), r(4), fixed=(1, 2))


def running(x):
    m, v = torch.full((4,), 0.5), torch.full((4,), 2.0)
    F.batch_norm(x, m, v, training=True, momentum=0.3)
    return (m + 0 * x.sum(), v)


case("running_statistics", running, r(3, 4, 2))

case("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2), r(2, 4, 9), r(6, 2, 3), r(6))
case("conv2d", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 1), r(2, 3, 6, 5), r(4, 3, 2, 3), r(4))
case("conv2d_unbatched", lambda x, w: F.conv2d(x, w), r(3, 4, 4), r(2, 3, 3, 1))
case("conv2d_depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=4), r(1, 4, 5, 4), r(8, 1, 3, 3))
case("conv3d", lambda x, w, b: F.conv3d(x, w, b, (1, 2, 1), (0, 1, 1)), r(1, 2, 3, 4, 3), r(3, 2, 2, 3, 2), r(3))
case("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2, 2, 2), r(2, 4, 5), r(4, 3, 3), r(6))
case("conv_transpose1d_beyond", lambda x, w: F.conv_transpose1d(x, w, None, 3, 0, 2), r(1, 2, 3), r(2, 2, 2))
case("conv_transpose2d", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), r(2, 3, 3, 4), r(3, 2, 3, 3), r(2))
case("conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, None, (1, 2, 1), (0, 1, 1)),
     r(1, 2, 2, 3, 3), r(2, 2, 2, 3, 2))

case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1, 2), r(2, 3, 9))
case("max_pool2d", lambda x: F.max_pool2d(x, (2, 3), None, (1, 1)), r(2, 2, 5, 7))
case("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, 1, 1, True), r(1, 2, 6, 8))
case("max_pool2d_with_indices", lambda x: F.max_pool2d(x, 2, 2, return_indices=True), torch.randint(0, 4, (1, 2, 4, 6)) * 1.0)
case("max_pool3d", lambda x: F.max_pool3d(x, 2, 1), r(1, 2, 3, 3, 4))
case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), r(2, 3, 8))
case("avg_pool2d", lambda x: F.avg_pool2d(x, (2, 3), (1, 2), (1, 1), False, False), r(2, 2, 5, 6))
case("avg_pool2d_ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), r(1, 2, 6, 8))
case("avg_pool2d_ceil_without_pad", lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), r(2, 6, 8))
case("avg_pool3d", lambda x: F.avg_pool3d(x, 2), r(1, 2, 4, 4, 2))
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), r(2, 2, 7, 4))
case("adaptive_avg_pool1d_even", lambda x: F.adaptive_avg_pool1d(x, 3), r(2, 2, 9))
case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 2)), r(2, 2, 7, 5))

q, k, v = r(2, 3, 4, 5), r(2, 3, 6, 5), r(2, 3, 6, 2)
sdpa = F.scaled_dot_product_attention
case("attention", sdpa, q, k, v)
case("attention_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3), q, k, v)
case("attention_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), q, k, v, torch.rand(4, 6) > 0.3)
case("attention_bias", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), q, k, v, r(2, 1, 4, 6))
case("attention_three", sdpa, r(2, 4, 3), r(2, 5, 3), r(2, 5, 3))
case("attention_grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), r(2, 4, 3, 2), r(2, 2, 5, 2), r(2, 2, 5, 2))


def recurrent(kind, bias=True, reverse=False, **more):
    def run(x, h, *rest):
        rest = list(rest)
        state = (h[None], rest.pop(0)[None]) if kind is torch.nn.LSTM else h[None]
        layer = kind(x.shape[-1], h.shape[-1], bias=bias, **more)
        names = ["weight_ih_l0", "weight_hh_l0"] + (["bias_ih_l0", "bias_hh_l0"] if bias else [])
        out, state = torch.func.functional_call(layer, dict(zip(names, rest)), (x.flip(0) if reverse else x, state))
        state = state if isinstance(state, tuple) else (state,)
        return (out.flip(0) if reverse else out, *state)

    return run


def weights(gates, bias=True):
    return [r(gates * 3, 4), r(gates * 3, 3)] + ([r(gates * 3), r(gates * 3)] if bias else [])


s, h = r(5, 2, 4), r(2, 3)
case("lstm", recurrent(torch.nn.LSTM), s, h, r(2, 3), *weights(4))
case("lstm_reverse", recurrent(torch.nn.LSTM, False, True), s, h, r(2, 3), *weights(4, False))
case("gru", recurrent(torch.nn.GRU), s, h, *weights(3))
case("gru_reverse", recurrent(torch.nn.GRU, True, True), s, h, *weights(3))
case("rnn_tanh", recurrent(torch.nn.RNN), s, h, *weights(1))
case("rnn_relu", recurrent(torch.nn.RNN, False, nonlinearity="relu"), s, h, *weights(1, False))

case("embedding", lambda i, w: F.embedding(i, w, padding_idx=1), torch.tensor([[3, 1], [0, 3]]), r(4, 3))

image = r(2, 2, 4, 5)
case("nearest", lambda x: F.interpolate(x, (8, 3), mode="nearest"), image)
case("bilinear", lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=False), image)
case("bilinear_corners", lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True), image)
case("linear_one", lambda x: F.interpolate(x, (1,), mode="linear", align_corners=True), r(1, 2, 5))
case("trilinear", lambda x: F.interpolate(x, (3, 2, 5), mode="trilinear", align_corners=False), r(1, 1, 2, 3, 4))

logits, target, weight = r(4, 3) * 5, torch.tensor([2, 0, -100, 1]), torch.tensor([0.5, 1.25, 2.0])
case("cross_entropy", F.cross_entropy, logits, target)
case("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2), logits, target)
case("cross_entropy_weighted", lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1), logits, target, weight,
     fixed=(2,))
case("cross_entropy_sum", lambda x, t, w: F.cross_entropy(x, t, w, reduction="sum"), logits, target, weight, fixed=(2,))
case("cross_entropy_none", lambda x, t: F.cross_entropy(x, t, ignore_index=1, reduction="none"),
     r(2, 3, 2), torch.tensor([[0, 1], [2, 0]]))
case("cross_entropy_one", F.cross_entropy, r(5), torch.tensor(3))
case("cross_entropy_probabilities", lambda x, t: F.cross_entropy(x, t.softmax(1), label_smoothing=0.1), r(3, 4), r(3, 4))
case("nll_loss", lambda x, t, w: F.nll_loss(x, t, w), logits, target, weight, fixed=(2,))
a, b = r(3, 4) * 2, r(3, 4) * 2
case("mse_loss", F.mse_loss, a, b)
case("l1_loss", lambda a, b: F.l1_loss(a, b, reduction="sum"), a, b)
case("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.7), a, b)
case("huber_loss", lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7), a, b)
case("binary_cross_entropy", F.binary_cross_entropy, torch.tensor([0.2, 0.9]), torch.tensor([1.0, 0.3]), fixed=(1,))
case("binary_cross_entropy_with_logits",
     lambda x, t, p: F.binary_cross_entropy_with_logits(x, t, pos_weight=p),
     torch.tensor([-60.0, 0.0, 1.5, 60.0]), torch.tensor([1.0, 0.3, 0.0, 0.2]), torch.tensor([1.5, 0.5, 2.0, 1.0]),
     fixed=(2,))
case("kl_div", lambda x, t: F.kl_div(x, t, reduction="sum"), r(3), torch.tensor([0.0, 0.25, 0.75]), fixed=(1,))
case("kl_div_log", lambda x, t: F.kl_div(x, t, reduction="none", log_target=True), r(3), r(3))
case("hinge_embedding_loss", lambda x, t: F.hinge_embedding_loss(x, t, 0.4),
     torch.tensor([0.3, 0.2, 0.9, -0.5]), torch.tensor([1, -1, -1, 1]))
case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b, 1), a, b)
case("cosine_embedding_loss", lambda a, b, t: F.cosine_embedding_loss(a, b, t, 0.1), a, b, torch.tensor([1, -1, -1]))

# Where the logarithms end, and targets that are neither 1 nor -1.
case("binary_cross_entropy_ends", lambda x, t: F.binary_cross_entropy(x, t, reduction="sum"),
     torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0.0, 1.0, 1.0]), fixed=(1,))
case("binary_cross_entropy_missed", lambda x, t: F.binary_cross_entropy(x, t, reduction="sum"),
     torch.tensor([0.0, 0.0, 1.0, 1.0, 1e-50]), torch.tensor([1.0, 0.25, 0.0, 0.75, 0.5]), fixed=(1,))
case("cosine_embedding_loss_short", lambda a, b, t: F.cosine_embedding_loss(a, b, t, reduction="none"),
     a[:, :3] * 1e-6, b[:, :3] * 1e-5, torch.tensor([1, -1, 0]))
case("kl_div_batch_mean", lambda x, t: F.kl_div(x, t, reduction="batchmean"), r(3, 2), r(3, 2).abs())

json.dump(cases, sys.stdout, separators=(",", ":"))
