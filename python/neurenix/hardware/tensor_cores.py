"""NVIDIA's Tensor Cores: matrix products in lower precision on GPUs that have them."""

from __future__ import annotations

import re
from typing import Any

from .. import _engine
from .._engine import Device, Tensor
from ._backend import HardwareBackend

_PRECISIONS = {"fp32": None, "fp16": "float16", "mixed": "float16"}
_ARCHITECTURES = {7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
#: The lowest compute capability whose Tensor Cores have kernels in this release.
_FIRST = (8, 0)


def is_tensor_cores_available() -> bool:
    """Whether there is a GPU whose Tensor Cores this release supports: compute capability 8.0 or later."""
    return bool(TensorCoresBackend._found())


def _capability(device: Device) -> tuple[int, int]:
    for feature in device.info["features"]:
        match = re.fullmatch(r"compute capability (\d+)\.(\d+)", feature)
        if match:
            return int(match[1]), int(match[2])
    return 0, 0


class TensorCoresBackend(HardwareBackend):
    """Matrix products on Tensor Cores. Without them they run on the CPU, with a warning.

    >>> tensor_cores = TensorCoresBackend()
    >>> tensor_cores.initialize() == is_tensor_cores_available()
    True
    >>> tensor_cores.set_precision("int3")
    Traceback (most recent call last):
    ValueError: Precision must be one of: 'fp32', 'fp16', 'mixed'
    """

    kind = "cuda"
    title = "NVIDIA Tensor Cores"
    missing = "NVIDIA Tensor Cores are not available"

    def __init__(self) -> None:
        super().__init__()
        self._precision = "mixed"

    @classmethod
    def _found(cls) -> list[Device]:
        return [device for device in super()._found() if _capability(device) >= _FIRST]

    @classmethod
    def _reason(cls) -> str:
        older = HardwareBackend._found.__func__(cls)  # type: ignore[attr-defined]
        if older:
            major, minor = _capability(older[0])
            return f"{older[0].name} has compute capability {major}.{minor}; this release requires 8.0"
        return super()._reason()

    def _describe(self, device: Device) -> dict[str, Any]:
        major, minor = _capability(device)
        name = "Turing" if (major, minor) == (7, 5) else "Ada" if (major, minor) == (8, 9) else _ARCHITECTURES.get(major, "Unknown")
        return {
            **super()._describe(device),
            "vendor": "NVIDIA",
            "architecture": f"{name} {major}.{minor}",
            "compute_capability": f"{major}.{minor}",
            "tensor_cores": True,
        }

    def set_precision(self, precision: str) -> None:
        """``"fp32"``, ``"fp16"``, or ``"mixed"``: factors in ``float16``, sums and results in ``float32``."""
        if precision not in _PRECISIONS:
            raise ValueError("Precision must be one of: 'fp32', 'fp16', 'mixed'")
        self._precision = precision

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices in the precision set. ``"fp32"`` does not use Tensor Cores. Without Tensor Cores,
        operands are not rounded: the precision only determines the dtype of the result.
        """
        left, right = self._on_device("matmul", a, b)
        low = _PRECISIONS[self._precision]
        if low is None or not left.dtype.is_floating_point:
            return left.matmul(right)
        if self.get_device_count() > 0:
            left, right = left.to(low), right.to(low)
        return left.matmul(right).to(low if self._precision == "fp16" else _engine.promote_types(a.dtype, b.dtype))

    def optimize_model(self, model: Any, precision: str = "mixed") -> Any:
        """``model`` on the device, computing in this precision.

        ``"mixed"`` keeps weights in ``float32`` and runs products and convolutions in ``float16``; ``"fp16"`` converts
        the weights; ``"fp32"`` only moves the model. The model is changed in place and returned, so an existing
        optimiser of its parameters remains valid.
        """
        if precision not in _PRECISIONS:
            raise ValueError("Precision must be one of: 'fp32', 'fp16', 'mixed'")
        device = self._device("optimize_model", self._model_device(model))
        model.to(device)
        if precision == "fp16":
            model.to("float16")
        model.computation_dtype = {"mixed": ("autocast", "float16"), "fp16": ("inputs", "float16")}.get(precision)
        return model
