"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import lgamma
from . import constraints
from ._probabilities import Probabilities
from ._sampling import binomial


class Binomial(Probabilities):
    """The number of successes in ``total_count`` trials, each of which has probability ``probs``. Pass ``probs`` or
    ``logits``."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._set_either(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        n, x = self.total_count, self.logits
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * x.logsigmoid() + (n - value) * (-x).logsigmoid()

    def _greatest_count(self, name: str) -> int:
        greatest = int(self.total_count.max().item())
        if int(self.total_count.min().item()) != greatest:
            raise NotImplementedError(f"Binomial.{name} requires the same total_count everywhere")
        return greatest

    def entropy(self) -> Tensor:
        self._greatest_count("entropy")
        log_prob = self._log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._greatest_count("enumerate_support") + 1
        return self._enumerated(_engine.arange(count, dtype=self._param.dtype, device=self._param.device), expand)
