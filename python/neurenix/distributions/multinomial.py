"""The multinomial distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import lgamma
from . import constraints
from .binomial import Binomial
from .categorical import Categories


class Multinomial(Categories):
    """How often each category is drawn in ``total_count`` draws, an integer. Pass ``probs`` or ``logits``, which
    need not be normalized."""

    has_enumerate_support = False
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("Multinomial: total_count must be an integer, the same for the whole batch")
        self.total_count = total_count
        self._set_categories(validate_args, probs, logits, True)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # The draws along the first dimension, so that they broadcast with the batch.
        index = self._draw_index((self.total_count, *shape[:-1])).movedim(0, -1)
        return _engine.zeros(shape, dtype=self._param.dtype, device=self._param.device).scatter_add(
            -1, index, _engine.ones(tuple(index.shape), dtype=self._param.dtype, device=self._param.device)
        )

    def _log_prob(self, value: Tensor) -> Tensor:
        logits = _engine.where((value == 0) & (self.logits == -math.inf), 0.0, self.logits)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        each = Binomial(n, probs=self.probs, validate_args=False)
        counts = each.enumerate_support(False)[1:]
        spread = (each._log_prob(counts).exp() * lgamma(counts + 1)).sum([0, -1])
        return n * super().entropy() - math.lgamma(n + 1) + spread
