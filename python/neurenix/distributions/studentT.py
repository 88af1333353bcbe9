"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._derivative import select
from .._engine import Tensor, randn
from .._table import digamma, lgamma
from . import constraints
from ._sampling import standard_gamma
from .distribution import Distribution


class StudentT(Distribution):
    """Student's t distribution with ``df`` degrees of freedom, moved by ``loc`` and stretched by ``scale``."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return _engine.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        value = self.scale**2 * self.df / (self.df - 2)
        return select(value, [(self.df <= 2, math.inf), (self.df <= 1, math.nan)])

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        half = (0.5 * self.df).expand(shape)
        spread = (standard_gamma(half) / half).rsqrt()
        return self.loc + self.scale * randn(shape, dtype=self.loc.dtype, device=self.loc.device) * spread

    def _log_beta(self) -> Tensor:
        return lgamma(0.5 * self.df) + 0.5 * math.log(math.pi) - lgamma(0.5 * (self.df + 1))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        normalizer = self.scale.log() + 0.5 * self.df.log() + self._log_beta()
        return -0.5 * (self.df + 1) * (z * z / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        spread = half * (digamma(half) - digamma(0.5 * self.df))
        return self.scale.log() + spread + 0.5 * self.df.log() + self._log_beta()
