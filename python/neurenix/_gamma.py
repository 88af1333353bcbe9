"""Relatives of the gamma function: polygamma, zeta, mvlgamma. ``lgamma`` and ``digamma`` are the engine's.

At negative arguments, errors of ``polygamma`` are relative to the terms of its sum beside the nearest pole, not to a
result near 0.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from . import _engine
from ._derivative import differentiable, elementwise, narrowed, polynomial, select, wide, wide_dtype
from ._engine import Tensor
from ._floating import promoted
from ._table import digamma, lgamma

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
"""The Bernoulli numbers of even index, from the second on."""

_STIRLING = [number / (2 * k * (2 * k - 1)) for k, number in enumerate(BERNOULLI, 1)][::-1]
_EULER_MACLAURIN = [number / math.factorial(2 * k) for k, number in enumerate(BERNOULLI, 1)]


def _is_pole(x: Tensor) -> Tensor:
    return (x <= 0) & (x == x.floor())


def stirling_rest(x: Tensor) -> Tensor:
    """``lgamma(x) - (x - 0.5) log(x) + x - log(2 pi) / 2``, for x from 8."""
    inverse = 1 / x
    return polynomial(inverse * inverse, _STIRLING) * inverse


def hurwitz(s: Any, q: Tensor) -> Tensor:
    """``zeta(s, q)`` for q above 0 and s above 1: the first nine terms, and the Euler-Maclaurin formula for the rest
    (NIST Digital Library of Mathematical Functions, 25.11.5)."""
    terms = 9
    total = sum((1 / (q + k)) ** s for k in range(1, terms)) + (1 / q) ** s
    inverse = 1 / (q + terms)
    factor, rest, power = s, 1 / (s - 1) + 0.5 * inverse, inverse * inverse
    for k, coefficient in enumerate(_EULER_MACLAURIN, 1):
        rest = rest + factor * coefficient * power
        factor, power = factor * (s + (2 * k - 1)) * (s + 2 * k), power * inverse * inverse
    return total + inverse ** (s - 1) * rest


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of ``digamma``: ``(-1) ** (n + 1) * n!`` times the sum of ``(input + k) ** -(n + 1)`` over k
    from 0. Infinite at 0, -1, -2 and so on if ``n`` is at least 1.

    >>> import neurenix as nx
    >>> nx.polygamma(1, nx.tensor([1.0]))
    tensor([1.6449])
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"polygamma: expected an integer n, got {type(n).__name__}")
    if n < 0:
        raise ValueError(f"polygamma: n is {n}, it must not be negative")
    if n == 0:
        return digamma(input)

    def formula(x: Tensor) -> Tensor:
        sign = (-1.0) ** (n + 1)
        value = hurwitz(n + 1, _engine.where(x > 0, x, 1 - x))
        # The sum over all whole numbers k, by the distance to the nearest pole, less that over negative ones.
        beside = x - x.round()
        distance = _engine.where(beside == 0, 0.5, beside.abs())
        both = hurwitz(n + 1, distance) + sign * hurwitz(n + 1, 1 - distance)
        reflected = _engine.where(beside < 0, sign * both, both) - sign * value
        sums = _engine.where(x < 0, reflected, value)
        return select(sums * (sign * math.factorial(n)), [(_is_pole(x), sign * math.inf)])

    return elementwise(lambda x: polygamma(n + 1, x))(formula)(input)


def mvlgamma(a: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``, for ``a`` above ``(p - 1) / 2``."""
    if p < 1:
        raise ValueError(f"mvlgamma: p is {p}, it must be at least 1")
    x = wide(a)
    shifts = _engine.arange(p, dtype=x.dtype, device=x.device) * 0.5
    return narrowed(lgamma(x.unsqueeze(-1) - shifts).sum(-1) + p * (p - 1) / 4 * math.log(math.pi), a)


def zeta(input: Any, other: Any) -> Tensor:
    """The Hurwitz zeta function, the sum of ``(other + k) ** -input`` over k from 0. Infinite where ``input`` is 1 or
    ``other`` is 0, -1, -2 and so on; NaN where ``input`` is less than 1, and for other negative ``other``. It has a
    gradient for ``other`` only.

    >>> import neurenix as nx
    >>> nx.special.zeta(nx.tensor([2.0]), 1)
    tensor([1.6449])
    """
    given, (s, q) = _floats("zeta", input, other)
    value = hurwitz(s.detach(), q.detach())
    value = select(value, [(q <= 0, math.nan), (s < 1, math.nan), ((s == 1) | (_is_pole(q) & (s >= 1)), math.inf)])
    return narrowed(differentiable(value, (q, lambda: -s * zeta(s + 1, q))), *given)


def _floats(name: str, *inputs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The operands, of which one may be a number, as tensors, and broadcast in the dtype of the computation."""
    tensors = [each for each in inputs if isinstance(each, Tensor)]
    if not tensors:
        raise TypeError(f"{name}: expected at least one tensor")
    like = next((each for each in tensors if each.is_floating_point()), None)
    dtype, device = _engine.get_default_dtype() if like is None else like.dtype, tensors[0].device
    given = [each if isinstance(each, Tensor) else _engine.full((), each, dtype=dtype, device=device) for each in inputs]
    given = list(promoted(*given))
    common: Any = functools.reduce(_engine.promote_types, [each.dtype for each in given])
    shape = _engine.broadcast_shapes(*(tuple(each.shape) for each in given))
    return given, [each.to(wide_dtype(common)).expand(shape) for each in given]
