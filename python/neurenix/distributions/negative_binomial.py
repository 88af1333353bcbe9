"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import lgamma
from . import constraints
from ._probabilities import Probabilities
from ._sampling import log_standard_gamma, poisson


class NegativeBinomial(Probabilities):
    """The number of successes, each of which has probability ``probs``, before ``total_count`` failures. Pass
    ``probs`` or ``logits``."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._set_either(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return poisson((log_standard_gamma(self.total_count.expand(shape)) + self.logits).exp())

    def _log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        ways = lgamma(n + value) - lgamma(value + 1) - lgamma(n)
        ways = _engine.where(n + value == 0, 0.0, ways)
        return n * (-self.logits).logsigmoid() + value * self.logits.logsigmoid() + ways
