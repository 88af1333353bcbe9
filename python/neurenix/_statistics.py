"""Statistics, products of matrices, integrals and derivatives of PyTorch: functions of ``neurenix``, and methods where PyTorch
has them.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Sequence
from typing import Any

from . import _engine, _linear_algebra
from ._arguments import guard as _guard
from ._complex_methods import by_parts
from ._engine import Tensor, where
from ._floating import floating as _floating
from ._methods import _added, _factors_first
from ._reductions import diff
from ._results import Histogram as _Histogram

METHODS = ["addbmm", "addr", "corrcoef", "cov", "histogram", "logdet", "nanquantile", "vdot"]
__all__ = [
    *METHODS, "cumulative_trapezoid", "gradient", "histogramdd", "pdist",
]  # fmt: skip



@_factors_first("beta", "alpha")
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * sum(batch1 @ batch2)``, summed over the batch."""
    return _added(input, (batch1 @ batch2).sum(0), beta, alpha)


@_factors_first("beta", "alpha")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    if input.dtype.name == "bool" and vec1.dtype.name == "bool":
        return (_added(input.int(), vec1.outer(vec2).int(), int(bool(beta)), int(bool(alpha)))) != 0
    return _added(input, vec1.outer(vec2), beta, alpha)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of products of two vectors, of which the first is conjugated."""
    return input.conj().dot(other)


def logdet(input: Tensor) -> Tensor:
    """The logarithm of determinants: NaN if negative."""
    sign, magnitude = _linear_algebra.slogdet(input)
    if sign.is_complex():
        return sign.log() + magnitude
    return where(sign < 0, float("nan"), magnitude)


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariances of variables, which are the rows, over observations, the columns. ``fweights`` are numbers of equal
    observations, ``aweights`` their importance.
    """
    if input.ndim > 2:
        raise ValueError(f"cov: expected at most 2 dimensions, got shape {tuple(input.shape)}")
    x = input if aweights is None or input.is_floating_point() or input.is_complex() else input.to(aweights.dtype)
    x = (x if x.is_complex() else _floating(x)).reshape(input.shape[0] if input.ndim == 2 else 1, input.shape[-1] if input.ndim else 1)
    kind = x.dtype.to_real()
    weights = None
    for each in (fweights, aweights):
        if each is not None:
            weights = each.to(kind) if weights is None else weights * each.to(kind)
    count = _engine.full((), x.shape[1], dtype=kind, device=x.device) if weights is None else weights.sum()
    mean = x.mean(1, True) if weights is None else (x * weights).sum(1, True) / count
    apart = x - mean
    scale = count - correction
    if aweights is not None and weights is not None:
        scale = count - correction * (weights * aweights.to(kind)).sum() / count
    products = apart @ (apart if weights is None else apart * weights).mH / scale.clamp(min=0)
    return products.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables, which are the rows."""
    products = cov(input)
    if products.ndim == 0:
        return products / products
    scale = products.diagonal().real.sqrt()
    found = products / scale.unsqueeze(1) / scale
    return by_parts(Tensor.clamp, found, -1, 1) if found.is_complex() else found.clamp(-1, 1)


def nanquantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: builtins.bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Same as ``quantile``, ignoring NaN; NaN if all elements are."""
    if input.ndim == 0:
        dim, keepdim = None, False
    x = input.flatten() if dim is None else input
    axis = 0 if dim is None else dim
    count = (~x.isnan()).sum(axis, True)
    ordered = where(x.isnan(), float("inf"), x).sort(axis)[0]
    shares = q if isinstance(q, Tensor) else _engine.full((), q, dtype=x.dtype, device=x.device)
    found = []
    for share in shares.reshape(-1).unbind():
        place = share * (count - 1).clamp(min=0).to(x.dtype)
        low, high = place.floor(), place.ceil()
        if interpolation in ("lower", "higher", "nearest"):
            place = {"lower": low, "higher": high, "nearest": place.round()}[interpolation]
            value = ordered.gather(axis, place.to("int64"))
        else:
            ends = [ordered.gather(axis, each.to("int64")) for each in (low, high)]
            part = place - low if interpolation == "linear" else 0.5
            value = where(low == high, ends[0], ends[0] + (ends[1] - ends[0]) * part)
        value = where(count == 0, float("nan"), value)
        found.append(value if keepdim and dim is not None else value.squeeze(axis))
    result = _engine.stack(found)
    if keepdim and dim is None:
        result = result.reshape(-1, *[1] * input.ndim)
    return result if shares.ndim else result.squeeze(0)


def histogram(
    input: Tensor, bins: int | Tensor, *, range: tuple[float, float] | None = None, weight: Tensor | None = None,
    density: builtins.bool = False,
) -> tuple[Tensor, Tensor]:
    """The numbers of elements between edges, or the sums of their weights, and the edges. ``bins`` are the edges, or their
    number less one; ``density`` divides by the total and the widths.
    """
    edges = _edges(input, bins, range)
    counts = _counts([input.flatten()], [edges], weight)
    if density:
        counts = counts / (counts.sum() * diff(edges))
    return _Histogram(counts, edges)


def histogramdd(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: builtins.bool = False
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The numbers of rows in the cells of a grid, and the edges of each dimension: see ``histogram``."""
    rows = input.reshape(-1, input.shape[-1])
    given = [bins] * rows.shape[1] if isinstance(bins, int) else list(bins)
    ranges = [None if range is None else (range[2 * each], range[2 * each + 1]) for each in builtins.range(rows.shape[1])]
    columns = list(rows.unbind(1))
    edges = [_edges(column, each, ends) for column, each, ends in zip(columns, given, ranges)]
    counts = _counts(columns, edges, weight)
    if density:
        volume = functools.reduce(lambda a, b: a.unsqueeze(-1) * b, [diff(each) for each in edges])
        counts = counts / (counts.sum() * volume)
    return counts, tuple(edges)


def _edges(x: Tensor, bins: int | Tensor, range: tuple[float, float] | None) -> Tensor:
    if isinstance(bins, Tensor):
        return bins
    low, high = range if range is not None else (x.min().item(), x.max().item()) if x.numel() else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _engine.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


def _counts(columns: list[Tensor], edges: list[Tensor], weight: Tensor | None) -> Tensor:
    sizes = [each.shape[0] - 1 for each in edges]
    place = _engine.zeros(columns[0].shape[0], dtype="int64", device=columns[0].device)
    inside = _engine.full_like(place, True, dtype="bool")
    for column, each, size in zip(columns, edges, sizes):
        inside = inside & (column >= each[0]) & (column <= each[-1])
        # The last interval has its upper edge.
        place = place * size + (each._searchsorted(column.contiguous(), True) - 1).clamp(0, size - 1)
    weights = _engine.full_like(columns[0], 1) if weight is None else weight.flatten().to(columns[0].dtype)
    total = functools.reduce(lambda a, b: a * b, sizes)
    sums = _engine.zeros(total, dtype=columns[0].dtype, device=place.device)
    return sums.index_add(0, place, where(inside, weights, 0)).reshape(tuple(sizes))


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances between each two rows: (N, M) to (N (N - 1) / 2)."""
    from ._functions import triu_indices

    first, second = triu_indices(input.shape[0], input.shape[0], 1, device=input.device).unbind()
    return (input.index_select(0, first) - input.index_select(0, second)).norm(p, 1)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integrals from the first point to each other one along ``dim``: see ``trapezoid``."""
    count = y.shape[dim] - 1
    means = (y.narrow(dim, 1, count) + y.narrow(dim, 0, count)) / 2
    if x is None:
        return (means * dx).cumsum(dim)
    if x.ndim == 1 and y.ndim > 1:
        shape = [1] * y.ndim
        shape[dim] = -1
        x = x.reshape(shape)
    return (means * diff(x, axis=dim if x.ndim == y.ndim else -1)).cumsum(dim)


def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimates of the derivatives along dimensions from values at points: central differences of second order, and at the
    ends of order ``edge_order``. ``spacing`` is the distance of points, or one for each dimension, or their coordinates.
    """
    axes = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    given = spacing if isinstance(spacing, (list, tuple)) else [1 if spacing is None else spacing] * len(axes)
    return tuple(_derivative(input, axis, each, edge_order) for axis, each in zip(axes, given, strict=True))


def _derivative(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    x = _floating(x).movedim(axis, -1)
    count = x.shape[-1]
    if count <= edge_order:
        raise ValueError(f"gradient: expected at least {edge_order + 1} points along dimension {axis}, got {count}")
    steps = (
        diff(spacing.to(x.dtype)) if isinstance(spacing, Tensor) and spacing.ndim
        else _engine.full((count - 1,), float(spacing), dtype=x.dtype, device=x.device)
    )  # fmt: skip
    slopes = diff(x) / steps
    before, after = steps[:-1], steps[1:]
    inner = (slopes[..., :-1] * after + slopes[..., 1:] * before) / (before + after)
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        first = first - (slopes[..., 1:2] - first) * steps[:1] / (steps[:1] + steps[1:2])
        last = last + (last - slopes[..., -2:-1]) * steps[-1:] / (steps[-1:] + steps[-2:-1])
    return _engine.cat([first, inner, last], -1).movedim(-1, axis)


_guard(globals())
