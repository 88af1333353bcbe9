"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .._engine import Tensor, randn
from ..special import ndtr, ndtri
from . import constraints
from .exp_family import ExponentialFamily


class Normal(ExponentialFamily):
    """The normal distribution with mean ``loc`` and standard deviation ``scale``.

    >>> import neurenix as nx
    >>> nx.distributions.Normal(0.0, 1.0).log_prob(nx.tensor(0.0)).item()
    -0.9189385175704956
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc + randn(shape, dtype=self.loc.dtype, device=self.loc.device) * self.scale

    def _standard(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    def _log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return -0.5 * z * z - self.scale.log() - 0.5 * math.log(math.tau)

    def _cdf(self, value: Tensor) -> Tensor:
        return ndtr(self._standard(value))

    def _icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ndtri(value)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(math.tau) + self.scale.log()
