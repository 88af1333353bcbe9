"""Shapes of tensors, and numbers of elements."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex, overload

_tuple_item = tuple.__getitem__


class Size(tuple[int, ...]):
    """The sizes of a tensor's dimensions: a tuple, whose slices and sums are of this class too.

    >>> import neurenix as nx
    >>> nx.zeros(2, 3).shape
    torch.Size([2, 3])
    >>> nx.zeros(2, 3).shape.numel()
    6
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({[*self]})"

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> Size: ...
    def __getitem__(self, index: Any, /) -> Any:
        found = _tuple_item(self, index)
        return Size(found) if type(found) is tuple else found

    def __add__(self, other: Any, /) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any, /) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: SupportsIndex, /) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__


class Count(int):
    """The number of elements; when called, the sizes of the dimensions, or of one of them."""

    _shape: Size

    def __new__(cls, count: int, shape: Size) -> Count:
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __call__(self, dim: int | None = None) -> Size | int:
        if dim is not None and not -len(self._shape) <= dim < len(self._shape):
            raise IndexError(f"size: dimension {dim} is out of range for a tensor of {len(self._shape)} dimensions")
        return self._shape if dim is None else self._shape[dim]
