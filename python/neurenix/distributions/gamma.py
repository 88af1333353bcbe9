"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from .._table import digamma, lgamma
from ..special import gammainc, xlogy
from . import constraints
from ._sampling import standard_gamma
from .exp_family import ExponentialFamily
from .utils import tiny


class Gamma(ExponentialFamily):
    """The gamma distribution with shape ``concentration`` and inverse scale ``rate``. Samples have the implicit
    gradient of the concentration."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        value = standard_gamma(self.concentration.expand(shape)) / self.rate
        # 0 is outside of the support of many functions of the sample.
        return value + (value.clamp(min=tiny(value)) - value).detach()

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration, self.rate
        return xlogy(a, b) + xlogy(a - 1, value) - b * value - lgamma(a)

    def _cdf(self, value: Tensor) -> Tensor:
        return gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + lgamma(a) + (1 - a) * digamma(a)
