"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import constraints
from .independent import Independent
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Vectors of probabilities, made from one normal variable fewer by ``StickBreakingTransform``."""

    arg_constraints = {"loc": constraints.real_vector, "scale": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    def _normal(self) -> Any:
        return self.base_dist.base_dist if isinstance(self.base_dist, Independent) else self.base_dist

    @property
    def loc(self) -> Tensor:
        """The means of the normal variables."""
        return self._normal().loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the normal variables."""
        return self._normal().scale
