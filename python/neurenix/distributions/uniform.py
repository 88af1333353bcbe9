"""The uniform distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor, rand
from . import constraints
from .distribution import Distribution


class Uniform(Distribution):
    """The uniform distribution on [``low``, ``high``)."""

    arg_constraints = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }
    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), low=low, high=high)

    def _check_parameters(self) -> None:
        if not bool((self.low < self.high).all()):
            raise ValueError("Uniform is not defined when low >= high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.low + rand(shape, dtype=self.low.dtype, device=self.low.device) * (self.high - self.low)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value) & (value < self.high)
        return _engine.where(inside, -(self.high - self.low).log(), -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def _icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
