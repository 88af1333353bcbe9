"""Linear algebra: products, norms and what is made of them. Decompositions are not there yet."""

from __future__ import annotations

from typing import Any

from ._engine import Tensor
from ._manipulation import matmul, matrix_transpose, outer, tensordot, vecdot


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of size 3."""
    return x1.cross(x2, axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    rows, columns = x.shape[-2:]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset if offset >= 0 else -offset * columns
    flat = x.reshape(*x.shape[:-2], rows * columns)
    stop = start + (length - 1) * (columns + 1) + 1 if length else start
    return flat[..., start : stop : columns + 1]


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of matrices."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """A square matrix times itself, ``n`` times in all."""
    from . import eye

    if n < 0:
        raise ValueError("matrix_power: negative powers need an inverse, which is not there yet")
    result = eye(x.shape[-1], dtype=x.dtype, device=x.device).broadcast_to(x.shape)
    power = x
    while n:
        if n & 1:
            result = result.matmul(power)
        n >>= 1
        if n:
            power = power.matmul(power)
    return result


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The ``ord``-norm over axes."""
    if axis is None and keepdims:
        return x.norm(ord).reshape((1,) * x.ndim)
    return x.norm(ord, axis, keepdims)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices: ``"fro"``, 1, -1 or infinity."""
    if ord == "fro":
        return x.norm(2, (-2, -1), keepdims)
    axis = {1: -2, -1: -2, float("inf"): -1, float("-inf"): -1}.get(ord)
    if axis is None:
        raise ValueError(f"matrix_norm: ord is {ord!r}: it is 'fro', 1, -1 or infinity")
    sums = x.abs().sum(axis, keepdim=True)
    extreme = sums.amax((-2, -1), True) if ord > 0 else sums.amin((-2, -1), True)
    return extreme if keepdims else extreme.squeeze((-2, -1))


norm = vector_norm

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "norm",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
