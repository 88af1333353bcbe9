"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import digamma, lgamma
from ..special import xlogy
from . import constraints
from ._sampling import log_standard_gamma
from .exp_family import ExponentialFamily
from .utils import epsilon, tiny


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over vectors of probabilities: gamma variables of these concentrations, divided by
    their sum. Samples are differentiable through the gamma variables, which do not underflow."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    concentration: Tensor

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """If all concentrations are below 1, the density is infinite at every corner: the first one."""
        beyond = (self.concentration - 1).clamp(min=0)
        corner = _engine.eye(1, self.concentration.shape[-1], dtype=beyond.dtype, device=beyond.device)[0]
        return _engine.where((self.concentration < 1).all(-1, True), corner, beyond / beyond.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        value = log_standard_gamma(self.concentration.expand(shape)).softmax(-1)
        return value + (value.clamp(tiny(value), 1 - epsilon(value) / 2) - value).detach()

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        spread = (total - a.shape[-1]) * digamma(total) - ((a - 1) * digamma(a)).sum(-1)
        return lgamma(a).sum(-1) - lgamma(total) + spread
