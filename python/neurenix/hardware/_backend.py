"""The base class of the backends: decides where operations run, and reports it."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._engine import Device, Tensor
from ..nn import Module
from ._optimize import computing_in


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
        device_index = _index("get_device_info", device_index)
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

    def select_device(self, device_index: int | Device | None) -> None:
        """Runs operations on this device from now on: its index, or the device itself. Without a selection, and after
        ``None``, they run where their first operand is, if that is such a device, otherwise on the first one. Without
        any device, it has no effect.
        """
        names = [device.name for device in self._devices] if self.get_device_count() else []
        index: int | None
        if isinstance(device_index, Device):
            index = names.index(device_index.name) if device_index.name in names else -1
        else:
            index = None if device_index is None else _index("select_device", device_index)
        if names and index is not None and not 0 <= index < len(names):
            raise ValueError(f"select_device: there is no device {device_index}: {', '.join(names)} found for {self.title}")
        self._selected = index if names else None

    def placement_report(self) -> list[dict[str, Any]]:
        """For each kind of operation so far: its name, where it ran, how often, and the reason if it did not run on the
        hardware, or not all of it; the last one if there were several."""
        return [dict(entry) for entry in self._report]

    def _device(self, operation: str, beside: Device) -> tuple[Device, str | None]:
        """The device on which an operation runs, and if it is the CPU, the reason. In strict mode that is an error."""
        if self.get_device_count() > 0:
            if self._selected is not None:
                return self._devices[self._selected], None
            return beside if beside.type == self.kind else self._devices[0], None
        return self._on_cpu(operation, self._reason())

    @staticmethod
    def _on_cpu(operation: str, reason: str) -> tuple[Device, str]:
        """The CPU, for this reason. In strict mode that is an error."""
        if _engine.is_strict_placement():
            raise RuntimeError(_excluded(operation, reason))
        return Device("cpu"), reason

    def _record(self, operation: str, device: str, reason: str | None) -> None:
        """Adds to the report. With a reason, the CPU computes instead of the hardware: warns once, at the line that
        called this package. In strict mode that is an error.
        """
        if reason is not None and _engine.is_strict_placement():
            raise RuntimeError(_excluded(operation, reason))
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
        device, reason = self._device(operation, next(operand for operand in operands if operand is not None).device)
        if device.type == "cpu" or _engine.is_recording():
            result = function(*_moved(operands, device))
            self._record(operation, device.name, reason)
            return result

        def compute() -> Any:
            result = function(*_moved(operands, device))
            _engine.evaluate(list(result) if isinstance(result, tuple) else [result])
            device.synchronize()
            return result

        try:
            result, fallbacks = _engine.recovering(compute)
        except (MemoryError, RuntimeError) as error:
            if _engine.is_strict_placement() and isinstance(error, MemoryError):
                raise MemoryError(_excluded(operation, str(error))) from error
            # An error of the function itself does not name the device; nothing is gained by calling it again.
            is_of_device = device.name in str(error)
            on_host = any(operand is not None and operand.device != device for operand in operands)
            if _engine.is_strict_placement() or not is_of_device or not on_host:
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

    def _optimized(self, model: Module, way: tuple[str, str] | None, device: Device, reason: str | None) -> bool:
        """Moves a model and sets how it computes. If that fails on the hardware, returns False: the model is as it was.
        Records where it is.
        """
        try:
            computing_in(model, way, device)
        except (MemoryError, RuntimeError) as error:
            if device.type == "cpu":
                raise
            if _engine.is_strict_placement():
                raise type(error)(_excluded("optimize_model", str(error))) from error
            place = self._model_device(model).name
            self._record("optimize_model", place, f"{error}; the model stays on {place} as it was")
            return False
        self._record("optimize_model", device.name, reason)
        return True

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


#: How many operands an operation must have; the others may be None. Operations that are not here need all.
_REQUIRED = {"linear": 2, "conv2d": 2, "batch_norm": 1, "layer_norm": 1}


def check_operands(operation: str, operands: tuple[Any, ...]) -> None:
    """Refuses operands that are not tensors."""
    required = _REQUIRED.get(operation, len(operands))
    for number, operand in enumerate(operands):
        if isinstance(operand, Tensor) or (operand is None and number >= required):
            continue
        hint = "" if operand is None else "; convert it with neurenix.Tensor"
        raise TypeError(f"{operation}: expected a tensor, got {type(operand).__name__}{hint}")


def _index(name: str, value: Any) -> int:
    """An index that was given to the method of this name."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer index, got {type(value).__name__}") from None


def _excluded(operation: str, reason: str) -> str:
    """The message if strict mode prevents that the CPU computes."""
    return f"{operation}: strict mode excludes the CPU, and {reason}"


def _moved(operands: tuple[Tensor | None, ...], device: Device) -> tuple[Tensor | None, ...]:
    return tuple(None if operand is None else operand.to(device) for operand in operands)
