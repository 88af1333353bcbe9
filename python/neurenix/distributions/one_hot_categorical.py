"""The categorical distribution of one-hot vectors."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .categorical import Categories


class OneHotCategorical(Categories):
    """The distribution of one-hot vectors with the probabilities ``probs`` along the last dimension. Pass ``probs`` or
    ``logits``, which need not be normalized."""

    support = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_categories(validate_args, probs, logits, True)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _one_hot(self, index: Tensor) -> Tensor:
        return index.one_hot(self._num_events).to(self._param.dtype)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._one_hot(self._draw_index(shape[:-1]))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._log_prob_of(value.argmax(-1))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._num_events
        values = _engine.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape(n, *(1,) * len(self.batch_shape), n)
        return values.expand(n, *self.batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """``OneHotCategorical`` whose samples have the gradient of the probabilities (Bengio et al., "Estimating or
    propagating gradients through stochastic neurons", 2013)."""

    has_rsample = True

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return super()._draw(shape).detach() + (self.probs - self.probs.detach())
