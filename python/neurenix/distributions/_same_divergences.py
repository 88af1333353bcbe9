"""Divergences of two distributions of one family."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine, linalg
from .._derivative import select
from .._engine import Tensor
from .._gamma import mvlgamma
from .._table import digamma, lgamma
from ._covariance import log_diagonal, squared_distance
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily, bregman_terms
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import euler_constant, sum_rightmost
from .wishart import Wishart


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    ones = p.probs * (p.logits.logsigmoid() - q.logits.logsigmoid())
    zeros = (1 - p.probs) * ((-p.logits).logsigmoid() - (-q.logits).logsigmoid())
    ones = select(ones, [(q.probs == 0, math.inf), (p.probs == 0, 0.0)])
    return ones + select(zeros, [(q.probs == 1, math.inf), (p.probs == 1, 0.0)])


@register_kl(Beta, Beta)
@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = (each._dirichlet.concentration if isinstance(each, Beta) else each.concentration for each in (p, q))
    difference = digamma(a) - digamma(a.sum(-1, True))
    return lgamma(a.sum(-1)) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1) + ((a - b) * difference).sum(-1)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("kl_divergence: q has a greater total_count than p")
    value = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _engine.where(p.total_count > q.total_count, math.inf, value)


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _categorical(p: Any, q: Any) -> Tensor:
    value = p.probs * (p.logits - q.logits)
    return select(value, [(q.probs == 0, math.inf), (p.probs == 0, 0.0)]).sum(-1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    # F. Chyzak and F. Nielsen, "A closed-form formula for the Kullback-Leibler divergence between Cauchy
    # distributions", 2019.
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    value = p.mean * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return value + p._cont_bern_log_norm() - q._cont_bern_log_norm()


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Tensor:
    if type(p) is not type(q):
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    parameters, normalizer, means = bregman_terms(p)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for ours, theirs, mean in zip(parameters, q._natural_params, means):
        result = result - sum_rightmost((theirs - ours) * mean, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    value = b * (p.rate / q.rate).log() + lgamma(b) - lgamma(a)
    return value + (a - b) * digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, difference = p.scale / q.scale, (p.loc - q.loc) / q.scale
    mean_exponential = (lgamma(1 + ratio) - difference).exp()
    return -ratio.log() + difference + ratio * euler_constant + mean_exponential - (1 + euler_constant)


@register_kl(HalfNormal, HalfNormal)
@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: the distributions have different transforms or event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the distributions have different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: the event shapes are {p.event_shape} and {q.event_shape}")
    n = p.event_shape[0]
    shape = (*_engine.broadcast_shapes(p.batch_shape, q.batch_shape), n, n)
    ratio = linalg.solve(q.scale_tril.expand(shape), p.scale_tril.expand(shape))
    squares = (ratio * ratio).sum([-2, -1]) + squared_distance(q.scale_tril, q.loc - p.loc)
    return log_diagonal(q.scale_tril) - log_diagonal(p.scale_tril) + 0.5 * (squares - n)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _engine.where(p.scale < q.scale, math.inf, value)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    value = ((q.high - q.low) / (p.high - p.low)).log()
    return _engine.where((q.low > p.low) | (q.high < p.high), math.inf, value)


@register_kl(Wishart, Wishart)
def _wishart(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: the event shapes are {p.event_shape} and {q.event_shape}")
    n = p.event_shape[0]
    shape = (*_engine.broadcast_shapes(p.batch_shape, q.batch_shape), n, n)
    ratio = linalg.solve(q.scale_tril.expand(shape), p.scale_tril.expand(shape))
    ours, theirs = p.df / 2, q.df / 2
    # The mean of log(det(X) / det(2 V)) for matrices X of p, of which V is the covariance.
    spread = digamma(ours.unsqueeze(-1) - _engine.arange(n, dtype=ours.dtype, device=ours.device) * 0.5).sum(-1)
    value = q.df * (log_diagonal(q.scale_tril) - log_diagonal(p.scale_tril)) + ours * ((ratio * ratio).sum([-2, -1]) - n)
    return value + mvlgamma(theirs, n) - mvlgamma(ours, n) + (ours - theirs) * spread
