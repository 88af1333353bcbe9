"""The geometric distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from ..special import xlog1py
from . import constraints
from ._probabilities import Probabilities
from .bernoulli import binary_entropy
from .utils import exponential_like


class Geometric(Probabilities):
    """The number of failures before the first success, which has probability ``probs``. Pass ``probs`` or
    ``logits``."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_either(validate_args, probs, logits)
        if probs is not None and self._validate_args and not _engine.is_recording() and not bool((self.probs > 0).all()):
            raise ValueError("Geometric: a probability is 0, it must be positive")

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return _engine.full_like(self.probs, 0.0)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return (-exponential_like(self.probs, shape) / (-self.probs).log1p()).floor()

    def _log_prob(self, value: Tensor) -> Tensor:
        return xlog1py(value, -self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return binary_entropy(self.logits, self.probs) / self.probs
