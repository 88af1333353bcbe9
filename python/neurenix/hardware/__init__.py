"""Hardware by name: which devices there are, and operations on one kind of them.

Every backend can be made everywhere. ``initialize()`` says whether the hardware is there, as the function
``is_..._available()`` does; without it, operations run on the CPU, with one warning and a note in
``placement_report()``.
"""

from __future__ import annotations

from typing import Any

from .. import _engine
from ._backend import FallbackWarning, HardwareBackend
from .directml import DirectMLBackend, is_directml_available
from .npu import NPUBackend, is_npu_available
from .tensor_cores import TensorCoresBackend, is_tensor_cores_available


def report() -> list[dict[str, Any]]:
    """Every kind of device: those found, with what they say of themselves, and those that are not, with the reason.

    >>> import neurenix as nx
    >>> [entry["found"] for entry in nx.hardware.report() if entry["device"] == "cpu"]
    [True]
    """
    entries: list[dict[str, Any]] = []
    for device in _engine.devices():
        info = device.info
        entries.append(
            {
                "device": device.name,
                "kind": device.type,
                "found": True,
                "model": info["model"],
                "nature": info["nature"],
                "memory": info.get("total_memory"),
            }
        )
    for kind, reason in _engine.missing_devices():
        entries.append({"device": kind, "kind": kind.split(":")[0], "found": False, "reason": reason})
    return entries


__all__ = [
    "DirectMLBackend",
    "FallbackWarning",
    "HardwareBackend",
    "NPUBackend",
    "TensorCoresBackend",
    "is_directml_available",
    "is_npu_available",
    "is_tensor_cores_available",
    "report",
]
