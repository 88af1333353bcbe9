"""Which dtype ``amp.autocast`` asks for on this thread. The native part keeps it, for the operator ``@`` asks too."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor, autocast_dtype


def low(*tensors: Any) -> Any:
    """Tensors in the low dtype of ``autocast``, or all as they are if one of them is ``float64`` or integers."""
    dtype = autocast_dtype()
    if dtype is None or any(isinstance(t, Tensor) and t.dtype.name not in _CAST for t in tensors):
        return tensors
    return tuple(t.to(dtype) if isinstance(t, Tensor) else t for t in tensors)


def full(*tensors: Any) -> Any:
    """Tensors of 16 bits as ``float32`` within ``autocast``, all else as it is."""
    if autocast_dtype() is None:
        return tensors
    return tuple(t.float() if isinstance(t, Tensor) and t.dtype.name in _LOW else t for t in tensors)


_LOW = ("float16", "bfloat16")
_CAST = ("float32", "float16", "bfloat16")
