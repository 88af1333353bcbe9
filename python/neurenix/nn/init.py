"""Initial values of parameters: each function fills its tensor in place and returns it.

>>> import neurenix as nx
>>> nx.nn.init.constant_(nx.zeros(2), 3.0).tolist()
[3.0, 3.0]
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator

import numpy as np

from .. import _engine
from .._arguments import guard as _guard
from .._autograd import no_grad
from .._complex_parts import view_as_complex, view_as_real
from .._engine import Generator, Tensor
from ._old_names import renamed as _renamed

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


_THREAD = threading.local()


@contextlib.contextmanager
def _skipped() -> Iterator[None]:
    """Within it, on this thread, the functions of this module draw no numbers and leave tensors as they are."""
    before = getattr(_THREAD, "skipped", False)
    _THREAD.skipped = True
    try:
        yield
    finally:
        _THREAD.skipped = before


def _put(tensor: Tensor, values: Tensor) -> Tensor:
    if not getattr(_THREAD, "skipped", False):
        with no_grad():
            tensor.copy_(values)
    return tensor


def _draw(tensor: Tensor, source: str, generator: Generator | None) -> Tensor:
    if getattr(_THREAD, "skipped", False):
        return _engine.zeros(tuple(tensor.shape), device=tensor.device)
    # Drawn in float32, so that every dtype gets the same numbers.
    draw = getattr(_engine, source)
    return draw(tuple(tensor.shape), device=tensor.device, generator=generator)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers in [a, b); of complex numbers, both parts."""
    if tensor.is_complex():
        uniform_(view_as_real(tensor.detach()), a, b, generator)
        return tensor
    return _put(tensor, _draw(tensor, "rand", generator) * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers from a normal distribution; of complex numbers, each part has half of the variance."""
    if isinstance(std, (int, float)) and std < 0:
        raise ValueError(f"normal_: std is {std}, it must not be negative")
    if tensor.is_complex():
        drawn = _draw(view_as_real(tensor.detach()), "randn", generator) * (std * 0.5**0.5)
        return _put(tensor, view_as_complex(drawn) + mean)
    return _put(tensor, _draw(tensor, "randn", generator) * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers from a normal distribution truncated to [``a``, ``b``], by its inverse cumulative distribution."""
    if std <= 0:
        raise ValueError(f"trunc_normal_: std is {std}, it must be greater than 0")
    lower, upper = (math.erf((edge - mean) / std / math.sqrt(2.0)) for edge in (a, b))
    # Winitzki's approximation is the starting point; three Newton steps make it exact to float32.
    y = (_draw(tensor, "rand", generator) * (upper - lower) + lower).clamp(-0.9999999, 0.9999999)
    log = (1.0 - y * y).log()
    half = log * 0.5 + 2.0 / (math.pi * 0.147)
    x = y.sign() * ((half * half - log / 0.147).sqrt() - half).clamp(min=0.0).sqrt()
    for _ in range(3):
        x = x - (x.erf() - y) * (math.sqrt(math.pi) / 2.0) * (x * x).exp()
    return _put(tensor, (x * (std * math.sqrt(2.0)) + mean).clamp(a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """A constant."""
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
        raise ValueError(f"eye_: expected a matrix, got {tensor.ndim} dimensions")
    return _put(tensor, _engine.eye(*tensor.shape, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that preserves as many input channels as possible, separately for each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: expected a convolution's weight of 3, 4 or 5 dimensions, got shape {tuple(tensor.shape)}")
    outputs, inputs, *kernel = tensor.shape
    if groups < 1 or outputs % groups:
        raise ValueError(f"dirac_: {outputs} channels are not divisible by {groups} groups")
    values = np.zeros(tensor.shape, np.float32)
    for group in range(groups):
        for channel in range(min(outputs // groups, inputs)):
            values[(group * (outputs // groups) + channel, channel, *(size // 2 for size in kernel))] = 1.0
    return _put(tensor, _engine.tensor(values, device=tensor.device))


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """A matrix whose rows or columns, whichever are fewer, are orthogonal (Saxe et al., 2013). Trailing dimensions are
    flattened."""
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got shape {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    drawn = _draw(tensor, "randn", generator).cpu().numpy().reshape(tensor.shape[0], -1).astype(np.float64)
    wide = drawn.shape[0] < drawn.shape[1]
    q, r = np.linalg.qr(drawn.T if wide else drawn)
    # Fixing the signs makes the distribution uniform over all such matrices (Mezzadri, 2007).
    q = q * np.sign(np.diag(r))
    values = gain * (q.T if wide else q).reshape(tensor.shape)
    return _put(tensor, _engine.tensor(values.astype(np.float32), device=tensor.device))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """A matrix with this fraction of zeros in each column, normally distributed elsewhere (Martens, 2010)."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: expected a matrix, got {tensor.ndim} dimensions")
    if not 0.0 <= sparsity <= 1.0:
        raise ValueError(f"sparse_: sparsity is {sparsity}, it must be between 0 and 1")
    zeros = math.ceil(sparsity * tensor.shape[0])
    order = _engine.rand(tuple(tensor.shape), device=tensor.device, generator=generator).argsort(0).argsort(0)
    return _put(tensor, _engine.where(order < zeros, 0.0, _draw(tensor, "randn", generator) * std))


def fans(tensor: Tensor) -> tuple[int, int]:
    """The fan-in (inputs of an output unit) and the fan-out (output units that an input reaches)."""
    if tensor.ndim < 2:
        raise ValueError(f"fan-in and fan-out require a tensor of at least 2 dimensions, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


# PyTorch's names, which layers outside this package import.
_calculate_fan_in_and_fan_out = fans


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'mode is {mode!r}, it must be "fan_in" or "fan_out"')
    return fans(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform, keeping the variance forward and backward (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal, keeping the variance forward and backward (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform, keeping the variance through ReLUs (He et al., 2015)."""
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal, keeping the variance through ReLUs (He et al., 2015)."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


_guard(globals())

for _name in (
    "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform".split()
):
    globals()[_name] = _renamed(globals()[f"{_name}_"], "nn.init")
