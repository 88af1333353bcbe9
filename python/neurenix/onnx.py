"""ONNX files as networks, and networks as ONNX files.

``load`` reads a file. The network is a ``Module``: call it with tensors or arrays, train it, move it to a device.
``run`` takes and returns NumPy arrays by name. ``export`` writes a file.
"""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, overload

import numpy as np

from . import _engine
from ._autograd import no_grad
from ._creation import from_numpy
from ._custom import CustomKernel
from ._engine import Tensor
from ._sizes import Recorded, sized, symbols_of
from .nn.module import Module
from .nn.parameter import Parameter

__all__ = ["OnnxModel", "Port", "export", "load", "loads"]


class Port(NamedTuple):
    """An input or output of a network."""

    name: str
    dtype: str | None
    """The name of the element type, such as ``"float"`` or ``"int64"``; ``None`` for sequences and optionals."""
    shape: tuple[int | str | None, ...] | None
    """Extents: numbers, names of sizes that vary, expressions of names such as ``"4*batch"``, or ``None`` where the
    file does not say. Those of outputs that the file does not state are inferred, as far as that is possible.
    """


class OnnxModel(Module):
    """A network from an ONNX file.

    The file's tensors of floats are its state, under their names in the file: parameters, except for scalars, constants
    of nodes and the statistics of batch normalisations, which are buffers. A normalisation uses its stored statistics.
    """

    def __init__(self, native: _engine.Onnx) -> None:
        super().__init__()
        self._native = native
        self.inputs = [Port(name, dtype, None if shape is None else tuple(shape)) for name, dtype, shape in native.inputs()]
        self.outputs = [Port(name, dtype, None if shape is None else tuple(shape)) for name, dtype, shape in native.outputs()]
        self._places: dict[str, tuple[Module, str]] = {}
        for name, tensor, trainable in native.parameters():
            self._places[name] = self._register(name, Parameter(tensor) if trainable else tensor)

    def _register(self, name: str, tensor: Tensor) -> tuple[Module, str]:
        """Adds a tensor; the dots of its name lead through submodules. Returns its module and its name there."""
        *path, last = name.split(".")
        module: Module = self
        try:
            for part in path:
                inner = module._modules.get(part)
                if inner is None:
                    inner = Module()
                    module.register_module(part, inner)
                module = inner
            if last in module._parameters or last in module._buffers:
                raise KeyError(last)
            return module, _added(module, last, tensor)
        except KeyError:
            # A name that a module cannot have: an empty part, or one that has another meaning.
            own = "tensor_" + name.replace(".", "_")
            while hasattr(self, own):
                own += "_"
            return self, _added(self, own, tensor)

    @property
    def _file(self) -> _engine.OnnxFile | None:
        """The file with the tensors as they are now; ``None`` for a float network that was loaded, of which nothing
        keeps the file.
        """
        state = [(name, getattr(module, own).detach()) for name, (module, own) in self._places.items()]
        return self._native.file(state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs from inputs in the order of ``inputs``, or by name: a tensor if there is one output,
        otherwise a tuple.
        """
        if len(args) == 1 and isinstance(args[0], Mapping):
            raise TypeError("give inputs by name as keywords, model(**inputs), or call run(inputs)")
        if len(args) > len(self.inputs):
            raise TypeError(f"expected at most {len(self.inputs)} inputs, got {len(args)}")
        given = {port.name: value for port, value in zip(self.inputs, args)}
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"the input {name!r} is given twice")
            given[name] = value
        results = self._computed_by_name(given)
        return results[0] if len(results) == 1 else tuple(results)

    @overload
    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]: ...

    @overload
    def run(self, inputs: Sequence[str] | None, outputs: Mapping[str, Any]) -> list[Any]: ...

    def run(self, inputs: Any, outputs: Any = None) -> dict[str, Any] | list[Any]:
        """Computes outputs as NumPy arrays by name; sequences become lists. ``outputs`` names those that are wanted.

        ``run(names, inputs)``, as in ONNX Runtime, returns a list in the order of ``names``, or all outputs for ``None``.
        ``bfloat16`` and 8-bit floats, which NumPy lacks, become ``float32``.
        """
        listed = isinstance(outputs, Mapping)
        given, wanted = (outputs, inputs or None) if listed else (inputs, outputs)
        if not isinstance(given, Mapping):
            raise TypeError(f"run: expected inputs by name, a dictionary, got {type(given).__name__}")
        names = [port.name for port in self.outputs]
        if isinstance(wanted, (str, Mapping)):
            raise TypeError(f"run: expected a list of names of outputs, got {type(wanted).__name__}")
        for name in wanted or ():
            if name not in names:
                raise ValueError(f"there is no output {name!r}; there are {', '.join(names)}")
        with no_grad():
            found = dict(zip(names, self._computed_by_name(given)))
            arrays = {name: _as_array(found[name]) for name in (names if wanted is None else wanted)}
        return [arrays[name] for name in (names if wanted is None else wanted)] if listed else arrays

    def extra_repr(self) -> str:
        """The inputs and outputs, such as ``x: float (batch, 4) -> y: float (batch, 3)``."""
        return " -> ".join(", ".join(map(_described, ports)) for ports in (self.inputs, self.outputs))

    def __repr__(self) -> str:
        # The modules below only hold tensors.
        return f"{self._get_name()}({self.extra_repr()})"

    def _computed_by_name(self, given: Mapping[str, Any]) -> list[Any]:
        if self._native.is_quantized and _recording.get():
            raise NotImplementedError(
                "export: the model calls a quantized network, whose integers a recording would lose: export the "
                "quantized network alone"
            )
        native = self._on_device()
        state = {name: getattr(module, own) for name, (module, own) in self._places.items()}
        known = {port.name: port for port in self.inputs}
        values = {name: _as_value(value, known.get(name)) for name, value in given.items()}
        return [_as_tensor(value) for value in native.run({**state, **values})]

    def _on_device(self) -> _engine.Onnx:
        """The network where its state is."""
        for module, name in self._places.values():
            device = getattr(module, name).device
            if device != self._native.device:
                self._native = self._native.to_device(device)
            break
        return self._native


_NUMPY = {
    "float": "float32",
    "double": "float64",
    "bfloat16": "float32",
    **{f"float8e{kind}": "float32" for kind in ("4m3fn", "4m3fnuz", "5m2", "5m2fnuz", "8m0")},
    "float4e2m1": "float32",
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
    "string": "str",
}
"""The types in which Python numbers are given for inputs whose type NumPy calls otherwise or lacks."""

_STORED = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float32",
    "float8_e5m2fnuz": "float32",
    "float8_e8m0fnu": "float32",
    "float4_e2m1fn": "float32",
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
}
"""The types of the package ``ml_dtypes``, and those of tensors that hold their values."""


def _described(port: Port) -> str:
    extents = None if port.shape is None else ", ".join("?" if extent is None else str(extent) for extent in port.shape)
    return f"{port.name}: {port.dtype or 'sequence or optional'}" + ("" if extents is None else f" ({extents})")


def _added(module: Module, name: str, tensor: Tensor) -> str:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)
    return name


def _as_value(value: Any, port: Port | None) -> Any:
    """A value as the native network takes it: a tensor, a list, ``None``, or a shape with strings."""
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)) and port is not None and port.dtype is None:
        return [_as_value(part, port) for part in value]
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return array.shape, [part.decode() if isinstance(part, bytes) else str(part) for part in array.ravel()]
    if array.dtype.name in _STORED:
        return from_numpy(array.astype(np.float32)).to(_engine.dtype(_STORED[array.dtype.name]))
    if not isinstance(value, np.ndarray) and port is not None and port.dtype is not None:
        # Python numbers take the input's type.
        array = array.astype(_NUMPY.get(port.dtype, port.dtype))
    return from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def _as_tensor(value: Any) -> Any:
    """A result for users: strings become an array."""
    if isinstance(value, tuple):
        shape, strings = value
        return np.array(strings, dtype=object).reshape(shape)
    if isinstance(value, list):
        return [_as_tensor(part) for part in value]
    return value


def _as_array(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_array(part) for part in value]
    if not isinstance(value, Tensor):
        return value
    lacking = (_engine.dtype("bfloat16"), _engine.dtype("float8_e4m3fn"), _engine.dtype("float8_e5m2"))
    return (value.float() if value.dtype in lacking else value).cpu().numpy()


def load(path: str | os.PathLike[str], device: Any = None) -> OnnxModel:
    """Reads an ONNX file, with the tensors that it keeps in other files of its folder.

    Raises ``ValueError`` if it is not a valid file, and ``NotImplementedError``, which names every operator and type
    that is not supported.
    """
    return OnnxModel(_engine.Onnx.load(os.fspath(path), device))


def loads(data: bytes, device: Any = None) -> OnnxModel:
    """Reads the bytes of an ONNX file."""
    if isinstance(data, str):
        raise TypeError("loads: expected the bytes of a file; load() takes a path")
    return OnnxModel(_engine.Onnx.parse(bytes(data), device))


def export(
    model: Callable[..., Any],
    inputs: Any,
    path: str | os.PathLike[str],
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    *,
    opset_version: int | None = None,
) -> None:
    """Writes a network as an ONNX file of an opset from 13 to 28, by default 21; ``opset_version`` is PyTorch's name of
    ``opset``.

    ``inputs`` is an example: a tensor, a tuple of tensors, or a dictionary of arguments by name. The model is called, a
    module in evaluation mode, and the operations that it records are written. ``dynamic_axes`` names axes of inputs
    whose sizes vary, by input name, as ``{"x": {0: "batch"}}``; the model is then called with several sizes: the
    example's and multiples of them or, where it refuses those, smaller ones. Input names default to those of
    ``forward``'s arguments, output names to ``output`` or ``output_0`` and so on.

    Before anything is written, the file's numbers are compared with the model's, for the example and, if axes vary, for
    sizes that were not recorded. The file is then written whole or not at all. Tensors of more than 1.5 GB in total go
    to a second file beside it.

    A quantized network keeps the operators, the opset and the names of its own file, with the numbers that its
    parameters have now. Arguments that ask for others raise ``ValueError``.

    Raises ``NotImplementedError``, which names every operation that ONNX or the opset lacks, and ``ValueError`` if the
    model decides by a value of its input or depends on a size in a way that cannot be written.
    """
    opset = opset if opset_version is None else opset_version
    file_of(model, inputs, dynamic_axes, input_names, output_names, opset).save(os.fspath(path))


def file_of(
    model: Callable[..., Any],
    inputs: Any,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
) -> _engine.OnnxFile:
    """The file that ``export`` writes, in memory."""
    opset = None if opset is None else bounded("export: opset", opset)
    own = quantized_file(model)
    if own is not None:
        assert isinstance(model, OnnxModel)
        _check_own(model, own, dynamic_axes or {}, input_names, output_names, opset)
        return own
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    args = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    examples = [*args, *keywords.values()]
    for example in examples:
        if not isinstance(example, Tensor):
            raise TypeError(f"export: the example inputs must be tensors, got {type(example).__name__}")
    names = _input_names(model, len(args), list(keywords), input_names)
    symbols = symbols_of(names, examples, dynamic_axes or {}, output_names)
    modes = [(module, module.training) for module in model.modules()] if isinstance(model, Module) else []

    def call(given: list[Tensor]) -> tuple[list[str], list[Tensor]]:
        return _outputs(model(*given[: len(args)], **dict(zip(keywords, given[len(args) :]))), output_names)

    def record(given: list[Tensor]) -> Recorded:
        unknown = [_unknown(example) for example in given]
        token = _recording.set(True)
        try:
            found, outputs = call(unknown)
        finally:
            _recording.reset(token)
        taken = {*names, *found}
        state = model.state_dict(keep_vars=True) if isinstance(model, Module) else {}
        weights = [(n, value) for n, value in state.items() if isinstance(value, Tensor) and n not in taken]
        return list(zip(names, unknown)), list(zip(found, outputs)), weights

    if isinstance(model, Module):
        model.eval()
    try:
        first, second, third = sized(examples, symbols, record)
        file = _engine.export_onnx(first, symbols, second, 21 if opset is None else opset)
        network = file.network(examples[0].device if examples else None)
        for given in [examples, third] if symbols else [examples]:
            with no_grad():
                expected = call(given)[1]
                got = network.run(dict(zip(names, given)))
            _compare(given, expected, got)
    finally:
        for module, training in modes:
            module.training = training
    return file


_recording: ContextVar[bool] = ContextVar("recording", default=False)
"""Whether ``export`` records a model."""


def bounded(name: str, number: Any) -> int:
    """An integer that an argument gives, of at most 64 bits."""
    integer = operator.index(number)
    if not -(2**63) <= integer < 2**63:
        raise ValueError(f"{name} is {integer}, which is too large")
    return integer


def quantized_file(model: Any) -> _engine.OnnxFile | None:
    """The own file of a quantized network, whose operators a recording would not show."""
    return model._file if isinstance(model, OnnxModel) and model._native.is_quantized else None


def _check_own(
    model: OnnxModel,
    file: _engine.OnnxFile,
    axes: Mapping[str, Any],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    opset: int | None,
) -> None:
    """Refuses arguments that a quantized network's own file does not follow."""
    own = "export: a quantized network keeps its own file, which has"
    if opset not in (None, file.opset):
        raise ValueError(f"{own} opset {file.opset}, not {opset}")
    for kind, names, ports in (("inputs", input_names, model.inputs), ("outputs", output_names, model.outputs)):
        known = [port.name for port in ports]
        if names is not None and list(names) != known:
            raise ValueError(f"{own} the {kind} {', '.join(known)}, not {', '.join(names)}")
    by_name = {port.name: port for port in (*model.outputs, *model.inputs)}
    for name, varying in axes.items():
        if name not in by_name:
            raise ValueError(f"{own} the inputs {', '.join(port.name for port in model.inputs)}, not {name}")
        shape = by_name[name].shape
        for axis in varying:
            if shape is not None and not -len(shape) <= axis < len(shape):
                raise IndexError(f"export: dynamic_axes has axis {axis} of {name!r}, which has {len(shape)} dimensions")
            size = None if shape is None else shape[axis]
            symbol = varying[axis] if isinstance(varying, Mapping) else size
            if isinstance(size, int) or (size is not None and size != symbol):
                raise ValueError(f"{own} the size {size} on axis {axis} of {name!r}: dynamic_axes cannot change it")


def _unknown(example: Tensor) -> Tensor:
    """A tensor of ``example``'s shape and dtype. Reading its values raises ``ValueError``."""
    kernel = CustomKernel(
        "input", inputs=[("x", example.dtype, "shape..")], outputs=[("y", example.dtype, "shape..")], cpu=_refuse
    )
    unknown = kernel(example.detach())
    assert isinstance(unknown, Tensor)
    return unknown


def _refuse(*_: Any) -> Any:
    raise ValueError(
        "export: the model reads a value that depends on its input, as `if`, item() and nonzero() do: "
        "such a decision cannot be written"
    )


def _outputs(results: Any, names: Sequence[str] | None) -> tuple[list[str], list[Tensor]]:
    """The names and tensors of a model's results."""
    outputs = list(results.values()) if isinstance(results, Mapping) else results
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    for output in outputs:
        if not isinstance(output, Tensor):
            kind = type(output).__name__
            raise TypeError(f"export: the model must return a tensor, or a flat tuple or dictionary of tensors, got {kind}")
    if names is None:
        several = [f"output_{place}" for place in range(len(outputs))]
        names = list(results) if isinstance(results, Mapping) else several if len(outputs) > 1 else ["output"]
    if len(names) != len(outputs):
        raise ValueError(f"export: {len(names)} output names for {len(outputs)} outputs")
    return list(names), outputs


def _input_names(
    model: Callable[..., Any], positional: int, keywords: list[str], given: Sequence[str] | None
) -> list[str]:
    if given is not None:
        if isinstance(given, str) or len(given) != positional + len(keywords):
            raise ValueError(f"export: {len(given)} input names for {positional + len(keywords)} inputs")
        return list(given)
    if isinstance(model, OnnxModel):
        return [port.name for port in model.inputs][:positional] + keywords
    function = model.forward if isinstance(model, Module) else model
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds]
    own = known[:positional] if len(known) >= positional else [f"input_{place}" for place in range(positional)]
    return [*own, *keywords]


_TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
"""How much numbers of a file may differ, relative to the greatest of them; those of narrower floats by 3e-2."""


def _compare(given: list[Tensor], expected: list[Tensor], got: list[Any]) -> None:
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in given)
    for place, (wanted, own) in enumerate(zip(expected, got)):
        a, b = (np.asarray(_as_array(tensor.detach()), dtype=np.float64) for tensor in (wanted, own))
        # Sums in another order, and of 16 bits rounded in other places.
        tolerance = _TOLERANCES.get(wanted.dtype.name, 3e-2 if wanted.dtype.is_floating_point else 0.0)
        finite = np.abs(b[np.isfinite(b)])
        greatest = float(finite.max()) if finite.size else 0.0
        if a.shape != b.shape or wanted.dtype != own.dtype or not np.allclose(a, b, tolerance, tolerance * greatest, equal_nan=True):
            what = f"shape {tuple(b.shape)} instead of {tuple(a.shape)}" if a.shape != b.shape else "other numbers"
            raise ValueError(
                f"export: for inputs of shape {shapes}, output {place} of the file has {what}: the model depends on a "
                "size, or on something that changes from call to call, in a way that cannot be written"
            )
