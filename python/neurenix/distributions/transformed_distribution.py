"""Distributions of transformed variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._autograd import no_grad
from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost


class TransformedDistribution(Distribution):
    """The distribution of ``transforms`` applied to a variable of ``base_distribution``."""

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(part, Transform) for part in parts):
            raise ValueError("TransformedDistribution: transforms must be a Transform or a list of Transforms")
        self.transforms = parts
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dims = len(base_distribution.event_shape)
        transform = ComposeTransform(parts)
        if len(base_shape) < transform.domain.event_dim:
            raise ValueError(
                f"TransformedDistribution: the base distribution needs shapes of at least {transform.domain.event_dim} "
                f"dimensions, got {base_shape}"
            )
        shape = transform.forward_shape(base_shape)
        base_batch_shape = transform.inverse_shape(shape)[: len(base_shape) - base_dims]
        if base_batch_shape != base_distribution.batch_shape:
            base_distribution = base_distribution.expand(base_batch_shape)
        missing = int(transform.domain.event_dim) - base_dims
        if missing > 0:
            base_distribution = Independent(base_distribution, missing)
        self.base_dist: Any = base_distribution
        change = int(transform.codomain.event_dim) - int(transform.domain.event_dim)
        event_dim = max(int(transform.codomain.event_dim), base_dims + change)
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> TransformedDistribution:
        new = self._copied(_instance)
        shape = tuple(batch_shape)
        transform = ComposeTransform(self.transforms)
        base_shape = transform.inverse_shape(shape + self.event_shape)
        new.base_dist = self.base_dist.expand(base_shape[: len(base_shape) - len(self.base_dist.event_shape)])
        new._batch_shape = shape
        return new

    def _support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self.event_shape) - int(support.event_dim)
        return constraints.independent(support, missing) if missing > 0 else support

    support: Any = constraints.dependent_property(_support, is_discrete=False)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    def _forward(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # The value itself, which the transforms may have cached.
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        event_dim, y = len(self.event_shape), value
        total: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += int(transform.domain.event_dim) - int(transform.codomain.event_dim)
            slope = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(slope, event_dim - int(transform.domain.event_dim))
            y = x
        return sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape)) + total

    def _reflected(self, value: Tensor) -> Tensor:
        """A probability, or 1 minus it if the transforms are decreasing."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def _cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._reflected(self.base_dist.cdf(value))

    def _icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._reflected(value)))
