"""PyTorch's functions that create tensors and that the array API standard lacks; ``neurenix.torch`` has them."""

from __future__ import annotations

import builtins
import math
from typing import Any

from . import _engine
from ._creation import zeros
from ._engine import Tensor
from .signal import windows

__all__ = [
    "bartlett_window", "blackman_window", "empty_permuted", "empty_strided", "frombuffer", "hamming_window", "hann_window",
    "kaiser_window", "randint_like", "range", "scalar_tensor",
]  # fmt: skip


# Windows.
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Hann window; symmetric without ``periodic``: see ``signal.windows.hann``."""
    return windows.hann(window_length, sym=not periodic, **options)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """``alpha - beta * cos(2 pi n / (M - 1))``: see ``signal.windows.hamming``."""
    return windows.general_cosine(window_length, a=(alpha, beta), sym=not periodic, **options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The Blackman window; symmetric without ``periodic``: see ``signal.windows.blackman``."""
    return windows.blackman(window_length, sym=not periodic, **options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """The triangle; symmetric without ``periodic``: see ``signal.windows.bartlett``."""
    return windows.bartlett(window_length, sym=not periodic, **options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """The Kaiser window; symmetric without ``periodic``: see ``signal.windows.kaiser``."""
    return windows.kaiser(window_length, beta=beta, sym=not periodic, **options)


# Other tensors.
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Integers from ``low`` to ``high`` - 1, with the shape, dtype and device of ``input``. A single number is
    ``high``.
    """
    start, stop = (0, low) if high is None else (low, high)
    made = _engine.randint(start, stop, tuple(input.shape), device=device or input.device).to(dtype or input.dtype)
    return made.requires_grad_() if requires_grad else made


def range(
    start: float = 0, end: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``start``, ``start + step``, ... up to ``end``, including it, by default in the default dtype. A single number is
    ``end``.
    """
    first, last = (0, start) if end is None else (start, end)
    if step == 0 or (last - first) / step < 0:
        raise ValueError(f"range: a step of {step} does not lead from {first} to {last}")
    kind = _engine.get_default_dtype() if dtype is None else _engine.dtype(dtype)
    place = _engine.arange(math.floor((last - first) / step) + 1, device=device)
    made = place.to(kind) * step + first if kind.is_floating_point else (place * int(step) + int(first)).to(kind)
    return made.requires_grad_() if requires_grad else made


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor without dimensions, by default of the default dtype."""
    return _engine.full((), s, dtype=dtype or _engine.get_default_dtype(), device=device, requires_grad=requires_grad)


def empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    """Zeros of this size; strides have no meaning."""
    if len(tuple(size)) != len(tuple(stride)):
        raise ValueError(f"empty_strided: {len(tuple(size))} sizes and {len(tuple(stride))} strides")
    return zeros(tuple(size), **options)


def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Zeros of this size; the order in memory has no meaning."""
    return zeros(tuple(size), **options)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector with a copy of the elements in an object's memory: ``count`` of them, or all, after ``offset`` bytes.

    >>> import neurenix.torch as torch
    >>> torch.frombuffer(bytearray([1, 0, 2, 0]), dtype=torch.int16).tolist()
    [1, 2]
    """
    kind = _engine.dtype(dtype)
    data = memoryview(buffer).cast("B")
    if not 0 <= offset < builtins.max(len(data), 1):
        raise ValueError(f"frombuffer: an offset of {offset} in a buffer of {len(data)} bytes")
    rest = len(data) - offset
    if count < 0 and rest % kind.itemsize:
        raise ValueError(f"frombuffer: {rest} bytes are no whole number of elements of {kind.name}")
    count = rest // kind.itemsize if count < 0 else count
    if count == 0 or count * kind.itemsize > rest:
        raise ValueError(f"frombuffer: {count} elements of {kind.name} do not fit {rest} bytes")
    made = _engine.from_bytes(bytes(data[offset : offset + count * kind.itemsize]), kind, (count,), device="cpu")
    return made.requires_grad_() if requires_grad else made
