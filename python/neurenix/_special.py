"""Elementwise special functions composed of others: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._engine import Tensor, where

__all__ = ["erfc", "erfinv", "xlogy"]


def _wide(input: Tensor) -> tuple[Tensor, Any]:
    """The input in a dtype that can represent the constants below, and the dtype of the result."""
    kind: Any = input.dtype if input.is_floating_point() else "float32"
    return input.to("float64" if input.dtype.name == "float64" else "float32"), kind


def _ratio(x: Tensor, numerator: Sequence[float], denominator: Sequence[float]) -> Tensor:
    """The ratio of two polynomials, given by their coefficients from the highest power."""

    def polynomial(coefficients: Sequence[float]) -> Tensor:
        total = x * coefficients[0] + coefficients[1]
        for coefficient in coefficients[2:]:
            total = total * x + coefficient
        return total

    return polynomial(numerator) / polynomial(denominator)


# W. J. Cody, "Rational Chebyshev approximations for the error function", 1969: erfc(x) * exp(x * x) between 0.46875 and 4.
_MIDDLE = (
    (
        2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
        8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
    ),
    (
        1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
        3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
    ),
)
# The same from 4 on, as a function of 1 / (x * x).
_FAR = (
    (
        1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
        1.60837851487422766e-2, 6.58749161529837803e-4,
    ),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3),
)


def erfc(input: Tensor) -> Tensor:
    """``1 - erf(x)``, accurate where it is small.

    >>> import neurenix as nx
    >>> nx.erfc(nx.Tensor([0.0])).item()
    1.0
    """
    x, kind = _wide(input)
    # Each formula's argument is clamped to slightly more than its range: an unselected branch must not produce a NaN
    # gradient, and clamping at the boundary itself would cut off the gradient there.
    middle, far = x.clamp(0.25, 5.0), x.clamp(3.0, 30.0)
    inverse = 1.0 / (far * far)
    tail = where(x < 4.0, _ratio(middle, *_MIDDLE), (1.0 / math.sqrt(math.pi) - inverse * _ratio(inverse, *_FAR)) / far)
    # exp(-x * x): the square of a number with few significant bits is exact, and the remainder is small.
    bounded = x.clamp(0.25, 30.0)
    short = (bounded.detach() * 16.0).floor() / 16.0
    decay = (-short * short).exp() * ((short - bounded) * (bounded + short)).exp()
    return where(x > 0.5, decay * tail, 1.0 - x.erf()).to(kind)


# M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988.
_CENTRE = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
        1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
        5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
        3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
        6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0,
    ),
)
_END = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
        2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
        1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
    ),
)


def erfinv(input: Tensor) -> Tensor:
    """The inverse of ``erf``: infinite for 1 and -1, NaN beyond them.

    >>> import neurenix as nx
    >>> nx.erfinv(nx.Tensor([0.0, 1.0])).tolist()
    [0.0, inf]
    """
    x, kind = _wide(input)
    half = x * 0.5
    centre = half.clamp(-0.43, 0.43)
    # The probability of the tail beyond the point, which may be tiny; clamped because log(0) is infinite.
    beyond = (0.5 - half.abs()).clamp(1e-37, 0.1)
    root = (-beyond.log()).sqrt()
    tail, end = root.clamp(max=6.0) - 1.6, root.clamp(min=4.0) - 5.0
    size = where(root <= 5.0, _ratio(tail, *_TAIL), _ratio(end, *_END))
    outside = where(x < 0, -size, size)
    inside = centre * _ratio(0.180625 - centre * centre, *_CENTRE)
    result = where(half.abs() <= 0.425, inside, outside) * math.sqrt(0.5)
    result = where(x == 1, math.inf, where(x == -1, -math.inf, result))
    return where(x.abs() <= 1, result, math.nan).to(kind)


def xlogy(input: Any, other: Any) -> Tensor:
    """``x * log(y)``; 0 where ``x`` is 0 and ``y`` is not NaN."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError("xlogy: expected at least one tensor")
    if not isinstance(input, Tensor):
        input = _engine.full((), input, dtype=other.dtype if other.is_floating_point() else "float32", device=other.device)
    if not isinstance(other, Tensor):
        other = _engine.full((), other, dtype=input.dtype if input.is_floating_point() else "float32", device=input.device)
    y = other if other.is_floating_point() else other.to("float32")
    # There the logarithm is not evaluated; elsewhere, multiplying it by 0 gives 0 with a gradient of log(y).
    without = (input == 0) & ((y <= 0) | (y == math.inf))
    return input * where(without, 1.0, y).log()


_guard(globals())
