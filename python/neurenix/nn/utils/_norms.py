"""Norms of weights: what both kinds of weight and spectral normalisation compute."""

from __future__ import annotations

from ... import _engine
from ..._autograd import no_grad
from ..._engine import Tensor


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The norms of the slices along a dimension, with dimensions of size 1 for the others; of all elements if ``dim``
    is ``None`` or -1, as a tensor without dimensions.
    """
    if dim is None or dim == -1:
        return (v * v).sum().sqrt()
    others = [each for each in range(v.ndim) if each != dim]
    return (v * v).sum(others, keepdim=True).sqrt() if others else v.abs()


def unit(vector: Tensor, eps: float) -> Tensor:
    """The vector divided by its norm, which is at least ``eps``."""
    return vector / vector.norm().clamp(min=eps)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight as a matrix whose rows are the slices along a dimension."""
    if dim != 0:
        weight = weight.permute(dim, *(each for each in range(weight.ndim) if each != dim))
    return weight.reshape(weight.shape[0], -1)


@no_grad()
def iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float, u_first: bool) -> None:
    """Moves ``u`` and ``v``, in place, towards the singular vectors of the greatest singular value."""
    new_u, new_v = u.detach(), v.detach()
    for _ in range(count):
        if u_first:
            new_u = unit(matrix @ new_v, eps)
            new_v = unit(matrix.mT @ new_u, eps)
        else:
            new_v = unit(matrix.mT @ new_u, eps)
            new_u = unit(matrix @ new_v, eps)
    u.copy_(new_u)
    v.copy_(new_v)


@no_grad()
def first_vectors(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Random unit vectors for :func:`iterate`."""
    rows, columns = matrix.shape
    u, v = (_engine.randn(size, dtype=matrix.dtype, device=matrix.device) for size in (rows, columns))
    return unit(u, eps), unit(v, eps)
