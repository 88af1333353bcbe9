"""Transforms of each element."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor
from ..special import logit
from . import constraints
from ._transform import Shape, Transform
from .utils import epsilon, tiny


class _Increasing(Transform):
    bijective = True
    domain = constraints.real

    @property
    def sign(self) -> Any:
        return 1


class ExpTransform(_Increasing):
    """``exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """``x ** exponent``, of positive numbers."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        if isinstance(self.exponent, Tensor):
            return self.exponent.sign()
        return (self.exponent > 0) - (self.exponent < 0)

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def _broadcast(self, shape: Shape) -> Shape:
        return _engine.broadcast_shapes(shape, _shape(self.exponent))

    forward_shape = inverse_shape = _broadcast


class SigmoidTransform(_Increasing):
    """``sigmoid(x)``, away from 0 and 1 by the precision of the dtype."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return logit(y.clamp(tiny(y), 1 - epsilon(y)))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.logsigmoid() + (-x).logsigmoid()


def clipped_sigmoid(x: Tensor) -> Tensor:
    """``sigmoid(x)`` above 0 and below 1."""
    return x.sigmoid().clamp(tiny(x), 1 - epsilon(x))


class SoftplusTransform(_Increasing):
    """``log(1 + exp(x))``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.softplus()

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.logsigmoid()


class TanhTransform(_Increasing):
    """``tanh(x)``. Its inverse is infinite where the tangent was rounded to 1: use a cache."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2), also where the tangent is rounded to 1.
        return 2.0 * (math.log(2.0) - x - (-2.0 * x).softplus())


class AbsTransform(Transform):
    """``|x|``, which is not invertible: its inverse is the identity."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


def _shape(x: Any) -> Shape:
    return tuple(x.shape) if isinstance(x, Tensor) else ()


class AffineTransform(Transform):
    """``loc + scale * x``, of events of ``event_dim`` dimensions."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else _engine.full_like(x, float(self.scale))
        shape = _engine.broadcast_shapes(tuple(x.shape), tuple(scale.shape))
        value = scale.abs().log().expand(shape)
        return value.reshape(*shape[: len(shape) - self._event_dim], -1).sum(-1) if self._event_dim else value

    def _broadcast(self, shape: Shape) -> Shape:
        return _engine.broadcast_shapes(shape, _shape(self.loc), _shape(self.scale))

    forward_shape = inverse_shape = _broadcast


class CumulativeDistributionTransform(_Increasing):
    """The distribution function of a distribution of numbers."""

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
