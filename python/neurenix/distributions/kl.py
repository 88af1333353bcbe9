"""The Kullback-Leibler divergence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .._engine import Tensor
from .distribution import Distribution

Divergence = Callable[[Any, Any], Tensor]
_REGISTERED: dict[tuple[type, type], Divergence] = {}
_FOUND: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator that registers a function ``(p, q)`` as the divergence of these classes and their subclasses. The
    most specific classes win; if that is ambiguous, ``kl_divergence`` warns.
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise TypeError(f"register_kl: expected a subclass of Distribution, got {kind!r}")

    def register(function: Divergence) -> Divergence:
        _REGISTERED[type_p, type_q] = function
        # Which one is the most specific may have changed.
        _FOUND.clear()
        return function

    return register


def _find(type_p: type, type_q: type) -> Divergence:
    """The function for the nearest base class of p, and that for the nearest of q, which should be the same one."""
    ps, qs = type_p.__mro__, type_q.__mro__
    matches = [(p, q) for p, q in _REGISTERED if p in ps and q in qs]
    if not matches:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}"
        )
    by_p = min(matches, key=lambda match: (ps.index(match[0]), qs.index(match[1])))
    by_q = min(matches, key=lambda match: (qs.index(match[1]), ps.index(match[0])))
    if _REGISTERED[by_p] is not _REGISTERED[by_q]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({by_p[0].__name__}, "
            f"{by_q[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _REGISTERED[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence from ``q`` to ``p``, the mean of ``log p(x) - log q(x)`` over x from p, of the
    shape of the batch. Pairs without a formula raise ``NotImplementedError``.

    >>> import neurenix as nx
    >>> from neurenix.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    pair = type(p), type(q)
    if pair not in _FOUND:
        _FOUND[pair] = _find(*pair)
    return _FOUND[pair](p, q)
