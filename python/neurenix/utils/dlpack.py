"""Exchange of tensors with other libraries: ``torch.utils.dlpack``."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _creation
from .._engine import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """The tensor as a capsule, for libraries that take no objects with ``__dlpack__``."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor with a copy of the values of another library's array, or of the array in a capsule."""
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
    return _creation.from_dlpack(ext_tensor)


class _Capsule:
    """The array in a capsule, which can be taken once."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        named, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
        named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = named(self._capsule)
        if name not in _STARTS:
            raise ValueError(f"from_dlpack: the capsule {name!r} holds no array, or its array has been taken")
        # The device comes after the address of the elements.
        place = address(self._capsule, name) + _STARTS[name] + ctypes.sizeof(ctypes.c_void_p)
        kind, index = (ctypes.c_int32 * 2).from_address(place)
        return kind, index

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule


_STARTS = {b"dltensor": 0, b"dltensor_versioned": 16 + 2 * ctypes.sizeof(ctypes.c_void_p)}
"""Where the array begins: in the versioned form after two numbers, two pointers and the flags."""
