"""Special functions: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._engine import Tensor

__all__ = ["erfc", "erfinv", "xlogy"]


def erfc(input: Tensor) -> Tensor:
    """``1 - erf(x)``, accurate where it is small.

    >>> import neurenix as nx
    >>> nx.erfc(nx.Tensor([0.0])).item()
    1.0
    """
    return _engine.erfc(input)


def erfinv(input: Tensor) -> Tensor:
    """The inverse of ``erf``: infinite for 1 and -1, NaN beyond them.

    >>> import neurenix as nx
    >>> nx.erfinv(nx.Tensor([0.0, 1.0])).tolist()
    [0.0, inf]
    """
    return _engine.erfinv(input)


def xlogy(input: Any, other: Any) -> Tensor:
    """``x * log(y)``; 0 where ``x`` is 0 and ``y`` is not NaN."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError("xlogy: expected at least one tensor")
    if not isinstance(input, Tensor):
        input = _engine.full((), input, dtype=other.dtype if other.is_floating_point() else "float32", device=other.device)
    if not isinstance(other, Tensor):
        other = _engine.full((), other, dtype=input.dtype if input.is_floating_point() else "float32", device=input.device)
    return _engine.xlogy(input, other)


_guard(globals())
