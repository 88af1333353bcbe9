"""Batch normalisation folded into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import TypeVar

from ... import _engine
from ..._engine import Tensor
from ..module import Module
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A convolution that computes what ``conv`` followed by ``bn`` does in evaluation mode. ``transpose`` says that it
    is a transposed convolution.
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A linear layer that computes what ``linear`` followed by ``bn`` does in evaluation mode."""
    features, channels = int(linear.out_features), int(bn.num_features)
    if features != channels:
        raise AssertionError(f"To fuse, linear.out_features == bn.num_features, got {features} and {channels}")
    return _fused(linear, bn, 0)


def _fused(layer: M, bn: Module, dim: int) -> M:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    settings = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    weight, bias = _weights(layer.weight, layer.bias, *settings, dim)
    fused.weight = Parameter(weight, requires_grad=layer.weight.requires_grad)
    fused.bias = Parameter(bias, requires_grad=layer.bias is not None and layer.bias.requires_grad)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a convolution followed by a batch normalisation."""
    weight, bias = _weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)
    return Parameter(weight), Parameter(bias)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear layer followed by a batch normalisation."""
    weight, bias = _weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)
    return Parameter(weight), Parameter(bias)


def _weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    factor: Tensor | None,
    shift: Tensor | None,
    dim: int,
) -> tuple[Tensor, Tensor]:
    weight = weight.detach()
    old = _engine.full_like(mean, 0) if bias is None else bias.detach()
    scale = (variance + eps).rsqrt() * (1.0 if factor is None else factor.detach())
    shape = [1] * weight.ndim
    shape[dim] = -1
    new = (old - mean) * scale + (0.0 if shift is None else shift.detach())
    return (weight * scale.reshape(shape)).to(weight.dtype), new.to(weight.dtype)
