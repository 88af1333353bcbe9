"""The functions of the engine's composites. Made by make_stubs.py: do not edit."""

from __future__ import annotations

from .._arguments import guard as _guard
from .._engine import Tensor
from ._precision import full

__all__ = [
    "silu",
    "mish",
    "softplus",
    "group_norm",
]


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``, also called swish."""
    return input.silu()


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))`` (Misra, 2019)."""
    return input.mish()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` exceeds ``threshold``. ``beta`` must be positive."""
    return input.softplus(beta, threshold)


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Normalises each of ``num_groups`` groups of channels in each sample of ``(N, C, ...)``. ``weight`` and
    ``bias`` are ``(C)``.
    """
    input, weight, bias = full(input, weight, bias)
    return input.group_norm(num_groups, weight, bias, eps)


_guard(globals())
