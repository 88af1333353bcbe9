"""DirectML: graphics processors of every vendor on Windows."""

from __future__ import annotations

import re
import warnings
from typing import Any

from .._engine import Device, dtype
from ..nn import Module
from ._backend import FallbackWarning, _calls_above
from ._operations import HardwareBackend

__all__ = ["DirectMLBackend", "FallbackWarning", "is_directml_available"]

#: How a model computes in each precision: see ``Module.computation_dtype``.
_PRECISIONS: dict[str, tuple[str, str] | None] = {
    "float32": None,
    "float16": ("inputs", "float16"),
    "mixed": ("autocast", "float16"),
}
_PRECISIONS |= {"fp32": _PRECISIONS["float32"], "fp16": _PRECISIONS["float16"]}

_VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x1414: "Microsoft", 0x5143: "Qualcomm", 0x8086: "Intel"}

#: The properties of a device: the words in which it reports them, and what the text between them means.
_PROPERTIES: dict[str, tuple[str, Any]] = {
    "vendor_id": (r"vendor (0x[0-9a-f]+)", lambda text: int(text, 16)),
    "device_id": (r"device (0x[0-9a-f]+)", lambda text: int(text, 16)),
    "dedicated_memory": (r"(\d+) MiB dedicated", lambda text: int(text) << 20),
    "shared_memory": (r"(\d+) MiB shared", lambda text: int(text) << 20),
    "driver_version": (r"driver (.+)", str),
    "feature_level": (r"feature level (.+)", str),
    "shader_model": (r"shader model (.+)", str),
    "directml_feature_level": (r"DirectML (.+)", str),
}


def is_directml_available() -> bool:
    """Whether there is a DirectML device. ``neurenix.hardware.report()`` gives the reason if not."""
    return bool(DirectMLBackend._found())


def _properties(features: list[str]) -> dict[str, Any]:
    """What a device reports of itself, by name."""
    properties: dict[str, Any] = {}
    for name, (pattern, meaning) in _PROPERTIES.items():
        found = next(filter(None, (re.fullmatch(pattern, feature) for feature in features)), None)
        if found is not None:
            properties[name] = meaning(found[1])
    if "vendor_id" in properties:
        properties["vendor"] = _VENDORS.get(properties["vendor_id"], f"{properties['vendor_id']:#06x}")
    return {**properties, "float16": "float16" in features, "software": "software" in features}


class DirectMLBackend(HardwareBackend):
    """Operations through DirectML. What it does not compute, or fails to compute, runs on the CPU, with a warning and an
    entry in the report; everything does if there is no DirectML.

    >>> import warnings
    >>> import neurenix as nx
    >>> directml = DirectMLBackend()
    >>> directml.initialize() == is_directml_available()
    True
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     directml.matmul(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]])).tolist()
    [[19, 22], [43, 50]]
    """

    kind = "directml"
    title = "DirectML"
    missing = "DirectML is not available"

    def _describe(self, device: Device) -> dict[str, Any]:
        told = super()._describe(device)
        return {**told, **_properties(told["features"])}

    def optimize_model(self, model: Any, precision: str | dtype = "float16") -> Module:
        """``model`` on the device, computing in this precision. The model is changed in place and returned.

        ``"float16"`` (or ``"fp16"``, or the dtype) converts the weights, and the inputs of each call. ``"mixed"`` has
        weights of ``float32`` and runs products and convolutions in ``float16``, for training. ``"float32"`` (or
        ``"fp32"``, or the dtype) has weights of ``float32``; digits that ``float16`` rounded away do not come back.
        On a device that does not compute in ``float16`` the model is in ``float32``, with a warning.

        Inputs must be moved to the device too. Create the optimiser afterwards: the state that one has from earlier
        steps does not move with the model. If the model does not fit on the device, it stays where it is, as it was,
        with a ``FallbackWarning`` and an entry in the report.
        """
        if isinstance(precision, dtype):
            precision = precision.name
        if not isinstance(precision, str):
            raise TypeError(f"optimize_model: precision must be a string or a dtype, got {type(precision).__name__}")
        if precision not in _PRECISIONS:
            known = ", ".join(map(repr, _PRECISIONS))
            raise ValueError(f"optimize_model: precision is {precision!r}, it must be one of {known}")
        device, reason = self._device("optimize_model", self._model_device(model))
        way = _PRECISIONS[precision]
        if device.type == self.kind and way is not None and not self._describe(device)["float16"]:
            message = f"optimize_model: {device.name} does not compute in float16: the model is in float32"
            warnings.warn(message, UserWarning, stacklevel=_calls_above())
            way = None
        self._optimized(model, way, device, reason)
        return model
