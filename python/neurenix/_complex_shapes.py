"""Methods of complex tensors that give them another shape; the results are views."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._complex import axis_of, wrap
from ._engine import Tensor

_of = _engine.Pair.of


def _numbers(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Separate numbers, or one sequence of them."""
    if len(given) == 1 and not hasattr(given[0], "__index__"):
        return tuple(given[0])
    return given


def reshape(self: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    return wrap(_of(self).reshape(*_numbers(shape), 2))


def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """As ``reshape``. With a dtype, the bits of the elements as numbers of that dtype: parts of this precision are a view,
    others a copy.
    """
    if dtype is None and len(shape) == 1 and isinstance(shape[0], _engine.dtype):
        (dtype,) = shape
    if dtype is not None:
        kind = _engine.dtype(dtype)
        if kind == self.dtype:
            return wrap(_of(self).view(*self.shape, 2))
        if self.ndim == 0:
            raise RuntimeError(f"view: {self.dtype.name} cannot become {kind.name} without dimensions")
        parts = _of(self).view(*self.shape[:-1], self.shape[-1] * 2)
        return parts if kind == parts.dtype else parts.view(kind)
    return wrap(_of(self).view(*_numbers(shape), 2))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """Reshaped to the shape of ``other``."""
    return view(self, *other.shape)


def permute(self: Tensor, *dims: Any) -> Tensor:
    """Reorders the dimensions."""
    order = [axis_of(self, axis) for axis in _numbers(dims)]
    if sorted(order) != list(range(self.ndim)):
        raise ValueError(f"permute: {tuple(dims)} is not a permutation of {self.ndim} dimensions")
    return wrap(_of(self).permute(*order, self.ndim))


def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swaps two dimensions."""
    return wrap(_of(self).transpose(axis_of(self, dim0), axis_of(self, dim1)))


def t(self: Tensor) -> Tensor:
    """Transposes a matrix; a vector is unchanged."""
    if self.ndim > 2:
        raise ValueError(f"t: expected at most 2 dimensions, got shape {list(self.shape)}")
    return self if self.ndim < 2 else transpose(self, 0, 1)


def transposed(self: Tensor) -> Tensor:
    """All dimensions reversed."""
    return permute(self, *range(self.ndim - 1, -1, -1))


def matrices_transposed(self: Tensor) -> Tensor:
    """The transpose of each matrix."""
    return transpose(self, -2, -1)


def adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of each matrix."""
    return transpose(self, -2, -1).conj()


def movedim(self: Tensor, source: Any, destination: Any) -> Tensor:
    """Moves dimensions to other positions."""
    moved = [source] if hasattr(source, "__index__") else list(source)
    places = [destination] if hasattr(destination, "__index__") else list(destination)
    front = [axis_of(self, axis) for axis in moved], [axis_of(self, axis) for axis in places]
    return wrap(_of(self).movedim(*front))


def expand(self: Tensor, *sizes: Any) -> Tensor:
    """Broadcasts to larger sizes; -1 keeps a size."""
    return wrap(_of(self).expand(*_numbers(sizes), 2))


def broadcast_to(self: Tensor, shape: Any) -> Tensor:
    """Broadcasts to a shape."""
    return wrap(_of(self).broadcast_to((*_numbers((shape,)), 2)))


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Broadcasts to the shape of ``other``."""
    return broadcast_to(self, tuple(other.shape))


def squeeze(self: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Removes dimensions of size 1."""
    dim = dim if axis is None else axis
    dims = range(self.ndim) if dim is None else [dim] if hasattr(dim, "__index__") else dim
    gone = {axis_of(self, each) for each in dims}
    return view(self, tuple(n for place, n in enumerate(self.shape) if place not in gone or n != 1))


def unsqueeze(self: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Adds a dimension of size 1."""
    place = axis_of(self, dim if axis is None else axis, self.ndim + 1)
    return view(self, (*self.shape[:place], 1, *self.shape[place:]))


def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flattens dimensions into one."""
    if self.ndim == 0:
        return reshape(self, 1)
    first, last = axis_of(self, start_dim), axis_of(self, end_dim)
    return wrap(_of(self).flatten(first, last))


def ravel(self: Tensor) -> Tensor:
    """All elements as a vector."""
    return reshape(self, -1)


def unflatten(self: Tensor, dim: int, sizes: Any) -> Tensor:
    """Splits a dimension into several."""
    return wrap(_of(self).unflatten(axis_of(self, dim), sizes))
