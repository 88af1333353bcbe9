"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import exponential_like


class Pareto(Distribution):
    """The Pareto distribution from ``scale`` on, with a density proportional to ``x ** -(alpha + 1)``."""

    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}
    has_rsample = True
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), scale=scale, alpha=alpha)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.scale * (exponential_like(self.scale, shape) / self.alpha).exp()

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.alpha.log() - value.log() - self.alpha * (value / self.scale).log()

    def _cdf(self, value: Tensor) -> Tensor:
        return -(-self.alpha * (value / self.scale).log()).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)
