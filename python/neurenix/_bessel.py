"""Modified Bessel functions of the first kind: the power series up to 8, polynomials in ``1 / x`` beyond."""

from __future__ import annotations

import math

from . import _coefficients as table
from . import _engine
from ._derivative import elementwise, polynomial
from ._engine import Tensor

_TERMS = {"float32": 20, "float64": 34}
_FAR = (table.I0_FAR, table.I1_FAR)


def _parts(order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """The function for magnitudes up to 8, and that divided by ``exp(|x|)`` for those beyond."""
    kind, size = x.dtype.name, x.abs()
    near, far = size.clamp(max=8), size.clamp(min=8)
    series = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(_TERMS[kind])][::-1]
    low = polynomial(near * near * 0.25, series) * (near * 0.5) ** order
    high = polynomial(16 / far - 1, _FAR[order][kind]) / far.sqrt()
    return (low, high) if order == 0 else (_engine.where(x < 0, -low, low), _engine.where(x < 0, -high, high))


def _unscaled(order: int, x: Tensor) -> Tensor:
    low, high = _parts(order, x)
    # exp(|x|) may overflow where the result does not.
    half = (x.abs() * 0.5).exp()
    return _engine.where(x.abs() <= 8, low, high * half * half)


def _scaled(order: int, x: Tensor) -> Tensor:
    low, high = _parts(order, x)
    return _engine.where(x.abs() <= 8, low * (-x.abs()).exp(), high)


def _ratio(value: Tensor, x: Tensor) -> Tensor:
    """``value / x``, and 1/2 at 0."""
    return _engine.where(x == 0, 0.5, value / _engine.where(x == 0, 1.0, x))


def _i0_slope(x: Tensor) -> Tensor:
    return i1(x)


@elementwise(_i0_slope)
def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    return _unscaled(0, input)


def _i1_slope(x: Tensor) -> Tensor:
    return i0(x) - _ratio(i1(x), x)


@elementwise(_i1_slope)
def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1."""
    return _unscaled(1, input)


def _i0e_slope(x: Tensor) -> Tensor:
    return i1e(x) - x.sign() * i0e(x)


@elementwise(_i0e_slope)
def i0e(input: Tensor) -> Tensor:
    """``i0(x) * exp(-abs(x))``."""
    return _scaled(0, input)


def _i1e_slope(x: Tensor) -> Tensor:
    return i0e(x) - x.sign() * i1e(x) - _ratio(i1e(x), x)


@elementwise(_i1e_slope)
def i1e(input: Tensor) -> Tensor:
    """``i1(x) * exp(-abs(x))``."""
    return _scaled(1, input)
