"""Modified Bessel functions of the first kind: the power series up to 8, polynomials in ``1 / x`` beyond."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def _function(name: str, order: int, scaled: bool, doc: str, slope: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def formula(x: Tensor) -> Tensor:
        low, high = _parts(order, x)
        size = x.abs()
        if scaled:
            low = low * (-size).exp()
        else:
            # exp(size) may overflow where the result does not.
            half = (size * 0.5).exp()
            high = high * half * half
        return _engine.where(size <= 8, low, high)

    function = elementwise(slope)(formula)

    def bessel(input: Tensor) -> Tensor:
        return function(input)

    bessel.__name__ = bessel.__qualname__ = name
    bessel.__doc__ = doc
    return bessel


def _ratio(value: Tensor, x: Tensor) -> Tensor:
    """``value / x``, and 1/2 at 0."""
    return _engine.where(x == 0, 0.5, value / _engine.where(x == 0, 1.0, x))


def _i1_slope(x: Tensor) -> Tensor:
    return i0(x) - _ratio(i1(x), x)


def _i1e_slope(x: Tensor) -> Tensor:
    return i0e(x) - x.sign() * i1e(x) - _ratio(i1e(x), x)


i0 = _function("i0", 0, False, "The modified Bessel function of the first kind of order 0.", lambda x: i1(x))
i1 = _function("i1", 1, False, "The modified Bessel function of the first kind of order 1.", _i1_slope)
i0e = _function("i0e", 0, True, "``i0(x) * exp(-abs(x))``.", lambda x: i1e(x) - x.sign() * i0e(x))
i1e = _function("i1e", 1, True, "``i1(x) * exp(-abs(x))``.", _i1e_slope)
