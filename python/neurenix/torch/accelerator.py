"""The best device of this machine, of whatever kind: ``torch.accelerator``."""

from __future__ import annotations

from typing import Any

import neurenix as nx

from .. import _engine

_chosen: _engine.Device | None = None


def _best() -> _engine.Device | None:
    real = [device for device in nx.devices() if device.info["nature"] == "hardware"]
    return _chosen or (real[0] if real else None)


def is_available() -> bool:
    """Whether there is a device other than the CPU. Emulators do not count."""
    return _best() is not None


def current_accelerator(check_available: bool = False) -> _engine.Device | None:
    """The best device other than the CPU, or None."""
    return _best()


def device_count() -> int:
    """The number of devices of the best kind."""
    best = _best()
    return 0 if best is None else sum(device.type == best.type for device in nx.devices())


def current_device_index() -> int:
    """The index of the current device."""
    best = _best()
    return 0 if best is None else best.index


def set_device_index(device: Any) -> None:
    """Chooses a device, by index or by name."""
    global _chosen
    best = _best()
    if isinstance(device, int):
        if best is None:
            raise RuntimeError("accelerator: this machine has no device other than the CPU")
        device = f"{best.type}:{device}"
    _chosen = _engine.Device(device)


def synchronize(device: Any = None) -> None:
    """Waits until all work submitted to a device has finished."""
    best = _best() if device is None else _engine.Device(device)
    if best is not None:
        best.synchronize()


def empty_cache() -> None:
    """Returns memory that no tensor uses to the system."""
    best = _best()
    if best is not None:
        best.empty_cache()
