"""The half-Cauchy distribution."""

from __future__ import annotations

import math

from .. import _engine
from .._engine import Tensor
from ._half import Half
from .cauchy import Cauchy


class HalfCauchy(Half):
    """The absolute value of a Cauchy variable around 0 with half width ``scale``."""

    _symmetric = Cauchy

    @property
    def mean(self) -> Tensor:
        return _engine.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return _engine.full_like(self.scale, math.inf)
