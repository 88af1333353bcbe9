"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import exponential_like


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution from ``loc`` on, whose tail falls as ``x ** -(1 / concentration)``;
    exponential for a concentration of 0, and bounded above for a negative one."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        end = self.loc - self.scale / self._nonzero()
        return constraints.interval(self.loc, _engine.where(self.concentration < 0, end, math.inf))

    def _is_zero(self) -> Tensor:
        return self.concentration.abs() <= 1e-8

    def _nonzero(self) -> Tensor:
        return _engine.where(self._is_zero(), 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        return _engine.where(self.concentration < 1, self.loc + self.scale / (1 - self.concentration), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return _engine.where(c < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._inverse(-exponential_like(self.loc, shape))

    def _inverse(self, log_rest: Tensor) -> Tensor:
        """The value at which the survival function has this logarithm."""
        c = self._nonzero()
        return self.loc + self.scale * _engine.where(self._is_zero(), -log_rest, (-c * log_rest).expm1() / c)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than ``value``."""
        z, c = (self._checked(value) - self.loc) / self.scale, self._nonzero()
        # Near 0, the first terms of the series, which have the gradient of the concentration too.
        series = z - 0.5 * self.concentration * z * z
        return _engine.where(self._is_zero(), -series, -(c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of ``cdf``."""
        return self.cdf(value).log()

    def _log_prob(self, value: Tensor) -> Tensor:
        return (1 + self.concentration) * self.log_survival_function(value) - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        return self._inverse((-value).log1p())

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
