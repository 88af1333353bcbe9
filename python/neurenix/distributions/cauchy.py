"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import uniform_like


class Cauchy(Distribution):
    """The Cauchy distribution around ``loc`` with half width ``scale``. It has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return _engine.full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return _engine.full_like(self.loc, math.inf)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._icdf(uniform_like(self.loc, shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def _cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def _icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
