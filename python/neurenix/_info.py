"""What the array API standard asks a namespace about itself."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._engine import Device, all_dtypes, dtype
from ._creation import isdtype


class _Info:
    def capabilities(self) -> dict[str, Any]:
        """What the namespace can do."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new tensors."""
        return _engine.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """The types of new tensors. Complex numbers are not there."""
        return {
            "real floating": dtype("float32"),
            "integral": dtype("int64"),
            "indexing": dtype("int64"),
        }

    def devices(self) -> list[Device]:
        """The devices there are."""
        return _engine.devices()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dtype]:
        """The types there are, of all kinds or of one. The standard has no 16-bit floats."""
        known = {d.name: d for d in all_dtypes() if d.name not in ("float16", "bfloat16")}
        return known if kind is None else {name: d for name, d in known.items() if isdtype(d, kind)}


def __array_namespace_info__() -> _Info:
    """What the namespace says of itself: devices, types, capabilities."""
    return _Info()
