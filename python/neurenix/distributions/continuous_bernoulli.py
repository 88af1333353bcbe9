"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from ._probabilities import Probabilities
from .bernoulli import binary_entropy
from .exp_family import ExponentialFamily
from .utils import clamp_probs, lazy_property, logits_to_probs, uniform_like


class ContinuousBernoulli(Probabilities, ExponentialFamily):
    """The distribution on [0, 1] with a density proportional to ``probs ** x * (1 - probs) ** (1 - x)``
    (Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019). Pass ``probs`` or ``logits``. Between ``lims``,
    where its formulas divide 0 by 0, Taylor series replace them."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        self._set_either(validate_args, probs, logits)
        if probs is not None:
            vars(self)["probs"] = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter: between the least positive and the greatest number below 1 of which logarithms are taken."""
        return clamp_probs(logits_to_probs(self.logits, True))

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> tuple[Tensor, Tensor]:
        """Probabilities outside of the limits, and the differences from 1/2."""
        return _engine.where(self._outside(), self.probs, self._lims[0]), self.probs - 0.5

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the constant by which the density is multiplied."""
        p, x = self._cut()
        exact = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        taylor = math.log(2) + (4 / 3 + 104 / 45 * x**2) * x**2
        return _engine.where(self._outside(), exact, taylor)

    @property
    def mean(self) -> Tensor:
        p, x = self._cut()
        exact = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return _engine.where(self._outside(), exact, 0.5 + (1 / 3 + 16 / 45 * x**2) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        p, x = self._cut()
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return _engine.where(self._outside(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x**2) * x**2)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._icdf(uniform_like(self._param, shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._cont_bern_log_norm() - binary_entropy(self.logits, value)

    def _cdf(self, value: Tensor) -> Tensor:
        p, _ = self._cut()
        exact = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        return _engine.where(self._outside(), exact, value).clamp(0, 1)

    def _icdf(self, value: Tensor) -> Tensor:
        p, _ = self._cut()
        exact = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return _engine.where(self._outside(), exact, value)

    def entropy(self) -> Tensor:
        log_one, log_zero = self.probs.log(), (-self.probs).log1p()
        return self.mean * (log_zero - log_one) - log_zero - self._cont_bern_log_norm()
