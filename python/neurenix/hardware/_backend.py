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


class HardwareBackend:
    """Operations on one kind of hardware. Without it they run on the CPU, with a warning and an entry in the report."""

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

    def placement_report(self) -> list[dict[str, Any]]:
        """For each kind of operation so far: its name, where it ran, how often, and the reason if it did not run on the
        hardware."""
        return [dict(entry) for entry in self._report]

    def _device(self, operation: str, beside: Device) -> Device:
        """The device on which an operation runs. Records it."""
        if self.get_device_count() > 0:
            device, reason = (beside if beside.type == self.kind else self._devices[0]), None
        else:
            device, reason = Device("cpu"), self._reason()
        self._record(operation, device.name, reason)
        return device

    def _record(self, operation: str, device: str, reason: str | None) -> None:
        """Adds to the report. With a reason, the CPU computes instead of the hardware: warns once, at the line that
        called this package.
        """
        if reason is not None and not self._warned:
            self._warned = True
            what = f"{operation} runs" if self._devices else f"{self.missing}, operations run"
            warnings.warn(f"{what} on the CPU: {reason}", FallbackWarning, stacklevel=_calls_above())
        for entry in self._report:
            if (entry["operation"], entry["device"]) == (operation, device):
                entry["count"] += 1
                return
        self._report.append({"operation": operation, "device": device, "count": 1, "reason": reason})

    def _on_device(self, operation: str, *operands: Tensor | None) -> tuple[Any, ...]:
        for operand in operands:
            if operand is not None and not isinstance(operand, Tensor):
                raise TypeError(f"{operation}: expected a tensor, got {type(operand).__name__}; convert it with neurenix.Tensor")
        first = next(operand for operand in operands if operand is not None)
        device = self._device(operation, first.device)
        return tuple(None if operand is None else operand.to(device) for operand in operands)

    def _computed(
        self, operation: str, function: Callable[..., Tensor], *operands: Tensor | None, attributes: tuple[Any, ...] = ()
    ) -> Tensor:
        """``function`` of the operands, on the hardware. With the operation's name, ``attributes`` say what it is."""
        return function(*self._on_device(operation, *operands))

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices, or batches of matrices. The result is on the device that computed it."""
        return self._computed("matmul", lambda left, right: left.matmul(right), a, b)

    def conv2d(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, int] = (1, 1),
        padding: int | tuple[int, int] = (0, 0),
        dilation: int | tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """A convolution of ``(N, C, H, W)`` with ``weight`` of ``(out, C / groups, kernel height, kernel width)``."""

        def convolve(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return _engine.conv2d(x, w, b, stride, padding, dilation, groups)

        attributes = (stride, padding, dilation, groups)
        return self._computed("conv2d", convolve, input, weight, bias, attributes=attributes)

    def batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalises over the batch. In training the running statistics are updated in place, wherever they are."""
        x, mean, variance, w, b = self._on_device("batch_norm", input, running_mean, running_var, weight, bias)
        result = _engine.batch_norm(x, mean, variance, w, b, training, momentum, eps)
        if training:
            for place, moved in ((running_mean, mean), (running_var, variance)):
                if place is not moved:
                    place.data = moved.to(place.device)
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
