"""Distributions of absolute values."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform


class Half(TransformedDistribution):
    """The absolute value of a variable whose distribution is symmetric around 0, with one parameter ``scale``."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    _symmetric: Any

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self._symmetric(0.0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the symmetric distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return _engine.full_like(self.scale, 0.0)

    def _log_prob(self, value: Tensor) -> Tensor:
        return _engine.where(value >= 0, self.base_dist._log_prob(value) + math.log(2), -math.inf)

    def _cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist._cdf(value) - 1

    def _icdf(self, value: Tensor) -> Tensor:
        return self.base_dist._icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
