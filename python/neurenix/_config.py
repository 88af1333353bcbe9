"""Kinds of devices by name, and initial settings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any

from . import _engine


class DeviceType(str, Enum):
    """Kinds of devices. ``nx.Device(nx.DeviceType.CUDA, 0)`` is a device; ``nx.hardware.report()`` lists the available
    ones.

    >>> import neurenix as nx
    >>> nx.Device(nx.DeviceType.CPU).type == nx.DeviceType.CPU
    True
    """

    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    OPENCL = "opencl"
    VULKAN = "vulkan"
    METAL = "metal"
    DX12 = "dx12"
    GL = "gl"
    DIRECTML = "directml"
    NPU = "npu"


class DeviceContext:
    """A context manager within which new tensors of this process are on a device; ``with nx.Device("cpu"):`` is one."""

    def __init__(self, device: Any) -> None:
        self._device = _engine.Device(device)
        self._before: list[_engine.Device] = []

    def __enter__(self) -> Any:
        self._before.append(_engine.get_default_device())
        _engine.set_default_device(self._device)
        return self._device

    def __exit__(self, *error: object) -> None:
        _engine.set_default_device(self._before.pop())


_contexts: dict[int, list[DeviceContext]] = {}


def _enter(self: _engine.Device) -> _engine.Device:
    context = DeviceContext(self)
    context.__enter__()
    _contexts.setdefault(threading.get_ident(), []).append(context)
    return self


def _exit(self: _engine.Device, *error: object) -> None:
    _contexts[threading.get_ident()].pop().__exit__()


def attach() -> None:
    """Makes devices context managers, within which new tensors are on the device."""
    setattr(_engine.Device, "__enter__", _enter)
    setattr(_engine.Device, "__exit__", _exit)


_PLAIN = {"debug": False, "log_level": "info"}


def init(config: Mapping[str, Any] | None = None) -> None:
    """Applies these settings: ``{"device": "cpu"}`` is ``nx.set_default_device("cpu")``. Calling it is optional.

    ``debug`` and ``log_level`` are accepted with their defaults; ``RNN_GPU_DEBUG=1`` and ``nx.Profiler`` show what runs.
    """
    given = dict(config or {})
    device = given.pop("device", None)
    for name, value in given.items():
        if name not in _PLAIN:
            raise ValueError(f"init: unknown setting {name!r}; the settings are device, debug, log_level")
        if value != _PLAIN[name]:
            raise ValueError(f"init: {name} is {value!r}: only {_PLAIN[name]!r} is supported; see RNN_GPU_DEBUG and nx.Profiler")
    if device is not None:
        _engine.set_default_device(device)
