"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from .._table import lgamma
from . import constraints
from .distribution import Distribution
from .utils import euler_constant, exponential_like


class Weibull(Distribution):
    """The Weibull distribution with this ``scale`` and shape ``concentration``."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    has_rsample = True
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), scale=scale, concentration=concentration)

    def _moment(self, n: int) -> Tensor:
        return lgamma(1 + n / self.concentration)

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1).exp()

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** (1 / self.concentration)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (self._moment(2).exp() - (2 * self._moment(1)).exp())

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.scale * exponential_like(self.scale, shape) ** (1 / self.concentration)

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value / self.scale).log()
        return self.concentration.log() - self.scale.log() + (self.concentration - 1) * z - (self.concentration * z).exp()

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        return euler_constant * (1 - 1 / self.concentration) + (self.scale / self.concentration).log() + 1
