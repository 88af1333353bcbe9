"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

from .._engine import Tensor
from ..special import i0e, i1e
from . import constraints
from ._sampling import von_mises
from .distribution import Distribution


class VonMises(Distribution):
    """The von Mises distribution of angles in [-pi, pi), around ``loc``. Its variance is that of the circle: 1 minus
    the mean resultant length."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, (), loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        angle = von_mises(self.concentration, shape) + self.loc
        return (angle + math.pi) % math.tau - math.pi

    def _log_prob(self, value: Tensor) -> Tensor:
        # cos(d) - 1 without cancellation, and the scaled function, as both terms grow with the concentration.
        half = ((value - self.loc) * 0.5).sin()
        return -2 * self.concentration * half * half - math.log(math.tau) - i0e(self.concentration).log()
