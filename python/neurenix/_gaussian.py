"""Functions of the normal distribution: erfcx, ndtr, log_ndtr, ndtri.

``erfcx`` is a polynomial in ``(x - 3.75) / (x + 3.75)``, after M. M. Shepherd and J. G. Laframboise, "Chebyshev
approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", 1981.
"""

from __future__ import annotations

import math

from . import _coefficients as table
from . import _engine
from ._derivative import elementwise, polynomial, select
from ._engine import Tensor

_HALF_ROOT = math.sqrt(0.5)
_LOG_ROOT_TAU = 0.9189385332046727


def _exp_square(x: Tensor) -> Tensor:
    """``exp(x * x)``. The square of a short number is exact; what it leaves is small."""
    short = (x * 16).trunc() / 16
    return (short * short).exp() * ((x - short) * (x + short)).exp()


def _erfcx_slope(x: Tensor) -> Tensor:
    return 2 * x * erfcx(x) - 2 / math.sqrt(math.pi)


@elementwise(_erfcx_slope)
def erfcx(input: Tensor) -> Tensor:
    """``exp(x * x) * erfc(x)``, also where ``erfc`` is too small for the dtype.

    >>> import neurenix as nx
    >>> round(nx.special.erfcx(nx.tensor(100.0)).item(), 6)
    0.005642
    """
    size = input.abs()
    bounded = size.clamp(max=1e30)
    value = polynomial((bounded - 3.75) / (bounded + 3.75), table.ERFCX[input.dtype.name]) / (1 + 2 * bounded)
    value = _engine.where(size > 1e30, 1 / (size * math.sqrt(math.pi)), value)
    # Its square overflows beyond 30.
    return _engine.where(input < 0, 2 * _exp_square(size.clamp(max=30)) - value, value)


def _density(x: Tensor) -> Tensor:
    """The density of the standard normal distribution."""
    return (x * x * -0.5 - _LOG_ROOT_TAU).exp()


@elementwise(_density)
def ndtr(input: Tensor) -> Tensor:
    """The distribution function of the standard normal distribution.

    >>> import neurenix as nx
    >>> nx.special.ndtr(nx.tensor(0.0)).item()
    0.5
    """
    # erfc(-x / sqrt(2)) / 2, where the square in it is that of x.
    size = input.abs().clamp(max=40)
    short = (size * 16).trunc() / 16
    decay = (short * short * -0.5).exp() * ((short - size) * (size + short) * 0.5).exp()
    tail = 0.5 * decay * erfcx(size * _HALF_ROOT)
    return select(0.5 + 0.5 * (input * _HALF_ROOT).erf(), [(input < -0.5, tail), (input > 0.5, 1 - tail)])


def _log_ndtr_slope(x: Tensor) -> Tensor:
    """The density divided by the distribution function."""
    low = math.sqrt(2 / math.pi) / erfcx(x.clamp(max=0) * -_HALF_ROOT)
    return _engine.where(x < 0, low, _density(x) / ndtr(x.clamp(min=0)))


@elementwise(_log_ndtr_slope)
def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of ``ndtr``, also where that is too small for the dtype."""
    low = input.clamp(max=0)
    left = (erfcx(low * -_HALF_ROOT) * 0.5).log() - low * low * 0.5
    return _engine.where(input < -1, left, (-ndtr(-input)).log1p())


def _ndtri_slope(p: Tensor) -> Tensor:
    return 1 / _density(ndtri(p))


@elementwise(_ndtri_slope)
def ndtri(input: Tensor) -> Tensor:
    """The quantiles of the standard normal distribution: the inverse of ``ndtr``.

    >>> import neurenix as nx
    >>> nx.special.ndtri(nx.tensor([0.5, 1.0])).tolist()
    [0.0, inf]
    """
    small = _engine.where(input < 0.5, input, 1 - input)
    bounded = small.clamp(min=1e-37 if input.dtype.name == "float32" else 1e-307, max=0.2)
    # The tails by Newton's method for the logarithm of the distribution function, which is concave.
    target = bounded.log()
    first = -2 * target
    x = -(first - (first * math.tau).log()).clamp(min=0.5).sqrt()
    for _ in range(4):
        tail = erfcx(x * -_HALF_ROOT)
        x = x - ((tail * 0.5).log() - x * x * 0.5 - target) * tail * math.sqrt(math.pi / 2)
    x = _engine.where(input < 0.5, x, -x)
    middle = ((input * 2 - 1).clamp(-0.8, 0.8)).erfinv() * math.sqrt(2)
    limits = [(input == 0, -math.inf), (input == 1, math.inf), ((input < 0) | (input > 1), math.nan)]
    return select(x, [(small > 0.1, middle), *limits])
