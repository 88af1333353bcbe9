"""The base class of the backends: decides where operations run, and reports it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._engine import Device, Tensor
from ..nn import Module


class FallbackWarning(RuntimeWarning):
    """An operation ran on the CPU because the requested hardware is not present or does not take it."""


def _calls_above() -> int:
    """How many calls above the caller of this function the line is that called this package."""
    own, frame, level = os.path.dirname(os.path.dirname(__file__)) + os.sep, sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame, level = frame.f_back, level + 1
    return level


class Backend:
    """Decides where operations run: on one kind of hardware, or on the CPU."""

    #: The kind of device in the registry.
    kind = ""
    #: The hardware's name in messages.
    title = ""
    #: The beginning of the message when it is missing.
    missing = ""

    def __init__(self) -> None:
        self._initialized = False
        self._devices: list[Device] = []
        self._warned = False
        self._report: list[dict[str, Any]] = []
        self._selected: int | None = None

    @classmethod
    def _found(cls) -> list[Device]:
        """The available devices of this kind."""
        return [device for device in _engine.devices() if device.type == cls.kind]

    @classmethod
    def _reason(cls) -> str:
        """The reason why no such device is available."""
        for kind, reason in _engine.missing_devices():
            if kind == cls.kind or kind.startswith(f"{cls.kind}:"):
                return reason
        return f"no device for {cls.title} was found"

    def initialize(self) -> bool:
        """Looks for devices. Returns whether one was found; never raises an error."""
        self._devices = self._found()
        self._initialized = True
        return bool(self._devices)

    def get_device_count(self) -> int:
        """The number of devices; 0 if there is none."""
        if not self._initialized:
            self.initialize()
        return len(self._devices)

    def get_device_info(self, device_index: int = 0) -> dict[str, Any]:
        """The properties of a device; empty if it does not exist."""
        if not 0 <= device_index < self.get_device_count():
            return {}
        return self._describe(self._devices[device_index])

    def _describe(self, device: Device) -> dict[str, Any]:
        info = device.info
        told = {
            "name": info["model"],
            "device": info["name"],
            "type": "GPU",
            "nature": info["nature"],
            "features": info["features"],
        }
        for ours, theirs in (("compute_units", "compute_units"), ("memory", "total_memory")):
            if theirs in info:
                told[ours] = info[theirs]
        return told

    def select_device(self, device_index: int) -> None:
        """Runs operations on this device from now on. Without a selection, they run where their first operand is, if
        that is such a device, otherwise on the first one. Without any device, it has no effect.
        """
        count = self.get_device_count()
        if device_index < 0 or device_index >= max(count, 1):
            raise ValueError(f"select_device: there is no device {device_index}: {count} found for {self.title}")
        self._selected = device_index

    def placement_report(self) -> list[dict[str, Any]]:
        """For each kind of operation so far: its name, where it ran, how often, and the reason if it did not run on the
        hardware, or not all of it; the last one if there were several."""
        return [dict(entry) for entry in self._report]

    def _device(self, operation: str, beside: Device) -> Device:
        """The device on which an operation runs. Records it if it is the CPU."""
        if self.get_device_count() > 0:
            if self._selected is not None:
                return self._devices[self._selected]
            return beside if beside.type == self.kind else self._devices[0]
        self._record(operation, "cpu", self._reason())
        return Device("cpu")

    def _record(self, operation: str, device: str, reason: str | None) -> None:
        """Adds to the report. With a reason, the CPU computes instead of the hardware: warns once, at the line that
        called this package. In strict mode that is an error.
        """
        if reason is not None and _engine.is_strict_placement():
            raise RuntimeError(f"{operation}: strict mode excludes the CPU, and {reason}")
        if reason is not None and not self._warned:
            self._warned = True
            what = f"{operation} runs" if self._devices else f"{self.missing}, operations run"
            warnings.warn(f"{what} on the CPU: {reason}", FallbackWarning, stacklevel=_calls_above())
        for entry in self._report:
            if (entry["operation"], entry["device"]) == (operation, device):
                entry["count"] += 1
                entry["reason"] = reason
                return
        self._report.append({"operation": operation, "device": device, "count": 1, "reason": reason})

    def _on_device(self, operation: str, function: Callable[..., Any], *operands: Tensor | None) -> Any:
        """``function`` of the operands on the device of this operation; a tensor, or several. The result is computed
        when this returns: a failure is noticed while the operands are still there.
        """
        check_operands(operation, operands)
        device = self._device(operation, next(operand for operand in operands if operand is not None).device)
        if device.type == "cpu":
            return function(*_moved(operands, device))
        if _engine.is_recording():
            self._record(operation, device.name, None)
            return function(*_moved(operands, device))

        def compute() -> Any:
            result = function(*_moved(operands, device))
            _engine.evaluate(list(result) if isinstance(result, tuple) else [result])
            device.synchronize()
            return result

        try:
            result, fallbacks = _engine.recovering(compute)
        except (MemoryError, RuntimeError):
            if _engine.is_strict_placement() or all(o is None or o.device == device for o in operands):
                raise
            # The copies of the operands may have been lost with the device: the next ones stay in host memory.
            result, fallbacks = _engine.recovering(compute)
        reasons = dict.fromkeys(f"{fallback.step}: {fallback.reason}" for fallback in fallbacks)
        if reasons:
            self._record(operation, "cpu", "; ".join(reasons))
        else:
            self._record(operation, device.name, None)
        return result

    def _computed(
        self, operation: str, function: Callable[..., Tensor], *operands: Tensor | None, attributes: tuple[Any, ...] = ()
    ) -> Tensor:
        """``function`` of the operands, on the hardware. With the operation's name, ``attributes`` say what it is."""
        result: Tensor = self._on_device(operation, function, *operands)
        return result

    @staticmethod
    def _model_device(model: Any) -> Device:
        """The device of a model's parameters."""
        if not isinstance(model, Module):
            raise TypeError(f"optimize_model: expected neurenix.nn.Module, got {type(model).__name__}")
        parameters = model.parameters()
        return parameters[0].device if parameters else Device("cpu")

    def __repr__(self) -> str:
        found = self.get_device_count()
        state = f"{found} device{'s' * (found != 1)}" if found else "not available, operations run on the CPU"
        return f"{type(self).__name__}({state})"


def check_operands(operation: str, operands: tuple[Any, ...]) -> None:
    """Refuses operands that are not tensors."""
    for operand in operands:
        if operand is not None and not isinstance(operand, Tensor):
            raise TypeError(f"{operation}: expected a tensor, got {type(operand).__name__}; convert it with neurenix.Tensor")


def _moved(operands: tuple[Tensor | None, ...], device: Device) -> tuple[Tensor | None, ...]:
    return tuple(None if operand is None else operand.to(device) for operand in operands)
