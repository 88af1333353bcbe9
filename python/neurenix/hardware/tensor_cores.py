"""NVIDIA's Tensor Cores: matrix products in lower precision on GPUs that have them."""

from __future__ import annotations

import re
from typing import Any

from .. import _engine
from .._engine import Device, Tensor
from ..nn._precision import precision_of
from ._operations import HardwareBackend
from ._optimize import integer_product, quantized, scales

#: How a model computes in each precision: see ``Module.computation_dtype``.
_PRECISIONS: dict[str, tuple[str, str] | None] = {
    "fp32": None,
    "fp16": ("inputs", "float16"),
    "mixed": ("autocast", "float16"),
    "tf32": ("products", "high"),
    "split": ("products", "split"),
    "bf16": ("inputs", "bfloat16"),
    "fp8": ("autocast", "float8_e4m3fn"),
    "int8": None,
}
_ARCHITECTURES = {7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
#: The lowest compute capability whose Tensor Cores have kernels in this release.
_FIRST = (8, 0)


def _checked(precision: str) -> str:
    if precision not in _PRECISIONS:
        raise ValueError(f"Precision must be one of: {', '.join(map(repr, _PRECISIONS))}")
    return precision


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
    ValueError: Precision must be one of: 'fp32', 'fp16', 'mixed', 'tf32', 'split', 'bf16', 'fp8', 'int8'
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
        """The precision of ``matmul``:

        - ``"fp32"``: ``float32``, without Tensor Cores;
        - ``"tf32"``: factors rounded to 11 significant bits, sums and results in ``float32``;
        - ``"split"``: ``float32``'s accuracy by six products of ``bfloat16`` numbers, on Hopper;
        - ``"fp16"``, ``"bf16"``: factors and results of 16 bits;
        - ``"mixed"``: factors in ``float16``, sums and results in ``float32``;
        - ``"fp8"``: factors scaled and rounded to ``float8_e4m3fn`` if the right one is a matrix and all sizes are
          multiples of 16, otherwise to ``bfloat16``; results of ``bfloat16``'s precision;
        - ``"int8"``: each row of the left factor and each column of the right one scaled and rounded to ``int8``.
        """
        self._precision = _checked(precision)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices in the precision set. Without Tensor Cores, operands are not rounded: the
        precision only determines the dtype of the result.
        """
        return self._computed("matmul", self._product, a, b)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        if not left.dtype.is_floating_point:
            return left.matmul(right)
        result = _engine.promote_types(left.dtype, right.dtype)
        way, how = _PRECISIONS[self._precision] or ("", "")
        if self.get_device_count() == 0:
            return left.matmul(right).to(how if way == "inputs" else result)
        if way == "inputs":
            return left.to(how).matmul(right.to(how))
        if self._precision == "mixed":
            return left.to(how).matmul(right.to(how), out_dtype="float32").to(result)
        if self._precision == "int8":
            return integer_product(left, scales(left, -1), right, scales(right, -2)).to(result)
        if not way:
            return left.matmul(right)
        with precision_of(way, how):
            return left.matmul(right).to(result)

    def optimize_model(self, model: Any, precision: str = "mixed") -> Any:
        """``model`` on the device, computing in this precision.

        ``"mixed"`` has weights of ``float32`` and runs products and convolutions in ``float16``; ``"fp8"`` does so in
        ``bfloat16``, and the products of linear layers in 8 bits; ``"tf32"`` rounds the factors of ``float32``
        products, and ``"split"`` splits them; ``"fp16"`` and ``"bf16"`` convert the weights; ``"fp32"`` has weights of
        ``float32``. For these, the model is changed in place and returned. ``"int8"`` is for inference: linear layers
        and convolutions in the model are replaced by ones with integer weights, and linear layers round their inputs,
        each row by a scale of its own, and multiply integers. A model that is such a layer itself is not changed; use
        what is returned.

        Inputs must be moved to the device too. Create the optimiser afterwards: the state that one has from earlier
        steps does not move with the model. If the model does not fit on the device, it stays where it is, as it was,
        with a ``FallbackWarning`` and an entry in the report.
        """
        _checked(precision)
        device, reason = self._device("optimize_model", self._model_device(model))
        done = self._optimized(model, _PRECISIONS[precision], device, reason)
        return quantized(model) if done and precision == "int8" else model
