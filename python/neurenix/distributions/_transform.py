"""The base class of transforms, and those made of other transforms."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .utils import sum_rightmost

Shape = tuple[int, ...]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b or bool((a == b).all())
    return bool(a == b)


class Transform:
    """An invertible function. A subclass implements ``_call``, ``_inverse`` and ``log_abs_det_jacobian``.

    With ``cache_size=1``, the last pair of an input and its output is kept, so that the inverse of the output costs
    nothing and is exact. Transforms are equal if they are of the same class and have the same arguments.
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached: tuple[Tensor | None, Tensor | None] = (None, None)
        self._inv: Transform | None = None

    @property
    def event_dim(self) -> int:
        """The number of dimensions of one event, before and after."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("event_dim differs: use domain.event_dim or codomain.event_dim")
        return int(self.domain.event_dim)

    @property
    def inv(self) -> Transform:
        """The inverse."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """1 for increasing functions of numbers, -1 for decreasing ones."""
        raise NotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with another size of the cache."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        new._cache_size, new._cached, new._inv = cache_size, (None, None), None
        return new

    def _arguments(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_cache_size", "_cached", "_inv")}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transform) or type(self) is not type(other):
            return False
        ours, theirs = self._arguments(), other._arguments()
        return ours.keys() == theirs.keys() and all(_same(value, theirs[name]) for name, value in ours.items())

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and self._cached[0] is x and self._cached[1] is not None:
            return self._cached[1]
        y = self._call(x)
        if self._cache_size:
            self._cached = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size and self._cached[1] is y and self._cached[0] is not None:
            return self._cached[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |dy/dx|``, given input and output."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Shape) -> Shape:
        """The output's shape, given the input's."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The input's shape, given the output's."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._transform = transform
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._transform.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._transform.domain

    @property
    def bijective(self) -> bool:
        return bool(self._transform.bijective)

    @property
    def sign(self) -> Any:
        return self._transform.sign

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._transform.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._transform._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._transform.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._transform.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self._transform!r}.inv"


def _widened(constraint: Any, event_dim: int) -> Any:
    missing = event_dim - int(constraint.event_dim)
    return constraints.independent(constraint, missing) if missing > 0 else constraint


class ComposeTransform(Transform):
    """Several transforms, one after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        event_dim = int(self.parts[-1].codomain.event_dim)
        for part in reversed(self.parts):
            event_dim += int(part.domain.event_dim) - int(part.codomain.event_dim)
            event_dim = max(event_dim, int(part.domain.event_dim))
        return _widened(self.parts[0].domain, event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        event_dim = int(self.parts[0].domain.event_dim)
        for part in self.parts:
            event_dim += int(part.codomain.event_dim) - int(part.domain.event_dim)
            event_dim = max(event_dim, int(part.codomain.event_dim))
        return _widened(self.parts[-1].codomain, event_dim)

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return _engine.full_like(x, 0.0)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0.0
        event_dim = int(self.domain.event_dim)
        for part, before, after in zip(self.parts, values, values[1:]):
            slope = part.log_abs_det_jacobian(before, after)
            total = total + sum_rightmost(slope, event_dim - int(part.domain.event_dim))
            event_dim += int(part.codomain.event_dim) - int(part.domain.event_dim)
        return total

    def forward_shape(self, shape: Shape) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose log determinant is summed over ``reinterpreted_batch_ndims`` more dimensions."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return bool(self.base_transform.bijective)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.ndim < self.domain.event_dim:
            raise ValueError(f"expected at least {self.domain.event_dim} dimensions, got {x.ndim}")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        if y.ndim < self.codomain.event_dim:
            raise ValueError(f"expected at least {self.codomain.event_dim} dimensions, got {y.ndim}")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of the shape ``in_shape`` as events of the shape ``out_shape``."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} have different numbers of elements")

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(tuple(x.shape)))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(tuple(y.shape)))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shape = tuple(x.shape[: x.ndim - len(self.in_shape)])
        return _engine.zeros(shape, dtype=x.dtype, device=x.device)

    @staticmethod
    def _exchanged(shape: Shape, before: Shape, after: Shape) -> Shape:
        cut = len(shape) - len(before)
        if cut < 0 or shape[cut:] != before:
            raise ValueError(f"ReshapeTransform: the last dimensions must be {before}, got {shape}")
        return shape[:cut] + after

    def forward_shape(self, shape: Shape) -> Shape:
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._exchanged(shape, self.out_shape, self.in_shape)
