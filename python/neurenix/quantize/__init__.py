"""Quantized networks: integers in place of floats.

``static`` quantizes activations and weights, with ranges from a few batches of typical inputs; ``dynamic`` finds the
ranges of activations while the network runs; ``weights`` makes only the weights smaller. ``prepare_training`` and
``finish_training`` train a network with rounding. Each takes a module, an ``OnnxModel``, or the path of an ONNX file, and
gives a ``QuantizedModel``, which runs on the integer kernels of its device, and which ``save`` writes as an ONNX file that
other runtimes take, too.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._creation import from_numpy
from .._engine import Tensor
from ..nn.module import Module
from ..onnx import OnnxModel, file_of

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
        #: ``value``, ``sqnr_db`` (``None`` if nothing differs) and ``max_error``.
        self.layers: list[dict[str, Any]] = content["layers"]
        #: The same figures for each output of the network.
        self.outputs: list[dict[str, Any]] = content["outputs"]
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

    def _repr_html_(self) -> str:
        return self.html()


class QuantizedModel(OnnxModel):
    """A quantized network. It is for inference: its weights are integers."""

    def __init__(self, file: _engine.OnnxFile, report: _engine.QuantizationReport | None, device: Any = None) -> None:
        super().__init__(file.network(device))
        self._file = file
        self._report = None if report is None else QuantizationReport(report)
        self.eval()

    def quantization_report(self) -> QuantizationReport | None:
        """What quantization did; ``None`` after ``finish_training``, which does not compare."""
        return self._report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network as an ONNX file, which ``neurenix.onnx.load`` and other runtimes read."""
        self._file.save(os.fspath(path))


def static(
    model: Any,
    calibration_data: Any,
    *,
    activations: str = "uint8",
    weights: str = "int8",
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

    ``calibration_data`` is batches of typical inputs: tensors or arrays, pairs of inputs and labels as data loaders give
    them, or dictionaries of inputs by name. A few hundred rows are enough.

    ``activations`` and ``weights`` are formats: ``"uint8"``, ``"int8"``, ``"uint16"``, ``"int16"``, for weights also
    ``"int4"`` and ``"uint4"``, and ``"float8_e4m3"`` and ``"float8_e5m2"``. ``per_channel`` gives each output channel of a
    weight its own scale. ``calibrator`` finds the range of each activation: ``"minmax"``, ``"percentile"``,
    ``"entropy"`` or ``"mse"``. ``excluded`` names nodes or types of operators that stay float; with ``operators``, only
    operators of these types are quantized.

    ``equalize`` balances the channels of adjacent layers, ``smooth`` (such as 0.5) moves outliers of activations into
    weights, ``bias_correction`` removes the mean error of each layer, and ``adaptive_rounding`` (``True``, or a number of
    steps) learns for each weight whether to round up or down. None of them changes the float network.

    With ``measure``, a function that returns the accuracy of a network, layers stay float until it is at most
    ``max_drop`` below that of the float network.
    """
    samples = _samples(calibration_data)
    file, named = _file(model, samples)
    settings = _settings(
        activations, weights, per_channel, symmetric, calibrator, percentile, excluded, operators,
        equalize, smooth, bias_correction, adaptive_rounding,
    )  # fmt: skip
    if (max_drop is None) != (measure is None):
        raise TypeError("static: max_drop and measure belong together")
    if measure is None or max_drop is None:
        return QuantizedModel(*_engine.quantize_onnx(file, named, settings), _device(model))

    def accuracy(candidate: _engine.OnnxFile) -> float:
        with no_grad():
            return float(measure(OnnxModel(candidate.network(_device(model)))))

    return QuantizedModel(*_engine.quantize_onnx_within(file, named, settings, max_drop, accuracy), _device(model))


def dynamic(model: Any, example: Any = None, *, per_channel: bool = True, excluded: Sequence[str] = ()) -> QuantizedModel:
    """``int8`` weights, and activations that are quantized while the network runs: for linear layers, and when there is no
    calibration data. ``example`` is an input of the model; an ONNX file needs none.
    """
    file, _ = _file(model, [] if example is None else _samples([example]))
    return QuantizedModel(*_engine.quantize_onnx_dynamically(file, per_channel, list(excluded)), _device(model))


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
    Activations stay float. ``example`` is an input of the model; an ONNX file needs none.
    """
    file, _ = _file(model, [] if example is None else _samples([example]))
    return QuantizedModel(*_engine.quantize_onnx_weights(file, bits, group, symmetric, list(excluded)), _device(model))


def prepare_training(
    model: Any,
    calibration_data: Any,
    *,
    activations: str = "uint8",
    weights: str = "int8",
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
    samples = _samples(calibration_data)
    file, named = _file(model, samples)
    settings = _settings(
        activations, weights, per_channel, symmetric, calibrator, percentile, excluded, operators,
        equalize, None, False, False,
    )  # fmt: skip
    prepared = _engine.prepare_onnx_training(file, named, settings)
    return _TrainableModel(prepared, _device(model))


class _TrainableModel(OnnxModel):
    """A network from ``prepare_training``, with its file."""

    def __init__(self, file: _engine.OnnxFile, device: Any) -> None:
        super().__init__(file.network(device))
        self._file = file


def finish_training(model: OnnxModel) -> QuantizedModel:
    """The network from ``prepare_training`` with its trained weights as integers."""
    if not isinstance(model, _TrainableModel):
        raise TypeError(f"finish_training: expected a network from prepare_training, got {type(model).__name__}")
    state = {name: getattr(module, own).detach() for name, (module, own) in model._places.items()}
    finished = _engine.finish_onnx_training(model._file.with_tensors(list(state.items())))
    return QuantizedModel(finished, None, _device(model))


def _settings(
    activations: str,
    weights: str,
    per_channel: bool,
    symmetric: bool,
    calibrator: str,
    percentile: float,
    excluded: Sequence[str],
    operators: Sequence[str] | None,
    equalize: bool,
    smooth: float | None,
    bias_correction: bool,
    adaptive_rounding: bool | int,
) -> dict[str, Any]:
    steps = 1000 if adaptive_rounding is True else int(adaptive_rounding) or None
    return {
        "activations": activations,
        "weights": weights,
        "per_channel": per_channel,
        "symmetric": symmetric,
        "calibrator": calibrator,
        "percentile": float(percentile),
        "excluded": list(excluded),
        "operators": None if operators is None else list(operators),
        "equalize": equalize,
        "smooth": smooth,
        "bias_correction": bias_correction,
        "adaptive_rounding": steps,
    }


def _samples(data: Any) -> list[Any]:
    """Batches as tuples of positional inputs, or dictionaries."""
    if isinstance(data, (Tensor, Mapping)) or hasattr(data, "__array__"):
        data = [data]
    if not isinstance(data, Iterable):
        raise TypeError(f"calibration data are batches of inputs, got {type(data).__name__}")
    samples: list[Any] = []
    for batch in data:
        if isinstance(batch, Mapping):
            samples.append({name: _tensor(value) for name, value in batch.items()})
        else:
            # A batch of inputs, or inputs and labels as data loaders give them.
            samples.append((_tensor(batch[0] if isinstance(batch, (list, tuple)) else batch),))
    if not samples:
        raise ValueError("calibration data has no batches")
    return samples


def _tensor(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else from_numpy(value)


def _file(model: Any, samples: list[Any]) -> tuple[_engine.OnnxFile, list[dict[str, Tensor]]]:
    """The network as a file in memory, and the samples by the names of its inputs."""
    if isinstance(model, (str, os.PathLike)):
        file = _engine.OnnxFile.load(os.fspath(model))
    elif isinstance(model, Module) or callable(model):
        if not samples:
            raise TypeError("a model needs an example of its inputs: give one batch")
        file = _recorded(model, samples)
    else:
        raise TypeError(f"expected a module or the path of an ONNX file, got {type(model).__name__}")
    names = file.inputs()
    named = [sample if isinstance(sample, dict) else dict(zip(names, sample)) for sample in samples]
    return file, named


def _recorded(model: Any, samples: list[Any]) -> _engine.OnnxFile:
    """The model with any number of rows, if it allows that; else with those of the first sample, which all then have."""
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
