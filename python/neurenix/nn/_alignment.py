"""Connectionist temporal classification: the loss of a sequence whose label positions are unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from ._precision import full
from ._windows import require_dims

# The logarithm of a probability of 0. Finite, so that gradients are not NaN.
_NEVER = -1e30


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the probability that frames spell their labels (Graves et al., 2006).

    ``log_probs`` is (T, N, C) or (T, C); ``targets`` is (N, S), or all labels concatenated; both lengths hold one
    number per sequence. ``"mean"`` first divides each loss by its number of labels. Labels that do not fit in their
    frames give an infinite loss, or 0 with ``zero_infinity``, and a gradient of 0.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'ctc_loss: reduction is {reduction!r}, it must be "mean", "sum" or "none"')
    (log_probs,) = full(log_probs)
    require_dims("ctc_loss", log_probs, 2, 3)
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    frames, batch, classes = log_probs.shape
    inputs, labels = _lengths("input_lengths", input_lengths, batch), _lengths("target_lengths", target_lengths, batch)
    if frames == 0:
        raise ValueError("ctc_loss: log_probs has no frames")
    if inputs.max(initial=0) > frames:
        raise ValueError(f"ctc_loss: an input length is {inputs.max()}, but log_probs has {frames} frames")
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss: blank {blank} is out of range for {classes} classes")
    spelled = _spelled(targets, labels, batch)
    if spelled.size and not 0 <= spelled.min() <= spelled.max() < classes:
        raise ValueError(f"ctc_loss: a label is out of range for {classes} classes")
    loss = _losses(log_probs, spelled, inputs, labels, blank)
    impossible = loss > -0.5 * _NEVER
    loss = _engine.where(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return (loss / _tensor(np.maximum(labels, 1).astype(np.float32), loss)).mean()
    return loss.squeeze(0) if single else loss


def _tensor(array: Any, beside: Tensor) -> Tensor:
    return _engine.tensor(array, device=beside.device)


def _lengths(name: str, given: Any, batch: int) -> Any:
    numbers = np.atleast_1d(np.asarray(given.tolist() if isinstance(given, Tensor) else given, dtype=np.int64))
    if numbers.shape != (batch,) or numbers.min(initial=0) < 0:
        raise ValueError(f"ctc_loss: {name} must be {batch} non-negative integers, got {numbers.tolist()}")
    return numbers


def _spelled(targets: Tensor, lengths: Any, batch: int) -> Any:
    """The labels as rows (N, longest), padded with zeros."""
    given = np.asarray(targets.tolist(), dtype=np.int64)
    rows = np.zeros((batch, lengths.max(initial=0)), np.int64)
    if given.ndim == 1 and given.size != lengths.sum():
        raise ValueError(f"ctc_loss: {given.size} concatenated targets, but target_lengths add up to {lengths.sum()}")
    if given.ndim == 2 and (given.shape[0] != batch or lengths.max(initial=0) > given.shape[1]):
        raise ValueError(f"ctc_loss: targets have shape {tuple(given.shape)}, target_lengths are {lengths.tolist()}")
    if given.ndim not in (1, 2):
        raise ValueError(f"ctc_loss: expected targets of 1 or 2 dimensions, got shape {tuple(given.shape)}")
    start = 0
    for row, length in enumerate(lengths):
        rows[row, :length] = given[start : start + length] if given.ndim == 1 else given[row, :length]
        start += length
    return rows


def _losses(log_probs: Tensor, spelled: Any, inputs: Any, lengths: Any, blank: int) -> Tensor:
    frames, batch, _ = log_probs.shape
    # Blanks before, between and after the labels.
    states = np.full((batch, 2 * spelled.shape[1] + 1), blank)
    states[:, 1::2] = spelled
    # A label may directly follow a different label, without a blank between them.
    skips = np.full(states.shape, _NEVER, np.float32)
    skips[:, 2:][(states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])] = 0.0
    first = np.full(states.shape, _NEVER, np.float32)
    first[:, :1] = 0.0
    first[:, 1:2][lengths > 0] = 0.0
    index = _tensor(states, log_probs).unsqueeze(0).expand(frames, *states.shape)
    # Unreachable states stay above -inf, because the difference of two infinities is NaN.
    emitted = log_probs.gather(2, index).clamp(min=_NEVER)
    skip, forward, count = _tensor(skips, log_probs), _tensor(first, log_probs) + emitted[0], states.shape[1]
    for frame in range(1, int(inputs.max(initial=0))):
        ways = [forward, forward.narrow(1, 0, count - 1).pad((1, 0), _NEVER)]
        if count > 2:
            ways.append(forward.narrow(1, 0, count - 2).pad((2, 0), _NEVER) + skip)
        moved = _sum_of_logarithms(ways) + emitted[frame]
        live = inputs > frame
        forward = moved if live.all() else _engine.where(_tensor(live[:, None], log_probs), moved, forward)
    last = 2 * lengths
    ends = [forward.gather(1, _tensor(last[:, None], log_probs))]
    before = forward.gather(1, _tensor(np.maximum(last - 1, 0)[:, None], log_probs))
    ends.append(_engine.where(_tensor((lengths > 0)[:, None], log_probs), before, _NEVER))
    return -_sum_of_logarithms(ends).squeeze(1)


def _sum_of_logarithms(terms: list[Tensor]) -> Tensor:
    """The logarithm of the sum of numbers given by their logarithms."""
    greatest = terms[0].detach()
    for term in terms[1:]:
        greatest = greatest.maximum(term.detach())
    total = (terms[0] - greatest).exp()
    for term in terms[1:]:
        total = total + (term - greatest).exp()
    return greatest + total.log()


_guard(globals())
