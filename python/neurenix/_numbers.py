"""Elementwise functions of PyTorch composed of others: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

import math
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._derivative import wide_dtype
from ._elementwise import divide, logaddexp, remainder
from ._engine import Tensor, where
from ._floating import floating as _floating, floating_dtype as _floating_dtype
from ._operands import _tensor

__all__ = [
    "deg2rad", "fix", "float_power", "fmax", "fmin", "frexp", "gcd", "heaviside", "isneginf", "isposinf", "isreal", "lcm", "ldexp",
    "logaddexp2", "rad2deg", "rsub", "sgn", "true_divide",
]  # fmt: skip


def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return _floating(input) * (math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return _floating(input) * (180 / math.pi)


def fix(input: Tensor) -> Tensor:
    """Each element rounded towards zero, as ``trunc``."""
    return input.trunc()


def sgn(input: Tensor) -> Tensor:
    """The sign of each element, as ``sign``."""
    return input.sign()


def true_divide(input: Tensor, other: Any) -> Tensor:
    """``input / other``."""
    return divide(input, other)


def rsub(input: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """``other - alpha * input``."""
    return other - (input if alpha == 1 else input * alpha)


def float_power(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent`` in ``float64``."""
    base = input.double() if isinstance(input, Tensor) else input
    power = exponent.double() if isinstance(exponent, Tensor) else exponent
    result: Tensor = base**power
    return result


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The greater of both; the other where one is NaN."""
    return where(other.isnan(), input, where(input.isnan(), other, input.maximum(other)))


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of both; the other where one is NaN."""
    return where(other.isnan(), input, where(input.isnan(), other, input.minimum(other)))


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative elements, 1 for positive ones, and ``values`` for zeros."""
    return where(input == 0, values, (input > 0).to(input.dtype)).to(input.dtype)


def isposinf(input: Tensor) -> Tensor:
    """True where an element is positive infinity."""
    return input.isinf() & (input > 0)


def isneginf(input: Tensor) -> Tensor:
    """True where an element is negative infinity."""
    return input.isinf() & (input < 0)


def isreal(input: Tensor) -> Tensor:
    """True where an element has no imaginary part."""
    return _engine.full_like(input, True, dtype="bool")


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2 ** other``; integers as ``other`` do not change the dtype of floats."""
    kind = _floating_dtype(_engine.promote_types(input.dtype, other.dtype))
    # The power may be out of range where the product is not.
    return (input * 2.0 ** other.to(wide_dtype(kind))).to(kind)


def frexp(input: Tensor) -> tuple[Tensor, Tensor]:
    """The mantissas, from 0.5 to 1 in magnitude, and the ``int32`` exponents, with ``input = mantissa * 2 ** exponent``.

    >>> import neurenix as nx
    >>> [part.tolist() for part in nx.frexp(nx.Tensor([1.0, 5.0]))]
    [[0.5, 0.625], [1, 3]]
    """
    if not input.is_floating_point():
        raise TypeError(f"frexp: expected a floating-point tensor, got {input.dtype.name}")
    plain = (input == 0) | ~input.isfinite()
    magnitude = where(plain, 1, input.abs())
    exponent = magnitude.log2().floor() + 1
    # The logarithm may round to the next integer.
    mantissa = _scaled(magnitude, exponent)
    exponent = exponent + (mantissa >= 1).to(input.dtype) - (mantissa < 0.5).to(input.dtype)
    scaled = _scaled(input, exponent)
    return where(plain, input, scaled), where(plain, 0, exponent).to("int32")


def _scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """``x / 2 ** exponent``, by two factors, because one alone may be beyond the greatest number."""
    half = (exponent / 2).trunc()
    return x / 2.0**half / 2.0 ** (exponent - half)


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """``log2(2 ** input + 2 ** other)`` without overflow."""
    return logaddexp(input * math.log(2), other * math.log(2)) / math.log(2)


def gcd(input: Tensor, other: Any) -> Tensor:
    """The greatest common divisors of integers. The number of steps is that of the worst case: about 1.44 for each bit."""
    other = _tensor(other, input)
    if not input.dtype.is_integer or not other.dtype.is_integer:
        raise TypeError(f"gcd: expected integers, got {input.dtype.name} and {other.dtype.name}")
    kind = _engine.promote_types(input.dtype, other.dtype)
    shape = _engine.broadcast_shapes(input.shape, other.shape)
    a, b = (each.to(kind).broadcast_to(shape).abs() for each in (input, other))
    # Euclid's algorithm on consecutive Fibonacci numbers.
    for _ in range(math.ceil(1.45 * 8 * kind.itemsize)):
        ended = b == 0
        a, b = where(ended, a, b), where(ended, 0, remainder(a, where(ended, 1, b)))
    return a


def lcm(input: Tensor, other: Any) -> Tensor:
    """The least common multiples of integers."""
    other = _tensor(other, input)
    divisor = gcd(input, other)
    return (input // where(divisor == 0, 1, divisor) * other).abs()


_guard(globals())
