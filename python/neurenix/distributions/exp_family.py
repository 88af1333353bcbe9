"""Exponential families."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from .distribution import Distribution
from .utils import sum_rightmost


def bregman_terms(p: Any) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """The natural parameters, the log normalizer, and its gradients: the means of the sufficient statistics."""
    parameters = [_engine.as_variable(each) for each in p._natural_params]
    normalizer = p._log_normalizer(*parameters)
    return parameters, normalizer, _engine.gradients(normalizer.sum(), parameters, None, create_graph=True)


class ExponentialFamily(Distribution):
    """A density ``exp(t(x) . theta - F(theta) + k(x))``. A subclass that gives the natural parameters theta
    (``_natural_params``), F (``_log_normalizer``) and the mean of k (``_mean_carrier_measure``) gets its entropy,
    and the divergence from another member, from the gradient of F.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no natural parameters")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log normalizer")

    @property
    def _mean_carrier_measure(self) -> float | Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no mean carrier measure")

    def entropy(self) -> Tensor:
        parameters, normalizer, means = bregman_terms(self)
        result = normalizer - self._mean_carrier_measure
        for parameter, mean in zip(parameters, means):
            result = result - sum_rightmost(parameter * mean, len(self.event_shape))
        return result
