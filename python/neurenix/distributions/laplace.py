"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import uniform_like


class Laplace(Distribution):
    """The Laplace distribution around ``loc``: exponential with mean ``scale`` on both sides."""

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
    def variance(self) -> Tensor:
        return 2 * self.scale * self.scale

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._icdf(uniform_like(self.loc, shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def _cdf(self, value: Tensor) -> Tensor:
        z = value - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()

    def _icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
