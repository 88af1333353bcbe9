"""The beta distribution."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .utils import broadcast_all


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1], with a density proportional to ``x ** (concentration1 - 1) * (1 - x) **
    (concentration0 - 1)``: the first component of a ``Dirichlet`` variable.

    >>> import neurenix as nx
    >>> nx.distributions.Beta(2.0, 3.0).mean.item()
    0.4000000059604645
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = _engine.stack(list(broadcast_all(concentration1, concentration0)), -1)
        # The other one checks nothing: errors name the arguments of this one.
        self._dirichlet = Dirichlet(both, validate_args=False)
        super().__init__(self._dirichlet.batch_shape, (), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Beta:
        new = self._copied(_instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        new._batch_shape = new._dirichlet.batch_shape
        return new

    @property
    def concentration1(self) -> Tensor:
        """The exponent of x, plus 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The exponent of 1 - x, plus 1."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self._dirichlet.mean[..., 0]

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        return self._dirichlet.variance[..., 0]

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._dirichlet._draw((*shape, 2))[..., 0]

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet._log_prob(_engine.stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()
