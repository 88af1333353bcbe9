"""Special functions: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._arguments import guarded as _guarded
from ._bessel import i0
from ._derivative import elementwise as _elementwise
from ._derivative import select as _select
from ._engine import Tensor
from ._floating import floating_dtype as _floating_dtype, promoted as _promoted
from ._gamma import mvlgamma, polygamma
from ._incomplete import igamma, igammac

__all__ = [
    "erfc",
    "erfinv",
    "i0",
    "igamma",
    "igammac",
    "logit",
    "mvlgamma",
    "polygamma",
    "xlogy",
]


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
    return _engine.xlogy(*_tensors("xlogy", input, other))


def _tensors(name: str, input: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Two operands as tensors, of which one may be a number."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(f"{name}: expected at least one tensor")
    if not isinstance(input, Tensor):
        input = _engine.full((), input, dtype=_floating_dtype(other.dtype), device=other.device)
    if not isinstance(other, Tensor):
        other = _engine.full((), other, dtype=_floating_dtype(input.dtype), device=input.device)
    first, second = _promoted(input, other)
    return first, second


@_elementwise(lambda x: 1 / (x * (1 - x)))
def _logit(x: Tensor) -> Tensor:
    # Near 1/2 the logarithm of a number near 1 would lose digits.
    near = ((x * 2 - 1).clamp(-0.6, 0.6)).atanh() * 2
    return _select((x / (1 - x)).log(), [((x - 0.5).abs() < 0.25, near)])


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of ``sigmoid``: infinite at 0 and 1, NaN outside. With ``eps``, the elements
    are first clamped to ``eps`` and ``1 - eps``.

    >>> import neurenix as nx
    >>> nx.logit(nx.tensor([0.5, 1.0])).tolist()
    [0.0, inf]
    """
    return _logit(input if eps is None else input.clamp(eps, 1 - eps))


i0, mvlgamma, polygamma = _guarded(i0, "i0"), _guarded(mvlgamma, "mvlgamma"), _guarded(polygamma, "polygamma")
_guard(globals())
