"""Distributions that are given probabilities or their logits."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from .._size import Size
from .distribution import Distribution
from .utils import exactly_one, lazy_property, logits_to_probs, probs_to_logits


class Probabilities(Distribution):
    """Has ``probs`` and ``logits``, of which the one that was not passed is computed."""

    # Of two outcomes, or of those along the last dimension.
    _is_binary = True

    def _set_either(
        self, validate_args: bool | None, probs: Any, logits: Any, event_shape: tuple[int, ...] = (), **others: Any
    ) -> None:
        name, value = exactly_one(type(self).__name__, probs=probs, logits=logits)
        # The other parameters come first, as in the signatures: a number takes the dtype of the first tensor.
        self._set(validate_args, event_shape, **others, **{name: value})

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds, or the logarithms of the probabilities."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in self._parameters else self.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self._param.shape
