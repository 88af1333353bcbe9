"""Activation functions of elements and of vectors."""

from __future__ import annotations

import warnings
from typing import Any

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from ._precision import full

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "normalize",
    "one_hot",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "softmax",
    "softmin",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
]

# ``inplace`` is accepted for compatibility: the engine's tensors are immutable values, so it saves nothing.


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The greater of 0 and each element.

    >>> import neurenix as nx
    >>> nx.functional.relu(nx.Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.relu()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element clamped to [0, 6]."""
    return input.relu6() if input.is_floating_point() else hardtanh(input, 0, 6)


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return input.tanh()


def _chosen(input: Tensor, dim: int | None) -> int:
    """The dimension; if none is given, PyTorch's default with the same warning."""
    if dim is not None:
        return dim
    dim = 0 if input.ndim in (0, 1, 3) else 1
    # The caller of softmax, which is guarded.
    warnings.warn(f"softmax without a dimension uses dim={dim} for {input.ndim} dimensions: pass dim=", stacklevel=4)
    return dim


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``dim``.

    Without ``dim``, it is the first of 1 or 3 dimensions, otherwise the second, with a warning, as in PyTorch.
    """
    (input,) = full(input)
    x = input if dtype is None else input.to(dtype)
    return x.softmax(_chosen(input, dim)) if x.ndim else x.reshape(1).softmax(_chosen(input, dim)).reshape(())


def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """The logarithm of ``softmax``."""
    (input,) = full(input)
    x = input if dtype is None else input.to(dtype)
    return x.log_softmax(_chosen(input, dim)) if x.ndim else x.reshape(1).log_softmax(_chosen(input, dim)).reshape(())


def softmin(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``softmax(-x)``."""
    return softmax(-input, dim, dtype=dtype)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
    return input.leaky_relu(negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return input.elu(alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""
    return input.celu(alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """``elu`` scaled so that activations stay normalised."""
    return input.selu()


def gelu(input: Tensor, approximate: bool | str = "none") -> Tensor:
    """The Gaussian error linear unit; ``approximate`` is ``"none"`` or ``"tanh"``, or ``False`` or ``True``."""
    return input.gelu(approximate)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
    return input.hardswish()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``relu6(x + 3) / 6``."""
    return input.hardsigmoid()


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element clamped to [``min_val``, ``max_val``], which are rounded towards 0 for integers."""
    if input.is_floating_point() or input.dtype.name == "bool":
        return input.hardtanh(min_val, max_val)
    least, greatest = int(min_val), int(max_val)
    return input.clamp(least if input.dtype.is_signed else max(least, 0), greatest)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` outside ``[-lambd, lambd]``, else 0."""
    return input.hardshrink(lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` shrunk towards 0 by ``lambd``."""
    return input.softshrink(lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return input.tanhshrink()


def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``; of integers as ``float32``."""
    if input.is_floating_point() or input.dtype.name == "bool":
        return input.softsign()
    return input / (input.abs() + 1)


def logsigmoid(input: Tensor) -> Tensor:
    """The logarithm of ``sigmoid``."""
    return input.logsigmoid()


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where greater than ``threshold``, else ``value``; both are rounded towards 0 for integers."""
    if input.is_floating_point() or input.dtype.name == "bool":
        return input.threshold(threshold, value)
    return _engine.where(input > int(threshold), input, int(value))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of ``dim`` times the sigmoid of the second: (..., 2 * n, ...) to (..., n, ...)."""
    return input.glu(dim)


def swiglu(gate: Tensor, input: Tensor) -> Tensor:
    """``silu(gate) * input`` (Shazeer, 2020), for two tensors of the same shape.

    >>> import neurenix as nx
    >>> nx.functional.swiglu(nx.zeros(2), nx.ones(2)).tolist()
    [0.0, 0.0]
    """
    return gate.silu() * input


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where positive, else ``weight * x``, for (N, C, ...); ``weight`` is (C), or (1)."""
    return input.prelu(weight)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Vectors along ``dim`` divided by their norm of order ``p``, or by ``eps`` if that is greater."""
    (input,) = full(input)
    return input / input.norm(p, dim, True).clamp(min=eps)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the index given by each element, else 0, along a new last dimension: (...) to (..., num_classes). By default
    the greatest element sets the number of classes.

    >>> import neurenix as nx
    >>> nx.functional.one_hot(nx.tensor([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    return tensor.one_hot(num_classes if num_classes >= 0 else int(tensor.max().item()) + 1)


_guard(globals())
