"""The inspection functions of the array API standard."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._engine import Device, all_dtypes, dtype
from ._creation import isdtype


class _Info:
    def capabilities(self) -> dict[str, Any]:
        """The capabilities of the namespace."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The default device of new tensors."""
        return _engine.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """The default dtypes of new tensors."""
        return {
            "real floating": _engine.get_default_dtype(),
            "complex floating": _engine.get_default_dtype().to_complex(),
            "integral": dtype("int64"),
            "indexing": dtype("int64"),
        }

    def devices(self) -> list[Device]:
        """The available devices."""
        return _engine.devices()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dtype]:
        """The available dtypes, of all kinds or of one. The standard has no floats of 8 or 16 bits."""
        known = {d.name: d for d in all_dtypes() if d.itemsize > 2 or not d.is_floating_point}
        known |= {name: dtype(name) for name in ("complex64", "complex128")}
        return known if kind is None else {name: d for name, d in known.items() if isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """Information about the namespace: devices, dtypes, capabilities."""
    return _Info()
