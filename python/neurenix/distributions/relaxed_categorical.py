"""Relaxed categorical distributions, whose samples are differentiable."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from .._table import lgamma
from . import constraints
from ._relaxed import Relaxed
from .categorical import Categories
from .transforms import ExpTransform
from .utils import exponential_like


class ExpRelaxedCategorical(Categories):
    """The logarithms of ``RelaxedOneHotCategorical``."""

    arg_constraints = {"temperature": constraints.positive, **Categories.arg_constraints}
    support = constraints.real_vector
    has_rsample = True
    has_enumerate_support = False
    temperature: Tensor

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_categories(validate_args, probs, logits, True, temperature=temperature)

    def _tempered(self) -> Tensor:
        return self.temperature.unsqueeze(-1)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        gumbel = -exponential_like(self._param, shape).log()
        return ((self.logits + gumbel) / self._tempered()).log_softmax(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        count = self._num_events
        score = (self.logits - value * self._tempered()).log_softmax(-1).sum(-1)
        return score + lgamma(self.temperature * 0 + count) + (count - 1) * self.temperature.log()


class RelaxedOneHotCategorical(Relaxed):
    """Vectors of probabilities that tend to one-hot vectors as ``temperature`` falls to 0 (Jang, Gu and Poole,
    "Categorical reparameterization with Gumbel-softmax", 2016). Pass ``probs`` or ``logits``."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    _base, _transform = ExpRelaxedCategorical, ExpTransform
