"""Quantized networks: integers in place of floats.

``static`` quantizes activations and weights, with ranges from a few batches of typical inputs; ``dynamic`` finds the
ranges of activations while the network runs; ``weights`` makes only the weights smaller. ``prepare_training`` and
``finish_training`` train a network with rounding. Each takes a module, an ``OnnxModel``, or the path of an ONNX file,
and gives a ``QuantizedModel``, which runs on the integer kernels of its device, and which ``save`` writes as an ONNX
file that other runtimes take, too.
"""

from __future__ import annotations

import html
import inspect
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _engine
from .._autograd import no_grad
from .._creation import from_numpy
from .._engine import Tensor
from ..nn.module import Module
from ..onnx import OnnxModel, file_of, quantized_file
from . import _settings

__all__ = [
    "QuantizationReport",
    "QuantizedModel",
    "dynamic",
    "finish_training",
    "prepare_training",
    "static",
    "weights",
]


class QuantizationReport:
    """What quantization did to a network; ``print`` shows it as a table, and notebooks show it as a page."""

    def __init__(self, native: _engine.QuantizationReport) -> None:
        self._native = native
        content = json.loads(native.json())
        #: For each quantized node: ``node``, ``operator``, ``activations``, ``weights`` and ``output``, a dictionary of
        #: ``value``, ``sqnr_db`` (``None`` if nothing differs, ``-inf`` if only the float values are zeros)
        #: and ``max_error``.
        self.layers: list[dict[str, Any]] = content["layers"]
        #: The same figures for each output of the network.
        self.outputs: list[dict[str, Any]] = content["outputs"]
        for figures in [*self.outputs, *(layer["output"] for layer in self.layers if layer["output"])]:
            for name in ("sqnr_db", "max_error"):
                # JSON has texts for figures that are not finite.
                figures[name] = None if figures[name] is None else float(figures[name])
        #: Bytes of the stored tensors before and after.
        self.float_bytes: int = content["float_bytes"]
        self.quantized_bytes: int = content["quantized_bytes"]
        #: The accuracy before and after, if it was measured.
        self.accuracy: tuple[float, float] | None = tuple(content["accuracy"]) if content["accuracy"] else None
        #: Nodes that stay float, with the reason.
        self.kept_in_float: dict[str, str] = dict(content["kept_in_float"])

    def html(self, title: str = "Quantization", placement: Sequence[Mapping[str, str]] = ()) -> str:
        """The report as one HTML page, which loads nothing. ``placement`` is that of a placement report."""
        rows = [(row["node"], row["operator"], row["device"], row.get("reason") or "") for row in placement]
        return self._native.html(title, rows)

    def __str__(self) -> str:
        return self._native.table()

    def __repr__(self) -> str:
        parts = [f"{len(self.layers)} nodes quantized", f"{len(self.kept_in_float)} kept float"]
        for output in self.outputs:
            noise = output["sqnr_db"]
            parts.append(f"{output['value']}: " + ("exact" if noise is None else f"{noise:.1f} dB"))
        parts.append(f"{self.float_bytes} bytes before, {self.quantized_bytes} after")
        return f"QuantizationReport({', '.join(parts)})"

    def _repr_html_(self) -> str:
        # In a frame, the page's styles do not change the notebook.
        page = html.escape(self.html())
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40rem; border: 0"></iframe>'


class QuantizedModel(OnnxModel):
    """A quantized network. It is for inference: its weights are integers, and nothing in it has gradients."""

    def __init__(self, file: _engine.OnnxFile, report: _engine.QuantizationReport | None, device: Any = None) -> None:
        super().__init__(file.network(device))
        self._report = None if report is None else QuantizationReport(report)
        self.eval().requires_grad_(False)

    def extra_repr(self) -> str:
        """The kind of quantization, the inputs and the outputs."""
        operators = set() if self._file is None else {operator for _, operator in self._file.nodes()}
        kinds = {"DynamicQuantizeLinear": "dynamic", "QuantizeLinear": "static", "DequantizeLinear": "weights"}
        kind = next((kind for operator, kind in kinds.items() if operator in operators), "nothing quantized")
        return f"{kind}, {super().extra_repr()}"

    def quantization_report(self) -> QuantizationReport | None:
        """What quantization did; ``None`` after ``finish_training``, which does not compare."""
        return self._report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network as an ONNX file, which ``neurenix.onnx.load`` and other runtimes read."""
        file = self._file
        assert file is not None
        file.save(os.fspath(path))


def static(
    model: Any,
    calibration_data: Any,
    *,
    activations: str | _engine.dtype = "uint8",
    weights: str | _engine.dtype = "int8",
    per_channel: bool = True,
    symmetric: bool = False,
    calibrator: str = "minmax",
    percentile: float = 99.99,
    excluded: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    equalize: bool = False,
    smooth: float | None = None,
    bias_correction: bool = False,
    adaptive_rounding: bool | int = False,
    max_drop: float | None = None,
    measure: Callable[[OnnxModel], float] | None = None,
) -> QuantizedModel:
    """Integers for activations and weights.

    ``calibration_data`` is batches of typical inputs: tensors or arrays; tuples of all inputs of the model, which
    labels may follow, as data loaders give them; or dictionaries of inputs by name. A few hundred rows are enough.

    ``activations`` and ``weights`` are formats: ``"uint8"``, ``"int8"``, ``"uint16"``, ``"int16"``, ``"int4"``,
    ``"uint4"``, ``"float8_e4m3"`` or ``"float8_e5m2"``, or a dtype such as ``nx.int8``. ``per_channel`` gives each output
    channel of a weight its own scale. ``calibrator`` finds the range of each activation: ``"minmax"``, ``"percentile"``,
    ``"entropy"`` or ``"mse"``. ``excluded`` names nodes or types of operators that stay float; with ``operators``, only
    operators of these types are quantized.

    ``equalize`` balances the channels of adjacent layers, ``smooth`` (such as 0.5) moves outliers of activations into
    weights, ``bias_correction`` removes the mean error of each layer, and ``adaptive_rounding`` (``True``, or a number
    of steps) learns for each weight whether to round up or down. None of them changes the float network.

    With ``measure``, layers stay float until the accuracy is at most ``max_drop`` below that of the float network.
    ``measure`` gets an ``OnnxModel``, first the float network, then candidates; it returns the accuracy as a number.
    """
    settings = _settings.settings(
        activations, weights, per_channel, symmetric, calibrator, percentile, excluded, operators,
        equalize, smooth, bias_correction, adaptive_rounding,
    )  # fmt: skip
    if (max_drop is None) != (measure is None):
        raise TypeError("static: max_drop and measure belong together")
    if measure is not None and not callable(measure):
        raise TypeError(f"measure: expected a function that returns the accuracy of a network, got {type(measure).__name__}")
    limit = None if max_drop is None else _settings.number("max_drop", max_drop)
    model = _opened(model)
    file, named = _file(model, _samples(model, calibration_data))
    if measure is None or limit is None:
        return QuantizedModel(*_engine.quantize_onnx(file, named, settings), _device(model))

    def accuracy(candidate: _engine.OnnxFile) -> float:
        with no_grad():
            found = _settings.number("the result of measure", measure(OnnxModel(candidate.network(_device(model)))))
        if math.isnan(found):
            raise ValueError("measure returned NaN, it must return the accuracy of a network")
        return found

    return QuantizedModel(*_engine.quantize_onnx_within(file, named, settings, limit, accuracy), _device(model))


def dynamic(model: Any, example: Any = None, *, per_channel: bool = True, excluded: Sequence[str] = ()) -> QuantizedModel:
    """``int8`` weights, and activations that are quantized while the network runs: for linear layers, and when there is
    no calibration data. ``example`` is an input of the model, or a tuple of several; an ONNX file needs none.
    """
    per_channel, excluded = _settings.flag("per_channel", per_channel), _settings.names("excluded", excluded)
    model = _opened(model)
    file = _file_of_example(model, example)
    return QuantizedModel(*_engine.quantize_onnx_dynamically(file, per_channel, excluded), _device(model))


def weights(
    model: Any,
    example: Any = None,
    *,
    bits: int = 4,
    group: int | None = 32,
    symmetric: bool = True,
    excluded: Sequence[str] = (),
) -> QuantizedModel:
    """Weights of 16, 8 or 4 bits with a scale for each ``group`` of adjacent inputs (``None``: one for each output).
    Activations stay float. ``example`` is an input of the model, or a tuple of several; an ONNX file needs none.
    """
    bits = _settings.count("bits", bits)
    group = None if group is None else _settings.count("group", group)
    symmetric, excluded = _settings.flag("symmetric", symmetric), _settings.names("excluded", excluded)
    model = _opened(model)
    file = _file_of_example(model, example)
    quantized = _engine.quantize_onnx_weights(file, bits, group, symmetric, excluded)
    return QuantizedModel(*quantized, _device(model))


def prepare_training(
    model: Any,
    calibration_data: Any,
    *,
    activations: str | _engine.dtype = "uint8",
    weights: str | _engine.dtype = "int8",
    per_channel: bool = True,
    symmetric: bool = False,
    calibrator: str = "minmax",
    percentile: float = 99.99,
    excluded: Sequence[str] = (),
    operators: Sequence[str] | None = None,
    equalize: bool = False,
) -> OnnxModel:
    """A network that rounds weights and activations as its quantized form will, and trains: gradients pass the rounding
    unchanged within the range and are zero outside (Bengio et al. 2013, arXiv 1308.3432). The arguments are those of
    ``static``.
    """
    settings = _settings.settings(
        activations, weights, per_channel, symmetric, calibrator, percentile, excluded, operators,
        equalize, None, False, False,
    )  # fmt: skip
    model = _opened(model)
    file, named = _file(model, _samples(model, calibration_data))
    prepared = _engine.prepare_onnx_training(file, named, settings)
    return _TrainableModel(prepared.network(_device(model)))


class _TrainableModel(OnnxModel):
    """A network from ``prepare_training``."""

    def _get_name(self) -> str:
        return "OnnxModel"

    def extra_repr(self) -> str:
        """The kind, the inputs and the outputs."""
        return f"trained with rounding, {super().extra_repr()}"


def finish_training(model: OnnxModel) -> QuantizedModel:
    """The network from ``prepare_training`` with its trained weights as integers."""
    if not isinstance(model, _TrainableModel):
        raise TypeError(f"finish_training: expected a network from prepare_training, got {type(model).__name__}")
    file = model._file
    assert file is not None
    return QuantizedModel(_engine.finish_onnx_training(file), None, _device(model))


def _opened(model: Any) -> Any:
    """The model, or the file at this path."""
    if isinstance(model, (str, os.PathLike)):
        return _engine.OnnxFile.load(os.fspath(model))
    if not isinstance(model, (_engine.OnnxFile, Module)) and not callable(model):
        raise TypeError(f"expected a module or the path of an ONNX file, got {type(model).__name__}")
    return model


def _input_counts(model: Any) -> tuple[int, int | None]:
    """The least and the most inputs that a model takes by position; ``None``: any number."""
    if isinstance(model, (_engine.OnnxFile, OnnxModel)):
        count = len(model.inputs() if isinstance(model, _engine.OnnxFile) else model.inputs)
        return count, count
    parameters = inspect.signature(model.forward if isinstance(model, Module) else model).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    least = sum(each.default is each.empty for each in positional)
    return least, None if any(each.kind == each.VAR_POSITIONAL for each in parameters) else len(positional)


def _samples(model: Any, data: Any) -> list[Any]:
    """Batches as tuples of positional inputs, or dictionaries, without labels. Samples that this function returned stay
    as they are.
    """
    if isinstance(data, (Tensor, Mapping)) or hasattr(data, "__array__"):
        data = [data]
    if not isinstance(data, Iterable):
        raise TypeError(f"calibration data are batches of inputs, got {type(data).__name__}")
    least, most = _input_counts(model)
    samples: list[Any] = []
    for batch in data:
        sample = _sample(batch, least, most)
        if isinstance(sample, tuple) and most is not None and least < most and len(sample) > least:
            raise TypeError(
                f"the model takes {least} to {most} inputs, so a batch of {len(sample)} parts could have labels: "
                "give dictionaries of inputs by name"
            )
        samples.append(sample)
    if not samples:
        raise ValueError("calibration data has no batches")
    return samples


def _sample(batch: Any, least: int, most: int | None) -> Any:
    """One batch as a tuple of positional inputs, or a dictionary."""
    if isinstance(batch, Mapping):
        return {name: _tensor(value) for name, value in batch.items()}
    # A list of numbers is one input.
    parts = batch if isinstance(batch, tuple) or _has_tensors(batch) else (batch,)
    if most != 1 and parts and isinstance(parts[0], (tuple, list)) and _has_tensors(parts[0]):
        # All inputs together, and labels.
        parts = parts[0]
    if len(parts) < max(least, 1):
        raise TypeError(f"the model takes {max(least, 1)} inputs, a batch has {len(parts)}")
    return tuple(_tensor(part) for part in parts[:most])


def _has_tensors(value: Any) -> bool:
    """Whether a list or tuple has tensors or arrays."""
    if not isinstance(value, (list, tuple)):
        return False
    arrays = (isinstance(part, Tensor) or (hasattr(part, "__array__") and not isinstance(part, np.generic)) for part in value)
    return any(arrays) or any(_has_tensors(part) for part in value)


def _tensor(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else from_numpy(value)


def _file(model: Any, samples: list[Any]) -> tuple[_engine.OnnxFile, list[dict[str, Tensor]]]:
    """The network as a file in memory, and the samples by the names of its inputs."""
    file = model if isinstance(model, _engine.OnnxFile) else _recorded(model, samples)
    return file, _by_name(file, samples)


def _by_name(file: _engine.OnnxFile, samples: list[Any]) -> list[dict[str, Tensor]]:
    names = file.inputs()
    for sample in samples:
        if isinstance(sample, tuple) and len(sample) != len(names):
            raise TypeError(f"the network has the inputs {', '.join(names)}, a batch has {len(sample)}")
    return [sample if isinstance(sample, dict) else dict(zip(names, sample)) for sample in samples]


def _file_of_example(model: Any, example: Any) -> _engine.OnnxFile:
    """The network as a file in memory. All of the example are inputs."""
    file = model if isinstance(model, _engine.OnnxFile) else quantized_file(model)
    if file is not None:
        return file
    if example is None:
        raise TypeError("a model needs an example of its inputs: give one batch")
    return _recorded(model, [_sample(example, *_input_counts(model))])


def _recorded(model: Any, samples: list[Any]) -> _engine.OnnxFile:
    """The model with any number of rows, if it allows that; else with those of the first sample, which all then have. A
    quantized network is its own file.
    """
    own = quantized_file(model)
    if own is not None:
        return own
    first = samples[0]
    examples = list(first.values()) if isinstance(first, dict) else list(first)
    rows = {example.shape[0] for example in examples if example.ndim}
    if len(rows) == 1 and all(example.ndim for example in examples):
        names = list(first) if isinstance(first, dict) else None
        try:
            probe = names or [port for port in file_of(model, first).inputs()]
            return file_of(model, first, {name: {0: "batch"} for name in probe})
        except (NotImplementedError, ValueError, RuntimeError):
            shapes = {tuple(t.shape) for sample in samples for t in (sample.values() if isinstance(sample, dict) else sample)}
            if len(shapes) > len(examples):
                raise
    return file_of(model, first)


def _device(model: Any) -> Any:
    """Where a model's parameters are."""
    state = itertools.chain(model.parameters(), model.buffers()) if isinstance(model, Module) else ()
    return next((tensor.device for tensor in state), None)
