"""Neural processing units of phones, laptops and servers."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

from .. import _engine, quantize as quantization
from .._creation import iinfo
from .._engine import Tensor
from ..nn import Module
from ..onnx import OnnxModel, file_of
from ..quantize import QuantizedModel
from ..quantize._settings import format_name as _format_name
from ._backend import _calls_above, check_operands
from ._deployed import OptimizedModel, folders, loaded, of_quantized, sample_of
from ._operations import HardwareBackend

_FORMATS = {"int8": ("uint8", "int8"), "int16": ("uint16", "int8")}

#: The runtimes that read TFLite files, whose 16-bit activations are signed and symmetric.
_SYMMETRIC_RUNTIMES = ("LiteRT", "Arm NN")
_PRECISIONS = (*_FORMATS, "float16", "bfloat16")

#: What each goal changes of the defaults of ``neurenix.quantize.static``.
_GOALS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "performance": {"per_channel": False},
    "accuracy": {"calibrator": "mse", "equalize": True, "bias_correction": True, "adaptive_rounding": True},
    "power": {},
    "size": {"weights": "int4"},
}

#: The most operations that stay compiled; the one that was used least recently goes.
_OPERATIONS = 16


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

    def _device(self, operation: str, beside: _engine.Device) -> tuple[_engine.Device, str | None]:
        """Without a unit, and for operations that are no network."""
        if self.get_device_count() == 0:
            return super()._device(operation, beside)
        return self._on_cpu(operation, "it changes its operands, and a unit only computes results")

    def _unit(self, operation: str, strict: bool) -> tuple[Any, str | None]:
        """The unit, or ``None`` and the reason, which is recorded; ``strict`` makes it an error."""
        if self.get_device_count() > 0:
            return self._devices[0], None
        if strict:
            raise RuntimeError(f"{operation}: strict mode excludes the CPU, and {self._reason()}")
        self._record(operation, "cpu", self._reason())
        return None, self._reason()

    def _place(self, operation: str, nodes: list[dict[str, Any]]) -> None:
        """Records where the nodes of a compiled network are."""
        reasons = [f"{node['operator']}: {node['reason']}" for node in nodes if node["device"] == "cpu"]
        if reasons:
            self._record(operation, "cpu", "; ".join(dict.fromkeys(reasons)))
        for device in dict.fromkeys(node["device"] for node in nodes if node["device"] != "cpu"):
            self._record(operation, device, None)

    def _placing(self, operation: str) -> Callable[[list[dict[str, Any]]], None]:
        return lambda nodes: self._place(operation, nodes)

    def _settings(self, low_power: bool = False, strict: bool = False) -> dict[str, Any]:
        return {
            "strict": strict,
            "low_power": low_power,
            "memory_limit": self._memory_limit,
            "save_memory": self._memory_optimization,
            "cache": _engine.npu_cache_folder(),
        }

    def _computed(
        self, operation: str, function: Callable[..., Tensor], *operands: Tensor | None, attributes: tuple[Any, ...] = ()
    ) -> Tensor:
        if self.get_device_count() == 0:
            return super()._computed(operation, function, *operands)
        check_operands(operation, operands)
        given = [operand for operand in operands if operand is not None]
        if not all(operand.dtype.is_floating_point for operand in given):
            # A unit computes with floats of 16 bits.
            device, reason = self._on_cpu(operation, "a unit would round or clip these integers; give floats")
            result = function(*(None if operand is None else operand.to(device) for operand in operands))
            self._record(operation, device.name, reason)
            return result
        places = [operand is not None for operand in operands]
        key = (operation, str(attributes), tuple(places), tuple((tuple(o.shape), o.dtype.name) for o in given))
        program = self._programs.pop(key, None)
        if program is None:

            def network(*inputs: Tensor) -> Tensor:
                remaining = iter(inputs)
                return function(*(next(remaining) if there else None for there in places))

            module = _Function(network)
            file = file_of(module, tuple(given))
            unit: Any = self._devices[0]
            program = OptimizedModel(module, file, None, unit, None, self._settings(), [])
        result = program(*given)
        if len(self._programs) == _OPERATIONS:
            del self._programs[next(iter(self._programs))]
        self._programs[key] = program
        self._place(operation, program.placement_report())
        return result

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices, or batches of matrices. Integers are multiplied on the unit if its 16-bit floats
        and the result's dtype hold every sum exactly, otherwise on the CPU, where sums wrap.
        """
        tensors = isinstance(a, Tensor) and isinstance(b, Tensor)
        if self.get_device_count() and tensors and a.dtype == b.dtype and _fits(a, b):
            return super().matmul(a.float(), b.float()).to(a.dtype)
        return super().matmul(a, b)

    def batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalises over the batch. Training, which moves the running statistics, is the CPU's work."""
        if training or self.get_device_count() == 0:
            return super().batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

        def normalize(
            x: Tensor, mean: Tensor | None, variance: Tensor | None, w: Tensor | None, b: Tensor | None
        ) -> Tensor:
            return _engine.batch_norm(x, mean, variance, w, b, False, momentum, eps)

        operands = (input, running_mean, running_var, weight, bias)
        return self._computed("batch_norm", normalize, *operands, attributes=(eps,))

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
        activations follow. Without it only the weights are integers, of 8 or 16 bits, and layers compute with floats;
        with ``dynamic``, the ranges are found while the network runs. NPUs compute neither with integers: a warning says
        so. ``quantize=False`` keeps the model's own numbers, as it always is for a network that is quantized already.

        ``optimize_for``:

        - ``"balanced"``: a scale for each output channel of a weight;
        - ``"performance"``: one scale for a whole weight, which needs fewer operations; weights without calibration
          data are those of ``"balanced"``;
        - ``"accuracy"``: ranges with the least squared error, equalized layers, corrected biases, learned rounding;
          needs calibration data;
        - ``"power"``: as balanced, and the runtime is told to save power;
        - ``"size"``: weights of 4 bits.

        ``strict`` makes it an error if a part of the network does not run on the device, or there is none. ``options``
        are other arguments of ``neurenix.quantize.static``. Raises ``ValueError`` for arguments that would have no
        effect.
        """
        if precision not in _PRECISIONS:
            known = ", ".join(map(repr, _PRECISIONS))
            raise ValueError(f"optimize_model: precision is {precision!r}, it must be one of {known}")
        if optimize_for not in _GOALS:
            known = ", ".join(map(repr, _GOALS))
            raise ValueError(f"optimize_model: optimize_for is {optimize_for!r}, it must be one of {known}")
        if not isinstance(model, (Module, str, os.PathLike)):
            raise TypeError(f"optimize_model: expected neurenix.nn.Module or a path, got {type(model).__name__}")
        options |= {name: _format_name(name, options[name]) for name in ("activations", "weights") if name in options}
        _check(model, quantize, precision, optimize_for, calibration_data is not None, dynamic, options)
        if quantize and isinstance(model, OnnxModel) and model._native.is_quantized:
            asked = [f"precision={precision!r}"] if precision != "int8" else []
            asked += [f"optimize_for={optimize_for!r}"] if optimize_for not in ("balanced", "power") else []
            asked += ["calibration_data"] if calibration_data is not None else []
            asked += [*(["dynamic"] if dynamic else []), *options]
            if asked:
                raise ValueError(
                    f"optimize_model: {', '.join(asked)} would quantize a network again that is quantized already: "
                    "give the float network, or quantize=False, which keeps its numbers"
                )
            quantize = False
        unit, reason = self._unit("optimize_model", strict)
        settings = self._settings(low_power=optimize_for == "power", strict=strict)
        place = self._placing("optimize_model")

        def samples(of: Any) -> list[Any]:
            return [] if calibration_data is None else quantization._samples(of, calibration_data)

        if not quantize or precision not in _FORMATS:
            if isinstance(model, (str, os.PathLike)):
                return loaded(model, unit, reason, settings, samples, place)
            copy = model.clone().eval()
            if quantize:
                copy.to(precision)
            if isinstance(copy, QuantizedModel):
                return of_quantized(copy, samples(copy), unit, reason, settings, place)
            return OptimizedModel(copy, None, None, unit, reason, settings, samples(copy), place)
        activations, weights = _FORMATS[precision]
        chosen: dict[str, Any] = {"activations": activations, "weights": weights}
        if precision == "int16" and unit is not None and unit.properties()["runtime"].startswith(_SYMMETRIC_RUNTIMES):
            chosen |= {"activations": "int16", "symmetric": True}
        chosen |= {**_GOALS[optimize_for], **options}
        if calibration_data is not None:
            # Data may be a generator: it is read once.
            opened = quantization._opened(model)
            batches = samples(opened)
            quantized = quantization.static(opened, batches, **chosen)
            return of_quantized(quantized, batches, unit, reason, settings, place)
        if unit is not None or optimize_for == "performance":
            message = (
                "optimize_model: without calibration_data, batches of typical inputs, an NPU cannot compute with integers, "
                'and "performance" is the same as "balanced"'
            )
            warnings.warn(message, UserWarning, stacklevel=_calls_above())
        own: dict[str, Any]
        if dynamic:
            own = {name: chosen[name] for name in ("per_channel", "excluded") if name in chosen}
        else:
            bits = 16 if precision == "int16" else {"int4": 4, "int8": 8}[chosen["weights"]]
            own = {"bits": bits, "group": 32 if bits == 4 else None, "excluded": chosen.get("excluded", ())}
        quantizer = quantization.dynamic if dynamic else quantization.weights
        if not isinstance(model, Module):
            return of_quantized(quantizer(model, **own), [], unit, reason, settings, place)
        return _Pending(model.clone().eval(), quantizer, own, unit, reason, settings, place)

    def load(self, path: str | os.PathLike[str], strict: bool = False) -> OptimizedModel:
        """A network that ``OptimizedModel.save`` wrote, or any ONNX file, for the device."""
        unit, reason = self._unit("load", strict)
        return loaded(path, unit, reason, self._settings(strict=strict), lambda _: [], self._placing("load"))

    def set_memory_limit(self, limit: int) -> None:
        """Limits the memory of networks that are compiled from now on to this number of bytes: a network that needs
        more is an error. Without a device, it is only recorded.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0:
            raise ValueError(f"set_memory_limit: limit is {limit!r}, it must be a positive number of bytes")
        self._memory_limit = limit
        self._programs.clear()

    def enable_memory_optimization(self, enabled: bool = True) -> None:
        """Prefers little memory to speed for networks that are compiled from now on. Without a device, it is only
        recorded. ``OptimizedModel.memory`` shows the effect.
        """
        self._memory_optimization = bool(enabled)
        self._programs.clear()


def _fits(a: Tensor, b: Tensor) -> bool:
    """Whether ``float16``, which has all integers up to 2048, and the result's dtype hold all sums of the product."""
    if a.dtype.is_floating_point or a.dtype == _engine.dtype("bool") or not (a.numel() and b.numel() and a.ndim):
        return False
    largest = [max(abs(int(x.min().item())), abs(int(x.max().item()))) for x in (a, b)]
    return largest[0] * largest[1] * a.shape[-1] <= min(2048, iinfo(a.dtype).max)


class _Function(Module):
    """A function as a network."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(*inputs)


def _check(
    model: Any, quantize: bool, precision: str, optimize_for: str, calibrated: bool, dynamic: bool, options: dict[str, Any]
) -> None:
    """Refuses unknown options, and arguments of ``optimize_model`` that would have no effect."""
    try:
        inspect.signature(quantization.static).bind(None, None, **options)
    except TypeError as error:
        raise TypeError(f"optimize_model: {error}") from None
    goal = f"optimize_for={optimize_for!r}"
    useless: list[str] = []
    if not quantize or precision not in _FORMATS:
        where = "with quantize=False" if not quantize else f"with precision={precision!r}"
        useless += [f"precision={precision!r}"] if not quantize and precision != "int8" else []
        useless += [goal] if optimize_for not in ("balanced", "power") else []
        useless += [*(["dynamic"] if dynamic else []), *options]
        if quantize and not isinstance(model, Module):
            where, useless = "on a file, which keeps its own numbers", [f"precision={precision!r}"]
    elif calibrated:
        where, useless = "with calibration_data", ["dynamic"] if dynamic else []
    else:
        where = "without calibration_data"
        own = {"excluded", "per_channel" if dynamic else "weights" if precision == "int8" else "excluded"}
        useless += [f"{name}={value!r}" for name, value in options.items() if name not in own]
        useless += [goal] if optimize_for == "accuracy" else []
        if dynamic or precision == "int16":
            useless += [goal] if optimize_for == "size" else []
            where += " and with dynamic=True" if dynamic else f" and with precision={precision!r}"
        useless += [f"precision={precision!r}"] if dynamic and precision == "int16" else []
        weights = options.get("weights", "int8")
        useless += [f"weights={weights!r}"] if "weights" in own and weights not in ("int4", "int8") else []
    if useless:
        raise ValueError(f"optimize_model: {', '.join(useless)} would have no effect {where}")


class _Pending(OptimizedModel):
    """A network that is quantized when its first inputs show their shapes: without calibration data."""

    def __init__(
        self,
        model: Module,
        quantizer: Callable[..., quantization.QuantizedModel],
        options: dict[str, Any],
        device: Any,
        reason: str | None,
        settings: dict[str, Any],
        compiled: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        super().__init__(model, None, None, device, reason, settings, [], compiled)
        self._quantizer = quantizer
        self._options = options

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if self._file is None and (inputs or named):
            quantized = self._quantizer(self._network[0], sample_of(self._network[0], inputs, named), **self._options)
            self._network, self._file, self._report = [quantized], quantized._file, quantized.quantization_report()
        return super().forward(*inputs, **named)

    def _described(self) -> str:
        # `dynamic` or `weights`.
        kind = f" to be quantized ({self._quantizer.__name__}) at the first call" if self._file is None else ""
        return super()._described() + kind
