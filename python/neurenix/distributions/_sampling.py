"""Random numbers that need more than a formula: by rejection, and by inversion of a distribution function.

Rejection draws several proposals for every element at once, takes the first that is accepted, and repeats until none is
left. That reads one truth value from the device for every few proposals. A function that ``nx.compile`` records cannot
read: it draws so many that the probability of an element without an accepted one is below 1e-17.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import _engine
from .._derivative import differentiable, select
from .._engine import Tensor, rand, randn
from .._gamma import stirling_rest
from .._incomplete import log_weight, quantile_slope
from .._table import lgamma
from .utils import exponential_like, uniform_like

_AT_ONCE = 3
_LIMIT = 300


def rejection(propose: Callable[[], tuple[Tensor, Tensor]], recorded: int) -> Tensor:
    """The first accepted proposals. ``propose`` returns whether each element is accepted, and its value. Elements for
    which nothing is ever accepted, as with NaN for a parameter, become NaN."""
    accepted, value = propose()
    for count in range(1, recorded if _engine.is_recording() else _LIMIT):
        if not _engine.is_recording():
            # One at a time, so that all use the same kernels.
            _engine.evaluate([accepted, value])
            if count % _AT_ONCE == 0 and bool(accepted.all()):
                break
        now, other = propose()
        value = _engine.where(accepted, value, other)
        accepted = accepted | now
    return _engine.where(accepted, value, math.nan)


def log_standard_gamma(concentration: Tensor) -> Tensor:
    """The logarithms of gamma variables of rate 1, which do not underflow. They have the implicit gradient of the
    concentration.

    G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", 2000, for the concentration plus
    one; then times ``u ** (1 / concentration)``.
    """
    plain = concentration.detach()
    d = plain + (1 - 1 / 3)
    c = 1 / (9 * d).sqrt()
    shape = tuple(plain.shape)

    def propose() -> tuple[Tensor, Tensor]:
        x = randn(shape, dtype=plain.dtype, device=plain.device)
        root = 1 + c * x
        log_v = 3 * root.clamp(min=1e-6).log()
        log_u = -exponential_like(plain, shape)
        return (root > 1e-6) & (log_u < 0.5 * x * x + d * (1 - log_v.exp() + log_v)), d.log() + log_v

    value = rejection(propose, 14) - exponential_like(plain, shape) / plain
    return differentiable(value, (concentration, lambda: quantile_slope(concentration, value)))


def standard_gamma(concentration: Tensor) -> Tensor:
    """Gamma variables of rate 1."""
    return log_standard_gamma(concentration).exp()


_COUNTS = 48
"""With a mean of at most 10, a count this large has a probability below 1e-16."""


def _inversion(log_first: Tensor, log_ratio: Callable[[Tensor], Tensor]) -> Tensor:
    """Counts, given the logarithms of the probability of 0 and of the ratios of the probabilities of k and k - 1."""
    k = _engine.arange(1, _COUNTS, dtype=log_first.dtype, device=log_first.device)
    steps = _engine.cat([log_first.unsqueeze(-1), log_ratio(k).expand(*log_first.shape, _COUNTS - 1)], -1)
    reached = uniform_like(log_first, (*log_first.shape, 1)) > steps.cumsum(-1).exp().cumsum(-1)
    return reached.sum(-1).to(log_first.dtype)


def poisson(rate: Tensor) -> Tensor:
    """Poisson counts: by inversion up to a rate of 10, and by W. Hoermann's "transformed rejection method for
    generating Poisson random variables" (PTRS), 1993, beyond."""
    small, large = rate.clamp(max=10), rate.clamp(min=10)
    few = _inversion(-small, lambda k: (small.unsqueeze(-1) / k).log())
    b = 0.931 + 2.53 * large.sqrt()
    a = -0.059 + 0.02483 * b
    log_inverse_alpha = (1.1239 + 1.1328 / (b - 3.4)).log()
    bound = 0.9277 - 3.6224 / (b - 2)

    def propose() -> tuple[Tensor, Tensor]:
        u = rand(tuple(rate.shape), dtype=rate.dtype, device=rate.device) - 0.5
        v = uniform_like(rate, tuple(rate.shape))
        us = (0.5 - u.abs()).clamp(min=1e-30)
        k = ((2 * a / us + b) * u + large + 0.43).floor()
        possible = (k >= 0) & ((us >= 0.013) | (v <= us))
        height = v.log() + log_inverse_alpha - (a / (us * us) + b).log()
        below = height <= log_weight(k.clamp(min=0), large)
        return ((us >= 0.07) & (v <= bound)) | (possible & below), k

    return _engine.where(rate <= 10, few, rejection(propose, 30))


def _binomial_rest(count: Tensor) -> Tensor:
    """``lgamma(count + 1)`` without ``(count + 0.5) log(count + 1) - (count + 1) + log(2 pi) / 2``."""
    x = count.clamp(min=0) + 1
    near = x.clamp(max=8)
    exact = lgamma(near) - ((near - 0.5) * near.log() - near + 0.5 * math.log(math.tau))
    return _engine.where(x < 8, exact, stirling_rest(x.clamp(min=8)))


def binomial(total_count: Tensor, probs: Tensor) -> Tensor:
    """Binomial counts: by inversion up to a mean of 10, and by W. Hoermann's "generation of binomial random variates"
    (BTRS), 1993, beyond; for the less probable of the two outcomes."""
    n, p = total_count, _engine.where(probs <= 0.5, probs, 1 - probs)
    is_few = n * p <= 10
    p_few = _engine.where(is_few, p, 0.0)
    odds = (p_few / (1 - p_few)).unsqueeze(-1)

    def log_ratio(k: Tensor) -> Tensor:
        return ((n.unsqueeze(-1) - k + 1).clamp(min=0) / k * odds).log()

    few = _inversion(n * (-p_few).log1p(), log_ratio)
    p = _engine.where(is_few, 0.5, p)
    m = _engine.where(is_few, 40.0, n)
    deviation = (m * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation
    odds = p / (1 - p)
    mode = ((m + 1) * p).floor()
    at_mode = (mode + 0.5) * ((mode + 1) / (odds * (m - mode + 1))).log() + _binomial_rest(mode) + _binomial_rest(m - mode)

    def propose() -> tuple[Tensor, Tensor]:
        u, v = rand(tuple(m.shape), dtype=m.dtype, device=m.device) - 0.5, uniform_like(m, tuple(m.shape))
        us = (0.5 - u.abs()).clamp(min=1e-30)
        count = ((2 * a / us + b) * u + m * p + 0.5).floor()
        possible = (count >= 0) & (count <= m)
        k = count.clamp(min=0).minimum(m)
        height = (v * alpha / (a / (us * us) + b)).log()
        limit = at_mode + (m + 1) * ((m - mode + 1) / (m - k + 1)).log() + (k + 0.5) * (odds * (m - k + 1) / (k + 1)).log()
        limit = limit - _binomial_rest(k) - _binomial_rest(m - k)
        return possible & (((us >= 0.07) & (v <= 0.92 - 4.2 / b)) | (height <= limit)), k

    count = _engine.where(is_few, few, rejection(propose, 30)).minimum(n)
    return _engine.where(probs <= 0.5, count, n - count)


def von_mises(concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Angles around 0, by D. J. Best and N. I. Fisher, "Efficient simulation of the von Mises distribution", 1979."""
    kappa = concentration.expand(shape)
    tau = 1 + (1 + 4 * kappa * kappa).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
    exact = (1 + rho * rho) / (2 * rho)
    # Near 0 and for large concentrations the quotients lose their digits.
    least = 1e-4 if kappa.dtype.name == "float64" else 0.03
    ratio = select(exact, [(kappa < least, 1 / kappa + kappa), (kappa > 1e4, 1 + 0.5 / kappa)])

    def propose() -> tuple[Tensor, Tensor]:
        z = (uniform_like(kappa, shape) * math.pi).cos()
        f = (1 + ratio * z) / (ratio + z)
        c = kappa * (ratio - f)
        u = uniform_like(kappa, shape)
        side = (rand(shape, dtype=kappa.dtype, device=kappa.device) - 0.5).sign()
        return (c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0), side * f.clamp(-1, 1).acos()

    return rejection(propose, 40)
