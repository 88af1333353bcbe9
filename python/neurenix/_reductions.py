"""Reductions and scans over axes: Python array API standard and PyTorch.

Where both define a function, positional arguments and ``axis=``, ``keepdims=`` follow the standard, ``dim=`` and
``keepdim=`` follow PyTorch.
"""

from __future__ import annotations

import builtins
import operator
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._creation import full
from ._engine import Tensor
from ._manipulation import concat

Axis = int | tuple[int, ...] | None


def _axis(axis: Any, dim: Any) -> Any:
    if axis is not None and dim is not None:
        raise TypeError("axis and dim are the same argument; pass only one")
    return axis if dim is None else dim


def _standard(x: Tensor, dtype: Any) -> Any:
    """The dtype of a sum in the standard; methods follow PyTorch, with ``int64`` also for unsigned integers."""
    return "uint64" if dtype is None and x.dtype.name.startswith("uint") else dtype


def sum(
    x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, dim: Axis = None, keepdim: bool = False
) -> Tensor:
    """The sum over axes, by default over all. Integers are summed in 64 bits, unsigned ones as ``uint64``."""
    return x.sum(_axis(axis, dim), keepdims or keepdim, _standard(x, dtype))


def prod(
    x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, dim: Axis = None, keepdim: bool = False
) -> Tensor:
    """The product over axes."""
    return x.prod(_axis(axis, dim), keepdims or keepdim, _standard(x, dtype))


def mean(
    x: Tensor, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, dim: Axis = None, keepdim: bool = False
) -> Tensor:
    """The mean over axes; integers give the default dtype."""
    return x.mean(_axis(axis, dim), keepdims or keepdim, dtype)


def var(
    x: Tensor,
    /,
    axis: Axis = None,
    *,
    correction: float | None = None,
    keepdims: bool = False,
    dim: Axis = None,
    keepdim: bool = False,
) -> Tensor:
    """The variance over axes. The default ``correction`` is 0 as in the standard; with ``dim=`` it is 1 as in PyTorch.
    """
    if correction is None:
        correction = 0.0 if dim is None else 1.0
    return x.var(_axis(axis, dim), keepdim=keepdims or keepdim, correction=correction)


def std(
    x: Tensor,
    /,
    axis: Axis = None,
    *,
    correction: float | None = None,
    keepdims: bool = False,
    dim: Axis = None,
    keepdim: bool = False,
) -> Tensor:
    """The standard deviation over axes. The default ``correction`` is 0 as in the standard; with ``dim=`` it is 1 as in
    PyTorch.
    """
    if correction is None:
        correction = 0.0 if dim is None else 1.0
    return x.std(_axis(axis, dim), keepdim=keepdims or keepdim, correction=correction)


def max(
    x: Tensor,
    /,
    axis: Any = None,
    keepdim: bool | None = None,
    *,
    keepdims: bool = False,
    dim: int | None = None,
    other: Tensor | None = None,
) -> Any:
    """The greatest element over axes. With ``dim=`` or ``keepdim``, values and indices; with a second tensor, the
    greater of each pair, as in PyTorch.
    """
    return _extreme(x.max, x.amax, _axis(_axis(axis, dim), other), dim is not None or keepdim is not None, keepdims or bool(keepdim))


def min(
    x: Tensor,
    /,
    axis: Any = None,
    keepdim: bool | None = None,
    *,
    keepdims: bool = False,
    dim: int | None = None,
    other: Tensor | None = None,
) -> Any:
    """The smallest element over axes. With ``dim=`` or ``keepdim``, values and indices; with a second tensor, the
    smaller of each pair, as in PyTorch.
    """
    return _extreme(x.min, x.amin, _axis(_axis(axis, dim), other), dim is not None or keepdim is not None, keepdims or bool(keepdim))


def _extreme(pair: Any, alone: Any, axis: Any, as_pair: bool, keepdim: bool) -> Any:
    if isinstance(axis, Tensor):
        return pair(axis)
    # A NumPy integer is a single axis, too; an array may also hold one, or several.
    if as_pair and hasattr(axis, "__index__") and getattr(axis, "ndim", 0) == 0:
        return pair(operator.index(axis), keepdim)
    return alone(axis, keepdim)


def amax(x: Tensor, /, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The greatest element over axes."""
    return x.amax(dim, keepdim)


def amin(x: Tensor, /, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The smallest element over axes."""
    return x.amin(dim, keepdim)


def argmax(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the greatest element along an axis, or of all elements."""
    return _kept(x, x.argmax(_axis(axis, dim), keepdims or keepdim), _axis(axis, dim), keepdims or keepdim)


def argmin(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element along an axis, or of all elements."""
    return _kept(x, x.argmin(_axis(axis, dim), keepdims or keepdim), _axis(axis, dim), keepdims or keepdim)


def _kept(x: Tensor, index: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    return index.reshape((1,) * x.ndim) if keepdims and axis is None else index


def all(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """True where all elements over axes are nonzero."""
    return x.all(_axis(axis, dim), keepdims or keepdim)


def any(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """True where any element over axes is nonzero."""
    return x.any(_axis(axis, dim), keepdims or keepdim)


def count_nonzero(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False, dim: Axis = None) -> Tensor:
    """The number of nonzero elements over axes."""
    return x.count_nonzero(_axis(axis, dim), keepdims)


def logsumexp(x: Tensor, /, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` over axes, without overflow."""
    return x.logsumexp(dim, keepdim)


def norm(x: Tensor, /, p: Any = None, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The p-norm over axes."""
    return x.norm(p, dim, keepdim)


def _along(x: Tensor, axis: int | None, name: str) -> int:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: the axis of a tensor of {x.ndim} dimensions must be given")
        return 0
    return axis


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """The cumulative sum along an axis; ``include_initial`` prepends 0."""
    axis = _along(x, axis, "cumulative_sum")
    sums = x.cumsum(axis, _standard(x, dtype))
    return _from_initial(sums, axis, 0) if include_initial else sums


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """The cumulative product along an axis; ``include_initial`` prepends 1."""
    axis = _along(x, axis, "cumulative_prod")
    products = x.cumprod(axis, _standard(x, dtype))
    return _from_initial(products, axis, 1) if include_initial else products


def _from_initial(x: Tensor, axis: int, initial: int) -> Tensor:
    shape = list(x.shape)
    shape[axis] = 1
    return concat([full(tuple(shape), initial, dtype=x.dtype, device=x.device), x], axis)


def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative sum along ``dim``."""
    return x.cumsum(dim, dtype)


def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The cumulative product along ``dim``."""
    return x.cumprod(dim, dtype)


def cummax(x: Tensor, dim: int) -> Any:
    """The running maximum along ``dim`` and its indices, the latest of equal elements.

    >>> import neurenix as nx
    >>> nx.cummax(nx.Tensor([1.0, 3.0, 2.0, 3.0]), 0).indices.tolist()
    [0, 1, 1, 3]
    """
    return x.cummax(dim)


def cummin(x: Tensor, dim: int) -> Any:
    """The running minimum along ``dim`` and its indices, the latest of equal elements."""
    return x.cummin(dim)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """``log(cumsum(exp(x)))`` along ``dim``, without overflow."""
    return x.logcumsumexp(dim)


def diff(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    dim: int | None = None,
) -> Tensor:
    """The differences of adjacent elements along an axis, by default the last, ``n`` times."""
    axis = _axis(axis, dim)
    axis = -1 if axis is None else axis
    if n <= 0 < x.shape[axis]:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = _engine.cat(parts, axis)
    return _engine.diff(x, builtins.max(n, 0), axis)


_guard(globals())
