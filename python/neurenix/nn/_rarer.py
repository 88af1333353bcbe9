"""Rarer functions of layers."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from . import _activations
from ._resize import interpolate
from ._windows import Sizes, each, require_dims

__all__ = [
    "alpha_dropout",
    "celu_",
    "channel_shuffle",
    "elu_",
    "feature_alpha_dropout",
    "gumbel_softmax",
    "hardtanh_",
    "leaky_relu_",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "native_channel_shuffle",
    "pdist",
    "relu_",
    "selu_",
    "threshold_",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

# The negative limit of SELU, which takes the place of what is dropped.
_SELU_LIMIT = -1.7580993408473766


def _alpha_dropout(input: Tensor, p: float, training: bool, shape: tuple[int, ...]) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"alpha_dropout: p is {p}, it must be a probability between 0 and 1")
    if not training or p == 0.0 or not input.numel():
        return input
    if p == 1.0:
        return input * 0.0
    factor = 1.0 / math.sqrt((_SELU_LIMIT**2 * p + 1.0) * (1.0 - p))
    kept = _engine.rand(*shape, device=input.device) >= p
    limit = _engine.full_like(input, _SELU_LIMIT)
    return _engine.where(kept, input, limit) * factor - _SELU_LIMIT * factor * p


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Sets elements to the negative limit of SELU with probability ``p``, then scales and shifts all so that mean 0 and
    variance 1 stay (Klambauer et al., 2017); has no effect without ``training``.
    """
    return _alpha_dropout(input, p, training, tuple(input.shape))


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """:func:`alpha_dropout` of whole channels of (N, C, ...)."""
    return _alpha_dropout(input, p, training, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples of a relaxed categorical distribution (Jang et al., 2017): ``softmax((logits + g) / tau)`` with Gumbel
    noise ``g``. With ``hard`` they are one-hot, with the gradient of the relaxed ones. ``eps`` has no effect.

    >>> import neurenix as nx
    >>> nx.functional.gumbel_softmax(nx.zeros(4, 3), hard=True).sum(1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    # Above 0 and below 1: the least number that ``rand`` draws is 0.
    uniform = _engine.rand(*logits.shape, device=logits.device).clamp(min=2.0**-25)
    noise = -(-uniform.log()).log().to(logits.dtype)
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    one_hot = _engine.full_like(soft.detach(), 0.0).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Divides the channels (N, C, ...) into groups, and takes one of each group in turn.

    >>> import neurenix as nx
    >>> nx.functional.channel_shuffle(nx.arange(4.0).reshape(1, 4, 1, 1), 2).reshape(-1).tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    require_dims("channel_shuffle", input, 3)
    count, channels, *sizes = input.shape
    if groups < 1 or channels % groups:
        raise ValueError(f"channel_shuffle: {channels} channels cannot be divided into {groups} groups")
    return input.reshape(count, groups, channels // groups, *sizes).transpose(1, 2).reshape(input.shape)


native_channel_shuffle = channel_shuffle


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of order ``p`` of all pairs of rows: (N, M) to (N * (N - 1) / 2).

    >>> import neurenix as nx
    >>> nx.functional.pdist(nx.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()[:2]
    [5.0, 1.0]
    """
    require_dims("pdist", input, 2, 2)
    count = input.shape[0]
    pairs = [(row, other) for row in range(count) for other in range(row + 1, count)]
    if not pairs:
        return input.reshape(-1)[:0]
    rows, others = (_engine.tensor([pair[side] for pair in pairs], device=input.device) for side in (0, 1))
    difference = input.index_select(0, rows) - input.index_select(0, others)
    return difference.norm(p, dim=1)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Same as :func:`interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """:func:`interpolate` with the nearest elements."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """:func:`interpolate` in two directions, with ``align_corners``."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _max_unpool(dims: int) -> Any:
    name = f"max_unpool{dims}d"

    def unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Any = None,
    ) -> Tensor:
        require_dims(name, input, dims + 1, dims + 2)
        if tuple(indices.shape) != tuple(input.shape):
            raise ValueError(f"{name}: the input has shape {tuple(input.shape)}, the indices {tuple(indices.shape)}")
        kernels = each(kernel_size, dims, "kernel_size")
        strides = each(kernel_size if stride is None else stride, dims, "stride")
        paddings = each(padding, dims, "padding")
        sizes = [
            (count - 1) * step - 2 * border + kernel
            for count, step, border, kernel in zip(input.shape[-dims:], strides, paddings, kernels, strict=True)
        ]
        if output_size is not None:
            wanted = [int(size) for size in output_size][-dims:]
            for size, usual, step in zip(wanted, sizes, strides, strict=True):
                if not usual - step < size < usual + step:
                    raise ValueError(f"{name}: output_size {tuple(wanted)} does not fit: it should be near {tuple(sizes)}")
            sizes = wanted
        planes = input.shape[:-dims]
        flat = _engine.full((*planes, math.prod(sizes)), 0.0, dtype=input.dtype, device=input.device)
        flat = flat.scatter(-1, indices.reshape(*planes, -1), input.reshape(*planes, -1))
        return flat.reshape(*planes, *sizes)

    unpool.__name__ = unpool.__qualname__ = name
    unpool.__doc__ = (
        "Puts the greatest elements of windows back to their positions, which ``return_indices=True`` of the pooling "
        "returned, among zeros. ``output_size`` chooses one of several sizes that pooling makes equal."
    )
    return unpool


max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(dims) for dims in (1, 2, 3))


def _in_place(function: Any) -> Any:
    name = f"{function.__name__}_"

    def changed(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # What it computes from is the value before.
        return input.copy_(function(input.clone(), *args, **kwargs))

    changed.__name__ = changed.__qualname__ = name
    changed.__doc__ = f"Stores what :func:`{function.__name__}` returns in its input, and returns it."
    return changed


celu_, elu_, hardtanh_, leaky_relu_, relu_, selu_, threshold_ = (
    _in_place(getattr(_activations, name))
    for name in ("celu", "elu", "hardtanh", "leaky_relu", "relu", "selu", "threshold")
)


_guard(globals())
