"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from ._probabilities import Probabilities
from .utils import exponential_like


class Categories(Probabilities):
    """Has probabilities along the last dimension, which need not be normalized."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def _set_categories(self, validate_args: bool | None, probs: Any, logits: Any, has_event: bool, **others: Any) -> None:
        for name, given in (("probs", probs), ("logits", logits)):
            if given is not None and (not isinstance(given, Tensor) or given.ndim < 1):
                raise ValueError(f"{type(self).__name__}: {name} must be a tensor of at least one dimension")
        if isinstance(probs, Tensor):
            probs = probs / probs.sum(-1, True)
        if isinstance(logits, Tensor):
            logits = logits - logits.logsumexp(-1, True)
        given = probs if probs is not None else logits
        event_shape = tuple(given.shape[-1:]) if has_event and isinstance(given, Tensor) else ()
        self._set_either(validate_args, probs, logits, event_shape, **others)

    @property
    def _num_events(self) -> int:
        return int(self._param.shape[-1])

    def _draw_index(self, shape: tuple[int, ...]) -> Tensor:
        """Indices: of exponential waiting times with these rates, the shortest one is drawn."""
        waits = exponential_like(self._param, (*shape, self._num_events)).log()
        logits = self.logits if "logits" in self._parameters else self.probs.log()
        return (waits - logits).argmin(-1)

    def _log_prob_of(self, index: Tensor) -> Tensor:
        logits = self.logits
        shape = _engine.broadcast_shapes(tuple(index.shape), tuple(logits.shape[:-1]))
        chosen = logits.expand((*shape, self._num_events)).gather(-1, index.expand(shape).unsqueeze(-1))
        return chosen.squeeze(-1)

    def entropy(self) -> Tensor:
        # Impossible categories count 0.
        least = -3.4e38 if self.logits.dtype.name != "float64" else -1.7e308
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)


class Categorical(Categories):
    """The distribution of indices with the probabilities ``probs`` along the last dimension. Pass ``probs`` or
    ``logits``, which need not be normalized.

    >>> import neurenix as nx
    >>> d = nx.distributions.Categorical(probs=nx.tensor([1.0, 3.0]))
    >>> d.probs.tolist()
    [0.25, 0.75]
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_categories(validate_args, probs, logits, False)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return _engine.full_like(self.probs[..., 0], math.nan)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._draw_index(shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._log_prob_of(value.long())

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(_engine.arange(self._num_events, device=self._param.device), expand)
