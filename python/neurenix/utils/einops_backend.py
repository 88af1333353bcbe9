"""Makes einops work on tensors of Neurenix: import this module once, and einops finds the class below by itself.

Programs that run through ``python -m neurenix.torch`` do not need it: there, einops finds PyTorch's names.
"""

from __future__ import annotations

from typing import Any

import neurenix as nx
from einops._backends import AbstractBackend  # type: ignore[import-not-found, import-untyped, unused-ignore]

__all__ = ["NeurenixBackend"]


class NeurenixBackend(AbstractBackend):  # type: ignore[misc, unused-ignore]
    """What einops does with a tensor."""

    framework_name = "neurenix"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether it is one of ours."""
        return isinstance(tensor, nx.Tensor)

    def from_numpy(self, x: Any) -> Any:
        """The array as a tensor; floats have gradients, as in einops' other backends."""
        tensor = nx.from_numpy(x)
        return tensor.requires_grad_() if tensor.is_floating_point() else tensor

    def to_numpy(self, x: Any) -> Any:
        """The tensor as an array."""
        return x.numpy(force=True)

    def arange(self, start: int, stop: int) -> Any:
        """Positions."""
        return nx.arange(start, stop)

    def reduce(self, x: Any, operation: str, axes: Any) -> Any:
        """The sum, mean, product, least or greatest element, ``any`` or ``all`` along axes."""
        if operation in ("min", "max"):
            return getattr(x, f"a{operation}")(dim=tuple(axes))
        if operation in ("sum", "mean"):
            return getattr(x, operation)(dim=tuple(axes))
        if operation not in ("any", "all", "prod"):
            raise NotImplementedError(f"unknown reduction {operation!r}")
        for axis in sorted(axes, reverse=True):
            x = getattr(x, operation)(dim=axis)
        return x

    def transpose(self, x: Any, axes: Any) -> Any:
        """The axes in another order."""
        return x.permute(*axes)

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        """Several tensors as one."""
        return nx.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Any:
        """Adds an axis of size 1."""
        return x.unsqueeze(new_position)

    def add_axes(self, x: Any, n_axes: int, pos2len: Any) -> Any:
        """Adds axes along which the elements repeat."""
        sizes = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            sizes[position] = length
        return x.expand(*sizes)

    def tile(self, x: Any, repeats: Any) -> Any:
        """Repeats the tensor."""
        return x.repeat(*repeats)

    def concat(self, tensors: list[Any], axis: int) -> Any:
        """Joins tensors along an axis."""
        return nx.cat(tensors, dim=axis)

    def is_float_type(self, x: Any) -> bool:
        """Whether a mean is defined."""
        return bool(x.is_floating_point())

    def einsum(self, pattern: str, *x: Any) -> Any:
        """A sum of products."""
        return nx.einsum(pattern, *x)
