"""Starting values of parameters: each function fills its tensor in place and gives it back.

>>> import neurenix as nx
>>> nx.nn.init.constant_(nx.zeros(2), 3.0).tolist()
[3.0, 3.0]
"""

from __future__ import annotations

import math

from .. import _engine
from .._autograd import no_grad
from .._engine import Generator, Tensor

_GAINS = {
    "linear": 1.0,
    **{f"conv{t}{d}d": 1.0 for t in ("", "_transpose") for d in (1, 2, 3)},
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity shrinks the standard deviation."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"calculate_gain: {nonlinearity!r} is unknown: {', '.join(sorted([*_GAINS, 'leaky_relu']))}")
    return _GAINS[nonlinearity]


def _put(tensor: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        tensor.copy_(values)
    return tensor


def _draw(tensor: Tensor, source: str, generator: Generator | None) -> Tensor:
    # Drawn in float32: the same numbers for every dtype.
    draw = getattr(_engine, source)
    return draw(tuple(tensor.shape), device=tensor.device, generator=generator)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers distributed evenly over [a, b)."""
    return _put(tensor, _draw(tensor, "rand", generator) * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers from a normal distribution."""
    return _put(tensor, _draw(tensor, "randn", generator) * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers from a normal distribution, between ``a`` and ``b``: by the inverse of its cumulative distribution."""
    lower, upper = (math.erf((edge - mean) / std / math.sqrt(2.0)) for edge in (a, b))
    # Winitzki's approximation starts, three of Newton's steps make it exact to float32.
    y = (_draw(tensor, "rand", generator) * (upper - lower) + lower).clamp(-0.9999999, 0.9999999)
    log = (1.0 - y * y).log()
    half = log * 0.5 + 2.0 / (math.pi * 0.147)
    x = y.sign() * ((half * half - log / 0.147).sqrt() - half).clamp(min=0.0).sqrt()
    for _ in range(3):
        x = x - (x.erf() - y) * (math.sqrt(math.pi) / 2.0) * (x * x).exp()
    return _put(tensor, (x * (std * math.sqrt(2.0)) + mean).clamp(a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return _put(tensor, _engine.full_like(tensor.detach(), val))


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: a matrix is needed, not {tensor.ndim} dimensions")
    return _put(tensor, _engine.eye(*tensor.shape, device=tensor.device))


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many numbers a unit of the output adds up, and how many units of the output a number of the input reaches."""
    if tensor.ndim < 2:
        raise ValueError(f"fan in and fan out need a tensor of at least 2 dimensions, not {tensor.ndim}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Evenly distributed, keeping the variance forward and backward (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normally distributed, keeping the variance forward and backward (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'mode is {mode!r}: it is "fan_in" or "fan_out"')
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Evenly distributed, keeping the variance through rectifiers (He et al., 2015)."""
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normally distributed, keeping the variance through rectifiers (He et al., 2015)."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)
