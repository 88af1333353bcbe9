"""Transforms of vectors and matrices, and of parts of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import _engine, linalg
from .._functions import tril_indices
from .._engine import Tensor
from . import constraints
from ._elementwise_transforms import clipped_sigmoid
from ._transform import Shape, Transform
from .utils import epsilon, sum_rightmost, tiny


def _resized(shape: Shape, change: int) -> Shape:
    if not shape:
        raise ValueError("the transform needs at least one dimension")
    return (*shape[:-1], shape[-1] + change)


class SoftmaxTransform(Transform):
    """Softmax along the last dimension. It is not invertible: the logarithms are one of its inputs."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Shape) -> Shape:
        return _resized(shape, 0)

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """From vectors to probabilities of one more category: each element says which part of the rest of a stick is broken
    off."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _offset(count: int, like: Tensor) -> Tensor:
        return _engine.arange(count, 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x: Tensor) -> Tensor:
        z = clipped_sigmoid(x - self._offset(x.shape[-1], x))
        one = _engine.full_like(z[..., :1], 1.0)
        return _engine.cat([z, one], -1) * _engine.cat([one, (1 - z).cumprod(-1)], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        first = y[..., :-1]
        rest = (1 - first.cumsum(-1)).clamp(min=tiny(y))
        return first.log() - rest.log() + self._offset(first.shape[-1], y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x.shape[-1], x)
        # 1 - sigmoid(x) = exp(-x) sigmoid(x).
        return (-x + x.logsigmoid() + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        return _resized(shape, 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        return _resized(shape, -1)



class LowerCholeskyTransform(Transform):
    """From matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """From matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """From vectors of ``n (n - 1) / 2`` elements to the Cholesky factors of correlation matrices of size n (Stan's
    reference manual, "Cholesky factors of correlation matrices")."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    @staticmethod
    def _below(y: Tensor, diagonal: int) -> Tensor:
        """The elements below a diagonal, row by row."""
        rows, columns = tril_indices(y.shape[-1], y.shape[-1], diagonal, device=y.device)
        return y[..., rows, columns]

    def _call(self, x: Tensor) -> Tensor:
        size = self.forward_shape(tuple(x.shape))[-1]
        x = x.tanh().clamp(-1 + epsilon(x), 1 - epsilon(x))
        # The place of each element in the vector; zeros, from one more element, elsewhere.
        places = [[r * (r - 1) // 2 + c if c < r else x.shape[-1] for c in range(size)] for r in range(size)]
        padded = _engine.cat([x, _engine.full_like(x[..., :1], 0.0)], -1)
        index = _engine.tensor([each for row in places for each in row], device=x.device)
        r = padded.index_select(-1, index).reshape(*x.shape[:-1], size, size)
        rest = (1 - r * r).sqrt().cumprod(-1)
        one = _engine.full_like(rest[..., :1], 1.0)
        return (r + _engine.eye(size, dtype=x.dtype, device=x.device)) * _engine.cat([one, rest[..., :-1]], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        rest = 1 - (y * y).cumsum(-1)
        before = _engine.cat([_engine.full_like(rest[..., :1], 1.0), rest[..., :-1]], -1)
        return (self._below(y, -1) / self._below(before, -1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """With respect to the elements below the diagonal."""
        rest = self._below(1 - (y * y).cumsum(-1), -2)
        by_tanh = -2 * (x + (-2 * x).softplus() - math.log(2.0)).sum(-1)
        return 0.5 * rest.log().sum(-1) + by_tanh

    def forward_shape(self, shape: Shape) -> Shape:
        count = _resized(shape, 0)[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError(f"CorrCholeskyTransform: {count} elements do not fill a triangle")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"CorrCholeskyTransform: expected square matrices, got shape {shape}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class _Parts(Transform):
    """A transform for each part along a dimension."""

    transforms: list[Transform]
    dim: int

    @property
    def bijective(self) -> bool:
        return all(each.bijective for each in self.transforms)

    def _split(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([each(part) for each, part in zip(self.transforms, self._split(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([each.inv(part) for each, part in zip(self.transforms, self._split(y))])


class CatTransform(_Parts):
    """Transforms of parts of the sizes ``lengths`` along ``dim``, which are concatenated."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) for each in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(f"CatTransform: {len(self.lengths)} lengths for {len(self.transforms)} transforms")
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(each.event_dim for each in self.transforms)

    @property
    def length(self) -> int:
        """The size of all parts together."""
        return sum(self.lengths)

    def _split(self, x: Tensor) -> list[Tensor]:
        return list(x.split(self.lengths, self.dim))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return _engine.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = []
        for each, before, after in zip(self.transforms, self._split(x), self._split(y)):
            slope = each.log_abs_det_jacobian(before, after)
            parts.append(sum_rightmost(slope, self.event_dim - each.event_dim))
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return _engine.cat(parts, dim) if dim < 0 else sum(parts[1:], parts[0])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([each.domain for each in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([each.codomain for each in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """A transform for each position along ``dim``."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) for each in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _split(self, x: Tensor) -> list[Tensor]:
        if x.shape[self.dim] != len(self.transforms):
            raise ValueError(f"StackTransform: {len(self.transforms)} transforms for {x.shape[self.dim]} positions")
        return list(x.unbind(self.dim))

    def _join(self, parts: list[Tensor]) -> Tensor:
        return _engine.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        each = zip(self.transforms, self._split(x), self._split(y))
        return self._join([transform.log_abs_det_jacobian(before, after) for transform, before, after in each])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([each.domain for each in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([each.codomain for each in self.transforms], self.dim)
