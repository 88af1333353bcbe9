"""Neural processing units of phones, laptops and servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import _engine, quantize as quantization
from .._engine import Tensor
from ..nn import Module
from ._backend import HardwareBackend
from ._deployed import OptimizedModel, cache_folder, folders, loaded, of_quantized

_FORMATS = {"int8": ("uint8", "int8"), "int16": ("uint16", "int8")}
_PRECISIONS = (*_FORMATS, "float16", "bfloat16")

#: What each goal changes of the defaults of ``neurenix.quantize.static``.
_GOALS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "performance": {"per_channel": False},
    "accuracy": {"calibrator": "mse", "equalize": True, "bias_correction": True, "adaptive_rounding": True},
    "power": {},
    "size": {"weights": "int4"},
}


def is_npu_available() -> bool:
    """Whether there is a neural processing unit that this release supports. ``neurenix.hardware.report()`` gives the
    reason if not."""
    return bool(NPUBackend._found())


class NPUBackend(HardwareBackend):
    """Operations and networks on a neural processing unit. Without one they run on the CPU, with a warning.

    The units are those of the installed runtimes (docs/npu.md): packages of the running interpreter, folders in
    ``RNN_NPU_PATH``, and the system's libraries. Emulators count only if ``RNN_NPU_EMULATORS`` is 1.
    """

    kind = "npu"
    title = "NPUs"
    missing = "No NPU is available"

    def __init__(self) -> None:
        super().__init__()
        self._memory_limit: int | None = None
        self._memory_optimization = False
        self._programs: dict[Any, OptimizedModel] = {}

    @classmethod
    def _found(cls) -> list[Any]:
        return [device for device in _engine.npu_devices(folders()) if device.name.startswith("npu:")]

    @classmethod
    def _reason(cls) -> str:
        others = [unit.name for unit in _engine.npu_devices(folders())]
        if others:
            return f"there are only emulators and the host's CPU ({', '.join(others)}): RNN_NPU_EMULATORS=1 lets them count"
        return "no runtime of an NPU was found: neurenix.hardware.report() says what each needs"

    def _describe(self, device: Any) -> dict[str, Any]:
        return {"type": "NPU", **device.properties()}

    def _unit(self, operation: str) -> tuple[Any, str | None]:
        """The unit, or ``None`` and the reason. Records it."""
        device = self._device(operation, _engine.Device("cpu"))
        return (device, None) if isinstance(device, _engine.NpuDevice) else (None, self._reason())

    def _settings(self, low_power: bool = False, strict: bool = False) -> dict[str, Any]:
        return {
            "strict": strict,
            "low_power": low_power,
            "memory_limit": self._memory_limit,
            "save_memory": self._memory_optimization,
            "cache": cache_folder(),
        }

    def _computed(
        self, operation: str, function: Callable[..., Tensor], *operands: Tensor | None, attributes: tuple[Any, ...] = ()
    ) -> Tensor:
        if self.get_device_count() == 0:
            return super()._computed(operation, function, *operands)
        given = [operand for operand in operands if operand is not None]
        for operand in given:
            if not isinstance(operand, Tensor):
                raise TypeError(f"{operation}: expected a tensor, got {type(operand).__name__}; convert it with neurenix.Tensor")
        unit, _ = self._unit(operation)
        places = [operand is not None for operand in operands]
        key = (operation, str(attributes), tuple(places), tuple((tuple(o.shape), o.dtype.name) for o in given))
        if key not in self._programs:

            def network(*inputs: Tensor) -> Tensor:
                remaining = iter(inputs)
                return function(*(next(remaining) if there else None for there in places))

            self._programs[key] = OptimizedModel(
                _Function(network), None, None, unit, None, self._settings(), []
            )
        result = self._programs[key](*given)
        assert isinstance(result, Tensor)
        return result

    def optimize_model(
        self,
        model: Any,
        quantize: bool = True,
        precision: str = "int8",
        optimize_for: str = "balanced",
        calibration_data: Any = None,
        dynamic: bool = False,
        strict: bool = False,
        **options: Any,
    ) -> OptimizedModel:
        """Returns the network for the device; ``model``, a module or the path of an ONNX file, is unchanged.

        ``precision``: ``"int8"`` or ``"int16"`` for activations (weights are ``int8``, as NPUs have it), or
        ``"float16"`` or ``"bfloat16"``. ``calibration_data`` is batches of typical inputs, from which the ranges of
        activations follow. Without it only the weights are integers, of 8 or 16 bits; with ``dynamic``, the ranges are
        found while the network runs. ``quantize=False`` keeps the model's own numbers.

        ``optimize_for``:

        - ``"balanced"``: a scale for each output channel of a weight;
        - ``"performance"``: one scale for a whole weight, which needs fewer operations;
        - ``"accuracy"``: ranges with the least squared error, equalized layers, corrected biases, learned rounding;
        - ``"power"``: as balanced, and the runtime is told to save power;
        - ``"size"``: weights of 4 bits.

        ``strict`` makes it an error if a part of the network does not run on the device. ``options`` are other
        arguments of ``neurenix.quantize.static``.
        """
        if precision not in _PRECISIONS:
            known = ", ".join(map(repr, _PRECISIONS))
            raise ValueError(f"optimize_model: precision is {precision!r}, it must be one of {known}")
        if optimize_for not in _GOALS:
            known = ", ".join(map(repr, _GOALS))
            raise ValueError(f"optimize_model: optimize_for is {optimize_for!r}, it must be one of {known}")
        if not isinstance(model, (Module, str, os.PathLike)):
            raise TypeError(f"optimize_model: expected neurenix.nn.Module or a path, got {type(model).__name__}")
        unit, reason = self._unit("optimize_model")
        settings = self._settings(low_power=optimize_for == "power", strict=strict)
        if not quantize or precision not in _FORMATS:
            if isinstance(model, (str, os.PathLike)):
                return loaded(model, unit, reason, settings)
            copy = model.clone().eval()
            if quantize:
                copy.to(precision)
            return OptimizedModel(copy, None, None, unit, reason, settings, [])
        activations, weights = _FORMATS[precision]
        chosen = {"activations": activations, "weights": weights, **_GOALS[optimize_for], **options}
        if calibration_data is not None:
            samples = quantization._samples(calibration_data)
            quantized = quantization.static(model, calibration_data, **chosen)
            names = quantized._file.inputs()
            named = [sample if isinstance(sample, dict) else dict(zip(names, sample)) for sample in samples]
            return of_quantized(quantized, named, unit, reason, settings)
        bits = {"int4": 4, "int8": 8}[chosen["weights"]] if precision == "int8" else 16
        return _Pending(model, dynamic, bits, unit, reason, settings)

    def load(self, path: str | os.PathLike[str], strict: bool = False) -> OptimizedModel:
        """A network that ``OptimizedModel.save`` wrote, or any ONNX file, for the device."""
        unit, reason = self._unit("load")
        return loaded(path, unit, reason, self._settings(strict=strict))

    def set_memory_limit(self, limit: int) -> None:
        """Limits the memory of networks that are compiled from now on to this number of bytes: a network that needs more
        is an error. Without a device, it is only recorded.
        """
        if not isinstance(limit, int) or limit <= 0:
            raise ValueError(f"set_memory_limit: limit is {limit!r}, it must be a positive number of bytes")
        self._memory_limit = limit

    def enable_memory_optimization(self, enabled: bool = True) -> None:
        """Prefers little memory to speed for networks that are compiled from now on. Without a device, it is only
        recorded. ``OptimizedModel.memory`` shows the effect.
        """
        self._memory_optimization = bool(enabled)


class _Function(Module):
    """A function as a network."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(*inputs)


class _Pending(OptimizedModel):
    """A network that is quantized when its first inputs show their shapes: without calibration data."""

    def __init__(
        self, model: Any, dynamic: bool, bits: int, device: Any, reason: str | None, settings: dict[str, Any]
    ) -> None:
        self._model = [model.clone().eval() if isinstance(model, Module) else model]
        self._dynamic = dynamic
        self._bits = bits
        super().__init__(_Function(self._unknown), None, None, device, reason, settings, [])
        if not isinstance(model, Module):
            self._quantize(None)

    def _unknown(self, *_: Any) -> Tensor:
        raise RuntimeError("the network is quantized at its first call")

    def _quantize(self, example: Any) -> None:
        model = self._model[0]
        if self._dynamic:
            quantized = quantization.dynamic(model, example)
        else:
            quantized = quantization.weights(model, example, bits=self._bits, group=32 if self._bits == 4 else None)
        self._network, self._file, self._report = [quantized], quantized._file, quantized.quantization_report()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if self._file is None:
            self._quantize(dict(named) if named else inputs if len(inputs) > 1 else inputs[0])
        return super().forward(*inputs, **named)
