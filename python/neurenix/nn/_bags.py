"""Sums, means and maxima of bags of embedded indices."""

from __future__ import annotations

import math

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum (``mode`` ``"sum"``, ``"mean"``, ``"max"``) of rows of ``weight`` for each bag of
    indices: each row of a matrix, or the parts of a vector that begin at ``offsets``. Indices equal to ``padding_idx``
    are ignored.

    >>> import neurenix as nx
    >>> weight = nx.Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> nx.functional.embedding_bag(nx.tensor([0, 2, 1]), weight, nx.tensor([0, 2])).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f'embedding_bag: mode is {mode!r}, it must be "sum", "mean" or "max"')
    if max_norm is not None or scale_grad_by_freq:
        raise ValueError("embedding_bag: max_norm and scale_grad_by_freq are not supported")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ValueError('embedding_bag: per_sample_weights require mode "sum" and must have the shape of the input')
    if (input.ndim == 1) != (offsets is not None):
        raise ValueError("embedding_bag: offsets are required for a vector of indices and not supported for a matrix")
    rows = _engine.embedding(input, weight, padding_idx)
    counts = None
    if padding_idx is not None:
        counts = (input != padding_idx % weight.shape[0]).unsqueeze(-1)
    if mode == "max":
        rows = rows if counts is None else _engine.where(counts, rows, -math.inf)
    elif counts is not None:
        rows = _engine.where(counts, rows, 0.0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if input.ndim == 1:
        assert offsets is not None
        return _of_parts(rows, offsets, counts, mode, include_last_offset)
    if input.ndim != 2:
        raise ValueError(f"embedding_bag: expected indices of 1 or 2 dimensions, got shape {tuple(input.shape)}")
    if mode == "max":
        if input.shape[1] == 0:
            return _engine.zeros(input.shape[0], weight.shape[1], dtype=weight.dtype, device=weight.device)
        greatest = rows.max(1).values
        return greatest if counts is None else _engine.where(counts.any(1), greatest, 0.0)
    total = rows.sum(1)
    if mode == "sum":
        return total
    if counts is None:
        return total / max(input.shape[1], 1)
    return total / counts.sum(1).clamp(min=1).to(total.dtype)


def _of_parts(rows: Tensor, offsets: Tensor, counts: Tensor | None, mode: str, include_last_offset: bool) -> Tensor:
    """The same for the parts of a list of rows that begin at ``offsets``."""
    if offsets.ndim != 1 or (include_last_offset and offsets.numel() == 0):
        raise ValueError("embedding_bag: offsets must be a vector, whose last element is the end with include_last_offset=True")
    if include_last_offset:
        offsets = offsets.narrow(0, 0, offsets.numel() - 1)
    if offsets.numel() and int(offsets[0].item()) != 0:
        raise ValueError("embedding_bag: the first offset must be 0")
    count, width = rows.shape
    place = _engine.arange(count, device=rows.device)
    bag = offsets.to("int64")._searchsorted(place, True) - 1
    start = _engine.zeros(offsets.numel(), width, dtype=rows.dtype, device=rows.device)
    if mode == "max":
        index = bag.unsqueeze(1).broadcast_to((count, width))
        greatest = start.scatter_reduce(0, index, rows, "amax", include_self=False)
        return greatest if counts is None else _engine.where(greatest == -math.inf, 0.0, greatest)
    total = start.index_add(0, bag, rows)
    if mode == "sum":
        return total
    ones = _engine.ones(count, 1, dtype=rows.dtype, device=rows.device) if counts is None else counts.to(rows.dtype)
    many = _engine.zeros(offsets.numel(), 1, dtype=rows.dtype, device=rows.device).index_add(0, bag, ones)
    return total / many.clamp(min=1)


_guard(globals())
