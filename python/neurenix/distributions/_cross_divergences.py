"""Divergences of distributions of different families: the mean of ``-log q`` over p, minus the entropy of p.

The mean of ``-log q`` follows from a few moments of p. Where the support of p is not within that of q, it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._engine import Tensor
from .._table import digamma, lgamma
from ..special import xlogy
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .continuous_bernoulli import ContinuousBernoulli
from .distribution import Distribution
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform
from .utils import euler_constant


def _uniform_log(p: Any) -> Tensor:
    width = p.high - p.low
    return (xlogy(p.high, p.high) - xlogy(p.low, p.low) - width) / width


MEAN_LOG: dict[type[Distribution], Callable[[Any], Tensor]] = {
    Beta: lambda p: digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: digamma(p.concentration) - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: _uniform_log,
}
"""The mean of ``log x``."""

MEAN_EXP: dict[type[Distribution], Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate) ** -p.concentration,
    Normal: lambda p, t: (0.5 * (p.scale * t) ** 2 - p.loc * t).exp(),
    Uniform: lambda p, t: ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low)),
}
"""The mean of ``exp(-t x)``."""


def _of(table: dict[type[Distribution], Any], p: Distribution) -> Any:
    return next(table[kind] for kind in type(p).__mro__ if kind in table)


def _normal(p: Any, q: Any) -> Tensor:
    return q.scale.log() + 0.5 * math.log(math.tau) + (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2)


def _exponential(p: Any, q: Any) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _gamma(p: Any, q: Any) -> Tensor:
    a = q.concentration
    return lgamma(a) - a * q.rate.log() - (a - 1) * _of(MEAN_LOG, p)(p) + q.rate * p.mean


def _gumbel(p: Any, q: Any) -> Tensor:
    return q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * _of(MEAN_EXP, p)(p, 1 / q.scale)


def _laplace_of_normal(p: Any, q: Any) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    distance = p.scale * (math.sqrt(2 / math.pi) * (-0.5 * z * z).exp() + z * (z * math.sqrt(0.5)).erf())
    return (2 * q.scale).log() + distance / q.scale


def _uniform(p: Any, q: Any) -> Tensor:
    """For p between 0 and 1."""
    return _engine.where((q.low > 0) | (q.high < 1), math.inf, (q.high - q.low).log())


def _pareto(p: Any, q: Any) -> Tensor:
    return -q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _of(MEAN_LOG, p)(p)


def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _beta_of_uniform(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    normalizer = lgamma(a) + lgamma(b) - lgamma(a + b)
    return normalizer - (a - 1) * _uniform_log(p) - (b - 1) * _uniform_log(mirrored)


def _poisson(p: Any, q: Any) -> Tensor:
    """For counts of 0 and 1, whose factorials are 1."""
    return q.rate - p.mean * q.rate.log()


def _register(q_type: type[Distribution], mean: Callable[[Any, Any], Tensor], *p_types: type[Distribution]) -> None:
    for p_type in p_types:
        register_kl(p_type, q_type)(lambda p, q: mean(p, q) - p.entropy())


def _within(mean: Callable[[Any, Any], Tensor], outside: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """For uniform p, which may reach out of the support of q."""
    return lambda p, q: _engine.where(outside(p, q), math.inf, mean(p, q))


def _below_zero(p: Any, q: Any) -> Tensor:
    return p.low < 0


def _beyond_unit(p: Any, q: Any) -> Tensor:
    return (p.low < 0) | (p.high > 1)


_register(Normal, _normal, Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)
_register(Exponential, _exponential, Beta, ContinuousBernoulli, Gamma, Pareto)
_register(Exponential, _within(_exponential, _below_zero), Uniform)
_register(Gamma, _gamma, Beta, Exponential, Pareto)
_register(Gamma, _within(_gamma, _below_zero), Uniform)
_register(Gumbel, _gumbel, Exponential, Gamma, Normal, Uniform)
_register(Laplace, _laplace_of_normal, Normal)
_register(Uniform, _uniform, Beta, ContinuousBernoulli)
_register(Pareto, _within(_pareto, lambda p, q: p.low < q.scale), Uniform)
_register(ContinuousBernoulli, _continuous_bernoulli, Beta)
_register(ContinuousBernoulli, _within(_continuous_bernoulli, _beyond_unit), Uniform)
_register(Beta, _within(_beta_of_uniform, _beyond_unit), Uniform)
_register(Poisson, _poisson, Bernoulli)

INFINITE: dict[type[Distribution], tuple[type[Distribution], ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
"""Whose support is never within that of the others."""


def _infinite(p: Any, q: Any) -> Tensor:
    like: Any = p.mean
    shape = _engine.broadcast_shapes(p.batch_shape, q.batch_shape)
    return _engine.full(shape, math.inf, dtype=like.dtype, device=like.device)


for _p_type, _q_types in INFINITE.items():
    for _q_type in _q_types:
        register_kl(_p_type, _q_type)(_infinite)
