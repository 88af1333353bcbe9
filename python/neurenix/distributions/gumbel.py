"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import euler_constant, exponential_like


class Gumbel(Distribution):
    """The Gumbel distribution of maxima, with mode ``loc`` and scale ``scale``."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc - self.scale * exponential_like(self.loc, shape).log()

    def _log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def _cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - value) / self.scale).exp()).exp()

    def _icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
