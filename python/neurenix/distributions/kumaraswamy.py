"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import digamma, lgamma
from . import constraints
from .distribution import Distribution
from .utils import euler_constant, exponential_like


class Kumaraswamy(Distribution):
    """The distribution on (0, 1) with the distribution function ``1 - (1 - x ** concentration1) ** concentration0``."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), concentration1=concentration1, concentration0=concentration0)

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * (lgamma(a) + lgamma(b) - lgamma(a + b)).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """``((a - 1) / (a b - 1)) ** (1 / a)``, and NaN if a or b is less than 1 or both are 1."""
        a, b = self.concentration1, self.concentration0
        value = ((a - 1) / (a * b - 1)) ** (1 / a)
        return _engine.where((a < 1) | (b < 1), math.nan, value)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._inverse(-exponential_like(self.concentration1, shape))

    def _inverse(self, log_rest: Tensor) -> Tensor:
        """The value at which 1 minus the distribution function has this logarithm."""
        return (-(log_rest / self.concentration0).expm1()) ** (1 / self.concentration1)

    def _log_rest(self, value: Tensor) -> Tensor:
        """``log(1 - x ** a)``."""
        return (-(value**self.concentration1)).log1p()

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * self._log_rest(value)

    def _cdf(self, value: Tensor) -> Tensor:
        return -(self.concentration0 * self._log_rest(value)).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        return self._inverse((-value).log1p())

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (digamma(b + 1) + euler_constant) - a.log() - b.log()
