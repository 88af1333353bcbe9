"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._engine import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """A mixture of the distributions along the last batch dimension of ``component_distribution``, with the
    probabilities of ``mixture_distribution``.

    >>> import neurenix as nx
    >>> from neurenix.distributions import Categorical, MixtureSameFamily, Normal
    >>> mixture = MixtureSameFamily(Categorical(nx.ones(2)), Normal(nx.tensor([-1.0, 1.0]), nx.ones(2)))
    >>> mixture.mean.item(), mixture.variance.item()
    (0.0, 2.0)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("MixtureSameFamily: mixture_distribution must be a Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("MixtureSameFamily: component_distribution must be a Distribution")
        batch_shape = component_distribution.batch_shape[:-1]
        for ours, theirs in zip(reversed(mixture_distribution.batch_shape), reversed(batch_shape)):
            if ours != 1 and theirs != 1 and ours != theirs:
                raise ValueError(
                    f"MixtureSameFamily: the batch shape {mixture_distribution.batch_shape} of mixture_distribution does "
                    f"not fit {batch_shape} of component_distribution"
                )
        count = component_distribution.batch_shape[-1]
        if mixture_distribution._num_events != count:
            raise ValueError(
                f"MixtureSameFamily: {mixture_distribution._num_events} probabilities for {count} components"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = count
        super().__init__(batch_shape, component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> MixtureSameFamily:
        new = self._copied(_instance)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._batch_shape = tuple(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution over components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @property
    def _dim(self) -> int:
        """The dimension of the components in a tensor of events."""
        return -1 - len(self.event_shape)

    def _weights(self) -> Tensor:
        probs = self._mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self.event_shape))

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(self._dim)

    @property
    def variance(self) -> Tensor:
        # The law of total variance.
        within = (self._weights() * self._component_distribution.variance).sum(self._dim)
        apart = self._component_distribution.mean - self.mean.unsqueeze(self._dim)
        return within + (self._weights() * apart * apart).sum(self._dim)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        sample_shape = shape[: len(shape) - len(self.batch_shape) - len(self.event_shape)]
        chosen = self._mixture_distribution.expand(self.batch_shape).sample(sample_shape)
        events = self._component_distribution.sample(sample_shape)
        index = chosen.reshape(*chosen.shape, *(1,) * (len(self.event_shape) + 1))
        index = index.expand((*chosen.shape, 1, *self.event_shape))
        return events.gather(events.ndim + self._dim, index).squeeze(self._dim)

    def _log_prob(self, value: Tensor) -> Tensor:
        log_prob = self._component_distribution.log_prob(value.unsqueeze(self._dim))
        return (log_prob + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def _cdf(self, value: Tensor) -> Tensor:
        return (self._component_distribution.cdf(value.unsqueeze(self._dim)) * self._mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture_distribution!r}, {self._component_distribution!r})"
