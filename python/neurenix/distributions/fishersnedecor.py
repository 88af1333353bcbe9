"""The Fisher-Snedecor distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import lgamma
from . import constraints
from ._sampling import log_standard_gamma
from .distribution import Distribution


class FisherSnedecor(Distribution):
    """The F distribution: the quotient of two chi-squared variables, each divided by its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        return _engine.where(self.df2 <= 2, math.nan, self.df2 / (self.df2 - 2))

    @property
    def mode(self) -> Tensor:
        value = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return _engine.where(self.df1 <= 2, math.nan, value)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        value = 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))
        return _engine.where(b <= 4, math.nan, value)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        first, second = (log_standard_gamma((0.5 * df).expand(shape)) - df.log() for df in (self.df1, self.df2))
        return (first - second).exp()

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        normalizer = lgamma(a + b) - lgamma(a) - lgamma(b)
        return normalizer + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
