"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor, rand
from . import constraints
from ._probabilities import Probabilities
from .exp_family import ExponentialFamily


def binary_entropy(logits: Tensor, probs: Tensor) -> Tensor:
    """The cross-entropy of the outcome 1 with probability ``probs``, and 0 otherwise, by the model ``logits``."""
    return -(probs * logits.logsigmoid() + (1 - probs) * (-logits).logsigmoid())


class Bernoulli(Probabilities, ExponentialFamily):
    """1 with probability ``probs``, else 0. Pass ``probs`` or ``logits``."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_either(validate_args, probs, logits)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return _engine.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return (rand(shape, dtype=self._param.dtype, device=self._param.device) < self.probs).to(self._param.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        return -binary_entropy(self.logits, value)

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(_engine.arange(2, dtype=self._param.dtype, device=self._param.device), expand)
