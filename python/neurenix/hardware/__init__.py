"""Hardware by name: the available devices, and operations on one kind of device.

Every backend can be created everywhere. ``initialize()`` and ``is_..._available()`` return whether the hardware is
present. Without it, operations run on the CPU, with one warning and an entry in ``placement_report()``.
"""

from __future__ import annotations

from typing import Any

from .. import _engine
from ._backend import FallbackWarning
from ._deployed import OptimizedModel, folders
from ._operations import HardwareBackend
from .directml import DirectMLBackend, is_directml_available
from .npu import NPUBackend, is_npu_available
from .tensor_cores import TensorCoresBackend, is_tensor_cores_available


def report() -> list[dict[str, Any]]:
    """Every kind of device: the devices found, with their properties, and the missing kinds, with the reason.

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
    for unit in _engine.npu_devices(folders()):
        properties = unit.properties()
        entries.append(
            {
                "device": unit.name,
                "kind": "npu",
                "found": True,
                "model": properties["name"],
                "nature": properties["nature"],
                "memory": properties.get("memory"),
            }
        )
    missing = [("npu", f"{runtime}: {reason}") for runtime, reason in _engine.missing_npus(folders())]
    for kind, reason in [*_engine.missing_devices(), *missing]:
        entries.append({"device": kind, "kind": kind.split(":")[0], "found": False, "reason": reason})
    return entries


__all__ = [
    "DirectMLBackend",
    "FallbackWarning",
    "HardwareBackend",
    "NPUBackend",
    "OptimizedModel",
    "TensorCoresBackend",
    "is_directml_available",
    "is_npu_available",
    "is_tensor_cores_available",
    "report",
]
