"""Mixed precision: products are computed in 16 bits; weights and sums stay in 32.

>>> import neurenix as nx
>>> layer = nx.nn.Linear(4, 2)
>>> with nx.amp.autocast(dtype=nx.bfloat16):
...     layer(nx.zeros(1, 4)).dtype.name
'bfloat16'
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._config import DeviceType
from .._engine import Tensor
from ._scaler import GradScaler, has_cuda


# Device kinds of this library, and PyTorch's that existing programs use.
_KINDS = (*(kind.value for kind in DeviceType), "mps", "xpu")


class autocast:
    """A context manager and decorator. Within it, matrix products (``@``, ``matmul``, ``einsum``), linear layers,
    convolutions, attention and recurrent layers compute in ``dtype``; softmax, normalisations and losses of
    ``nn.functional`` compute in ``float32``, and their results have that dtype. Batch normalisation returns its input's.

    With ``float8_e4m3fn``, all this is ``bfloat16``, except that a product is computed in 8 bits if its right factor is a
    matrix, as in linear layers, and all three sizes (rows, inner, columns) are multiples of 16. Each factor is divided
    by a scale that makes its greatest number 448, and rounded; gradients are rounded to ``float8_e5m2``. NVIDIA Hopper
    has units for that.

    Weights are unchanged. The default ``dtype`` is ``bfloat16`` on every device, and ``cache_enabled`` has no effect. Of
    the kinds of devices that ``device_type`` can be, one matters: ``"cuda"`` on a machine without a CUDA device is a
    warning, and changes nothing.
    """

    def __init__(
        self,
        device_type: str | None = None,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if device_type is not None and str(device_type).split(":")[0] not in _KINDS:
            raise ValueError(f"autocast: device_type is {device_type!r}, it must be one of {', '.join(_KINDS)}")
        self.dtype = _engine.dtype("bfloat16" if dtype is None else dtype)
        if self.dtype.name not in ("bfloat16", "float16", "float8_e4m3fn"):
            raise ValueError(f"autocast: dtype must be bfloat16, float16 or float8_e4m3fn, got {self.dtype.name}")
        # For a machine without it, a nested context of another kind stays in force.
        self._is_absent = device_type is not None and str(device_type).split(":")[0] == "cuda" and not has_cuda()
        if self._is_absent and enabled:
            warnings.warn("autocast: CUDA is not available: it is disabled", UserWarning, stacklevel=2)
        self.enabled = enabled and not self._is_absent
        self._before: list[Any] = []

    def __enter__(self) -> autocast:
        self._before.append(_engine.autocast_dtype())
        if not self._is_absent:
            _engine.set_autocast_dtype(self.dtype if self.enabled else None)
        return self

    def __exit__(self, *error: object) -> None:
        _engine.set_autocast_dtype(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # A context of its own for each call: calls nest, and run in several threads.
            context = copy.copy(self)
            context._before = []
            with context:
                return function(*args, **kwargs)

        return wrapped


def is_autocast_enabled() -> bool:
    """Whether this thread is within ``autocast``."""
    return _engine.autocast_dtype() is not None


def _converted(value: Any, dtype: Any, kind: str | None) -> Any:
    """Floating-point tensors on this kind of device in another dtype, within lists, tuples and dictionaries, too."""
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.dtype.name != "float64" and kind in (None, value.device.type)
        return value.to(dtype) if fits else value
    if isinstance(value, dict):
        return {_converted(name, dtype, kind): _converted(each, dtype, kind) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_converted(each, dtype, kind) for each in value])
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str | None = None, cast_inputs: Any = None
) -> Callable[..., Any]:
    """A decorator for ``forward`` of an ``autograd.Function``. With ``cast_inputs``, within ``autocast``, it gets
    floating-point tensors in this dtype, and computes without ``autocast``. ``device_type`` limits which are converted.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    forward = fwd

    @functools.wraps(forward)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        before = _engine.autocast_dtype()
        args[0]._forward_autocast = before if cast_inputs is None else None
        if cast_inputs is None or before is None:
            return forward(*args, **kwargs)
        with autocast(enabled=False):
            return forward(*_converted(args, cast_inputs, device_type), **_converted(kwargs, cast_inputs, device_type))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str | None = None) -> Callable[..., Any]:
    """A decorator for ``backward`` of an ``autograd.Function`` whose ``forward`` has ``custom_fwd``: it computes with
    the setting of ``autocast`` that ``forward`` had. ``device_type`` has no effect.
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    backward = bwd

    @functools.wraps(backward)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        dtype = args[0]._forward_autocast
        with autocast(dtype=dtype, enabled=dtype is not None):
            return backward(*args, **kwargs)

    return decorated


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_enabled"]
