"""Neural processing units of phones, laptops and servers."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from ._backend import HardwareBackend
from ._optimize import PRECISIONS_OF_INTEGERS, quantized

_GOALS = ("balanced", "performance", "accuracy", "power", "memory")


def is_npu_available() -> bool:
    """Whether there is a neural processing unit that this release supports. ``neurenix.hardware.report()`` gives the
    reason if not."""
    return bool(NPUBackend._found())


class NPUBackend(HardwareBackend):
    """Operations on a neural processing unit. Without one they run on the CPU, with a warning."""

    kind = "npu"
    title = "NPUs"
    missing = "No NPU is available"

    def __init__(self) -> None:
        super().__init__()
        self._memory_limit: int | None = None
        self._memory_optimization = False

    def _describe(self, device: Any) -> dict[str, Any]:
        return {**super()._describe(device), "type": "NPU"}

    def optimize_model(
        self,
        model: Any,
        quantize: bool = True,
        precision: str = "int8",
        optimize_for: str = "balanced",
        calibration_data: Any = None,
    ) -> Any:
        """Returns a copy of ``model`` for the device; ``model`` itself is unchanged.

        With ``quantize``, the weights of linear layers and convolutions are stored as ``"int8"`` or ``"int16"`` with a
        scale for each output, and dequantised when they are used. With ``calibration_data`` (batches of inputs, or one
        batch), the inputs of these layers are rounded to integers too, over the range seen in the data.
        ``optimize_for="accuracy"`` never rounds inputs.
        """
        if precision not in PRECISIONS_OF_INTEGERS:
            known = ", ".join(map(repr, PRECISIONS_OF_INTEGERS))
            raise ValueError(f"optimize_model: precision is {precision!r}, it must be one of {known}")
        if optimize_for not in _GOALS:
            known = ", ".join(map(repr, _GOALS))
            raise ValueError(f"optimize_model: optimize_for is {optimize_for!r}, it must be one of {known}")
        if isinstance(calibration_data, Tensor):
            calibration_data = [calibration_data]
        device = self._device("optimize_model", self._model_device(model))
        optimized = model.clone()
        if quantize and PRECISIONS_OF_INTEGERS[precision] is not None:
            data = None if optimize_for == "accuracy" else calibration_data
            optimized = quantized(optimized, precision, data)
        elif quantize:
            optimized.to(precision)
        return optimized.to(device)

    def set_memory_limit(self, limit: int) -> None:
        """Limits the memory of tensors on the device to this number of bytes. Without a device, it is only recorded."""
        if not isinstance(limit, int) or limit <= 0:
            raise ValueError(f"set_memory_limit: limit is {limit!r}, it must be a positive number of bytes")
        self._memory_limit = limit
        if self.get_device_count():
            for device in self._devices:
                device.set_memory_limit(limit)

    def enable_memory_optimization(self, enabled: bool = True) -> None:
        """Returns unused memory to the device immediately. Without a device, it is only recorded."""
        self._memory_optimization = bool(enabled)
        if enabled and self.get_device_count():
            for device in self._devices:
                device.empty_cache()

