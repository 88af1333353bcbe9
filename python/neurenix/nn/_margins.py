"""Losses with margins, and likelihoods of counts and of normal distributions. Within ``autocast`` they are computed in
``float32``."""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from ._old_names import with_reduction as _with_reduction
from ._precision import full
from ._precision import full as _precise

__all__ = [
    "gaussian_nll_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "pairwise_distance",
    "poisson_nll_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f'reduction is {reduction!r}, it must be "mean", "sum" or "none"')


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``max(0, margin - target * (input1 - input2))``: a target of 1 requires the first to be greater, -1 the second.
    """
    input1, input2, target = full(input1, input2, target)
    return _reduced((margin - target * (input1 - input2)).clamp(min=0), reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of ``max(0, margin - score of the correct class + score of another) ** p``, for scores (N,
    C) or (C,).
    """
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: p is {p}, it must be 1 or 2")
    input, weight = full(input, weight)
    if input.ndim < 2:
        losses = multi_margin_loss(input.reshape(1, -1), target.reshape(1), p, margin, weight, "none")
        return _reduced(losses.squeeze(0), reduction)
    index = target.to("int64").unsqueeze(1)
    apart = (margin - input.gather(1, index) + input).clamp(min=0)
    apart = apart if p == 1 else apart * apart
    if weight is not None:
        apart = apart * weight.index_select(0, target.to("int64")).unsqueeze(1)
    right = _engine.arange(input.shape[1], device=input.device) == index
    return _reduced(_engine.where(right, 0.0, apart).sum(1) / input.shape[1], reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The margins between every correct and every wrong class, for scores (N, C) or (C,); a row of the target lists the
    correct classes, up to the first -1.
    """
    (input,) = full(input)
    if input.ndim < 2:
        losses = multilabel_margin_loss(input.reshape(1, -1), target.reshape(1, -1), "none")
        return _reduced(losses.squeeze(0), reduction)
    if target.shape != input.shape:
        raise ValueError(f"multilabel_margin_loss: expected a target of shape {tuple(input.shape)}, got {tuple(target.shape)}")
    listed = (target < 0).to("int64").cumsum(1) == 0
    index = _engine.where(listed, target, 0).to("int64")
    right = _engine.zeros(*input.shape, dtype="int64", device=input.device).scatter_add(1, index, listed.to("int64")) > 0
    apart = (1 - (input.gather(1, index).unsqueeze(2) - input.unsqueeze(1))).clamp(min=0)
    counted = listed.unsqueeze(2) & ~right.unsqueeze(1)
    return _reduced(_engine.where(counted, apart, 0.0).sum((1, 2)) / input.shape[1], reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * input))`` for targets of 1 and -1."""
    input, target = full(input, target)
    return _reduced(-(target * input).logsigmoid(), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of the cross-entropies of scores (N, C), each class against its absence."""
    input, target, weight = full(input, target, weight)
    losses = -(target * input.logsigmoid() + (1 - target) * (-input).logsigmoid())
    return _reduced((losses if weight is None else losses * weight).mean(-1), reduction)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` over the last dimension."""
    x1, x2 = full(x1, x2)
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, distance to the positive - distance to the negative + margin)``; with ``swap`` the distance from the
    positive to the negative is used if it is smaller than the latter.
    """

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``triplet_margin_loss`` with a custom distance function."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return _reduced((near - far + margin).clamp(min=0), reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts under a Poisson distribution, whose rate (or its logarithm) is the input;
    ``full`` adds Stirling's approximation of the term that depends on the target alone.
    """
    input, target = _precise(input, target)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        above = _engine.where(target > 1, target, 1.0)
        stirling = above * above.log() - above + 0.5 * (2 * math.pi * above).log()
        losses = losses + _engine.where(target > 1, stirling, 0.0)
    return _reduced(losses, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood under a normal distribution with this mean and variance, which is at least ``eps``.
    """
    input, target = _precise(input, target)
    given: Tensor
    if isinstance(var, Tensor):
        (given,) = _precise(var)
    else:
        given = _engine.full((), float(var), dtype=input.dtype, device=input.device)
    if given.ndim == input.ndim - 1:
        given = given.unsqueeze(-1)
    # Values below eps are clamped to eps, but the gradient passes through.
    variance = given + (given.clamp(min=eps) - given).detach()
    losses = 0.5 * (variance.log() + (input - target) * (input - target) / variance)
    return _reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


_guard(globals())

for _name in __all__:
    if "reduction" in globals()[_name].__annotations__:
        globals()[_name] = _with_reduction(globals()[_name])
