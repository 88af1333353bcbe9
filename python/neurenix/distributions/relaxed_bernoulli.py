"""Relaxed Bernoulli distributions, whose samples are differentiable."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from ..special import logit
from . import constraints
from ._probabilities import Probabilities
from ._relaxed import Relaxed
from .transforms import SigmoidTransform
from .utils import clamp_probs, uniform_like


class LogitRelaxedBernoulli(Probabilities):
    """The logits of ``RelaxedBernoulli``."""

    arg_constraints = {"temperature": constraints.positive, "probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True
    temperature: Tensor

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_either(validate_args, probs, logits, temperature=temperature)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        noise = logit(clamp_probs(uniform_like(self._param, shape)))
        return (noise + logit(clamp_probs(self.probs))) / self.temperature

    def _log_prob(self, value: Tensor) -> Tensor:
        difference = self.logits - value * self.temperature
        return self.temperature.log() + difference.logsigmoid() + (-difference).logsigmoid()


class RelaxedBernoulli(Relaxed):
    """Numbers between 0 and 1 that tend to Bernoulli variables as ``temperature`` falls to 0 (Maddison, Mnih and Teh,
    "The concrete distribution", 2016). Pass ``probs`` or ``logits``."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _base, _transform = LogitRelaxedBernoulli, SigmoidTransform
