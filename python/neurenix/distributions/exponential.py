"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import exponential_like


class Exponential(ExponentialFamily):
    """The exponential distribution with mean ``1 / rate``."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), rate=rate)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return _engine.full_like(self.rate, 0.0)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return exponential_like(self.rate, shape) / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * value).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()
