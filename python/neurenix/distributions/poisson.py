"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from .._table import lgamma
from ..special import xlogy
from . import constraints
from ._sampling import poisson
from .exp_family import ExponentialFamily


class Poisson(ExponentialFamily):
    """The Poisson distribution of counts with mean ``rate``."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return poisson(self.rate.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)
