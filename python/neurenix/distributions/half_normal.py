"""The half-normal distribution."""

from __future__ import annotations

import math

from .._engine import Tensor
from ._half import Half
from .normal import Normal


class HalfNormal(Half):
    """The absolute value of a normal variable with mean 0 and standard deviation ``scale``."""

    _symmetric = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)
