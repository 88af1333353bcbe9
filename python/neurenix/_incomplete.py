"""The incomplete gamma function, and the derivative of its quantiles, by quadrature.

With ``w = x^a exp(-x) / gamma(a + 1)`` and ``b = a + 1``, the lower function is ``w (1 + x J)`` and the upper one ``w a
K``, where J is the integral of ``exp(-(b - x) u - x r(-u))`` over u from 0 to infinity, K that of ``exp(-(x - a) u - x
r(u))``, and ``r(u) = exp(u) - 1 - u``. J is used up to ``x = b``, and K from ``x = a`` on: there, both integrands fall
steadily, and Gauss-Legendre quadrature up to where they are negligible has the precision of the dtype. The difference
of the large numbers a and x is taken once, and r by its series where u is small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from . import _engine
from ._derivative import differentiable, narrowed, polynomial, select
from ._engine import Tensor
from ._gamma import _floats, stirling_rest
from ._table import digamma, lgamma

_DEPTH = {"float32": 18.0, "float64": 40.0}
"""Integrands are followed until they have fallen by exp of this."""
_NODES = {"float32": 16, "float64": 48}


@functools.cache
def _legendre(count: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1], by Newton's method, in the square root of the variable:
    the nodes are dense near 0, where the integrands are large."""
    nodes, weights = [], []
    for k in range(count):
        x, slope = math.cos(math.pi * (k + 0.75) / (count + 0.5)), 1.0
        for _ in range(6):
            before, value = 1.0, x
            for n in range(2, count + 1):
                before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
            slope = count * (x * value - before) / (x * x - 1)
            x -= value / slope
        root = (1 - x) / 2
        nodes.append(root * root)
        weights.append(2 * root / ((1 - x * x) * slope * slope))
    return nodes, weights


def _integral(integrand: Callable[[Tensor], Tensor], limit: Tensor) -> Tensor:
    """Integrals from 0 to each element of ``limit``; the integrand gets one more axis, the last one."""
    nodes, weights = _legendre(_NODES[limit.dtype.name])
    place: Any = {"dtype": limit.dtype, "device": limit.device}
    points = limit.detach().unsqueeze(-1) * _engine.tensor(nodes, **place)
    return (integrand(points) * _engine.tensor(weights, **place)).sum(-1) * limit.detach()


_EXPONENTIAL = [1 / math.factorial(k) for k in range(2, 17)][::-1]


def _exponential_rest(u: Tensor) -> Tensor:
    """``exp(u) - 1 - u``, also for small u."""
    near = u.clamp(-0.5, 0.5)
    return _engine.where(u.abs() < 0.5, near * near * polynomial(near, _EXPONENTIAL), u.expm1() - u)


def _left(b: Tensor, x: Tensor, gap: Tensor, factor: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """J, for ``gap = b - x`` from 0, with another factor in the integrand."""
    depth = _DEPTH[x.dtype.name]
    rise = 2 * gap - depth
    limit = 4 * depth / (rise + rise.hypot((8 * depth) ** 0.5 * b.sqrt()))
    gap, x = gap.unsqueeze(-1), x.unsqueeze(-1)

    def integrand(u: Tensor) -> Tensor:
        value = (-gap * u - x * _exponential_rest(-u)).exp()
        return value if factor is None else value * factor(u)

    return _integral(integrand, limit)


def _right(a: Tensor, x: Tensor, factor: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """K, for x from a, with another factor in the integrand."""
    depth = _DEPTH[x.dtype.name]
    slope = x - a
    limit = 2 * depth / (slope + slope.hypot((2 * depth) ** 0.5 * x.sqrt()))
    limit = _engine.where(x < depth, limit.minimum((2 * depth / x).log1p()), limit)
    slope, x = slope.unsqueeze(-1), x.unsqueeze(-1)

    def integrand(u: Tensor) -> Tensor:
        value = (-slope * u - x * _exponential_rest(u)).exp()
        return value if factor is None else value * factor(u)

    return _integral(integrand, limit)


_ATANH = [1 / (2 * k + 3) for k in range(17)][::-1]


def _log1p_rest(d: Tensor, ratio: Tensor) -> Tensor:
    """``log(1 + d) - d``, also for small d, given ``1 + d`` too."""
    near = d.clamp(-0.5, 0.5)
    s = near / (2 + near)
    square = s * s
    return _engine.where(d.abs() < 0.5, 2 * s * square * polynomial(square, _ATANH) - near * s, ratio.log() - d)


def _weight_parts(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of ``x^a exp(-x) / gamma(a + 1)`` times a divisor, and this divisor: 1, but the square root of ``2
    pi a`` for large a, where the parts of the logarithm are large and cancel: it is by Stirling's formula."""
    small, large = a.clamp(max=8), a.clamp(min=8)
    direct = small * x.log() - x - lgamma(small + 1)
    exponent = large * _log1p_rest((x - large) / large, x / large) - stirling_rest(large)
    return _engine.where(a <= 8, direct, exponent), _engine.where(a <= 8, 1.0, math.sqrt(2 * math.pi) * large.sqrt())


def log_weight(a: Tensor, x: Tensor) -> Tensor:
    """The logarithm of ``x^a exp(-x) / gamma(a + 1)``."""
    exponent, divisor = _weight_parts(a, x)
    return exponent - divisor.log()


def _weight(a: Tensor, x: Tensor) -> Tensor:
    exponent, divisor = _weight_parts(a, x)
    return exponent.exp() / divisor


def _density(a: Tensor, x: Tensor) -> Tensor:
    """The derivative of the lower function with respect to x."""
    return _weight(a, x) * a / x


def quantile_slope(a: Tensor, log_x: Tensor) -> Tensor:
    """The derivative of the logarithm of a gamma variable x with respect to its concentration a, at a fixed value of
    the distribution function (Figurnov et al., "Implicit reparameterization gradients", 2018). It remains finite
    where x underflows.

    Up to ``log(x) = digamma(b)`` it is ``(x J' + digamma(b) - log(x)) / a``, and beyond that ``K'``: J and K with a
    factor by which no terms cancel.
    """
    mean = digamma(a + 1)
    is_left = log_x <= mean
    # Each part is computed within its range everywhere, so that gradients of the other one stay finite.
    near = _engine.where(is_left, log_x, mean - 1)
    x = near.exp()
    gap = mean - near
    left = (x * _left(a + 1, x, a - x + 1, lambda u: gap.unsqueeze(-1) + u) + gap) / a
    far = _engine.where(is_left, mean + 1, log_x)
    rest = far - mean + 1 / a
    right = _right(a, far.exp(), lambda u: rest.unsqueeze(-1) + u)
    return _engine.where(is_left, left, right)


def _both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function for positive, finite operands."""
    weight, least = _weight(a, x), a.clamp(min=0.3)
    lower = (weight * (1 + x * _left(a + 1, x.minimum(a + 1), (a - x + 1).clamp(min=0)))).clamp(max=1)
    upper = (weight * a * _right(a, x.maximum(least))).clamp(max=1)
    return _engine.where(x <= a + 1, lower, 1 - upper), _engine.where(x < least, 1 - lower, upper)


def _incomplete(name: str, upper: bool, input: Any, other: Any) -> Tensor:
    given, (a, x) = _floats(name, input, other)
    regular = (a > 0) & (x > 0) & a.isfinite() & x.isfinite()
    safe_a, safe_x = _engine.where(regular, a, 1.0), _engine.where(regular, x, 1.0)
    value = _both(safe_a.detach(), safe_x.detach())[upper]
    sign = -1.0 if upper else 1.0

    def by_x() -> Tensor:
        return sign * _density(safe_a, safe_x)

    def by_a() -> Tensor:
        return -sign * _density(safe_a, safe_x) * safe_x * quantile_slope(safe_a, safe_x.log())

    value = differentiable(value, (safe_x, by_x), (safe_a, by_a))
    invalid = (a < 0) | (x < 0) | a.isnan() | x.isnan() | ((a == 0) & (x == 0)) | (a.isinf() & x.isinf())
    none, whole = (1.0, 0.0) if upper else (0.0, 1.0)
    at_end = [((x == 0) | (a == math.inf), none), ((a == 0) | (x == math.inf), whole), (invalid, math.nan)]
    return narrowed(select(value, at_end), *given)


def igamma(input: Any, other: Any) -> Tensor:
    """The regularized lower incomplete gamma function of ``input`` (positive) and ``other`` (the upper limit, not
    negative): the distribution function of a gamma variable with this concentration. Both have gradients.

    >>> import neurenix as nx
    >>> round(nx.special.gammainc(nx.tensor(1.0), nx.tensor(1.0)).item(), 6)
    0.632121
    """
    return _incomplete("igamma", False, input, other)


def igammac(input: Any, other: Any) -> Tensor:
    """The regularized upper incomplete gamma function, ``1 - igamma(input, other)``, accurate where it is small
    because ``other`` is large. Where it is small because ``input`` is, and ``other`` is less than 0.3, the error is
    absolute."""
    return _incomplete("igammac", True, input, other)
