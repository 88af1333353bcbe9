"""The dtype that ``amp.autocast`` requests on this thread. The native module stores it, because the operator ``@``
needs it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import _engine
from .._engine import Tensor, autocast_dtype


@contextlib.contextmanager
def precision_of(way: str, how: str) -> Iterator[None]:
    """Computes within ``amp.autocast(dtype=how)``, or this thread's ``float32`` products with the precision ``how``."""
    if way == "products":
        before = _engine.set_thread_matmul_precision(how)
        try:
            yield
        finally:
            _engine.set_thread_matmul_precision(before)
    else:
        from ..amp import autocast

        with autocast(dtype=how):
            yield


def low(*tensors: Any) -> Any:
    """Tensors in the low-precision dtype of ``autocast``; all unchanged if one of them is ``float64`` or an integer."""
    dtype = autocast_dtype()
    if dtype is None or any(isinstance(t, Tensor) and t.dtype.name not in _CAST for t in tensors):
        return tensors
    # Products of 8-bit floats take 16-bit operands, which they scale and round themselves.
    low = "bfloat16" if dtype.itemsize == 1 else dtype
    return tuple(t.to(low) if isinstance(t, Tensor) else t for t in tensors)


def full(*tensors: Any) -> Any:
    """16-bit tensors as ``float32`` within ``autocast``; others unchanged."""
    if autocast_dtype() is None:
        return tensors
    return tuple(t.float() if isinstance(t, Tensor) and t.dtype.name in _LOW else t for t in tensors)


_LOW = ("float16", "bfloat16")
_CAST = ("float32", "float16", "bfloat16")
