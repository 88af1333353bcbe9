"""Networks for NPUs: quantized, compiled when the shape of their inputs is known, and run by a vendor's runtime."""

from __future__ import annotations

import copy
import inspect
import os
import sysconfig
from collections.abc import Callable, Mapping
from typing import Any

from .. import _engine, quantize as quantization
from .._autograd import no_grad
from .._engine import Tensor
from ..nn import Module
from ..onnx import OnnxModel
from ..quantize import QuantizationReport, QuantizedModel


def folders() -> list[str]:
    """Where the packages of the running interpreter are: some bring runtimes."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"], paths["scripts"]]))


class OptimizedModel(Module):
    """A network for one device: from ``NPUBackend.optimize_model`` or ``NPUBackend.load``.

    It is for inference. Without an NPU it runs on the CPU's integer kernels, and ``placement_report`` says so.
    """

    def __init__(
        self,
        network: OnnxModel | Module,
        file: _engine.OnnxFile | None,
        report: QuantizationReport | None,
        device: _engine.NpuDevice | None,
        reason: str | None,
        settings: Mapping[str, Any],
        samples: list[Any],
        compiled: Callable[[list[dict[str, Any]]], None] | None = None,
    ) -> None:
        """``compiled`` is told where the nodes are, once the network is compiled for an NPU."""
        super().__init__()
        self._network = [network]
        self._file = file
        self._unwritable: Exception | None = None
        self._report = report
        self._npu = device
        self._reason = reason
        self._settings = dict(settings)
        self._compiled = compiled
        self._program: _engine.NpuProgram | None = None
        if samples:
            self._record(samples)
            if device is not None and self._file is not None:
                self._compile(quantization._by_name(self._file, samples))
        self.eval()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Computes the outputs: a tensor if there is one, otherwise a tuple."""
        network = self._network[0]
        if not inputs and not named:
            raise TypeError("the network needs its inputs")
        if self._npu is None:
            if isinstance(network, OnnxModel):
                _named([port.name for port in network.inputs], inputs, named)
            with no_grad():
                results = network(*inputs, **named)
            if self._file is None and self._unwritable is None:
                self._record([sample_of(network, inputs, named)])
            return results
        if self._file is None:
            self._record([sample_of(network, inputs, named)])
        assert self._file is not None
        tensors = _values(self._file.inputs(), inputs, named)
        if self._program is None:
            self._compile([tensors])
        assert self._program is not None
        computed = [value for _, value in self._program.run(tensors)]
        return computed[0] if len(computed) == 1 else tuple(computed)

    def _record(self, samples: list[Any]) -> None:
        """Makes the file, for any number of rows if the network allows it. The CPU needs no file."""
        if self._file is not None:
            return
        try:
            self._file = quantization._recorded(self._network[0], samples)
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            if self._npu is not None:
                raise
            self._unwritable = error

    def _compile(self, samples: list[dict[str, Tensor]]) -> None:
        assert self._file is not None and self._npu is not None
        self._program = _engine.NpuProgram(self._file, self._npu, samples, self._settings)
        if self._compiled is not None:
            self._compiled(self.placement_report())

    def quantization_report(self) -> QuantizationReport | None:
        """What quantization did; ``None`` if the network was not quantized."""
        return self._report

    def placement_report(self) -> list[dict[str, Any]]:
        """For each node: its name ``node``, its ``operator``, the ``device``, and the ``reason`` if that is the CPU.
        Without calibration data it is empty until the first inputs are there. A network that cannot be an ONNX file,
        which only the CPU runs, is one node.
        """
        if self._npu is None:
            nodes = self._file.nodes() if self._file is not None else []
            if self._unwritable is not None:
                nodes = [("", type(self._network[0]).__name__)]
            return [{"node": n, "operator": o, "device": "cpu", "reason": self._reason} for n, o in nodes]
        placed = self._program.placement() if self._program is not None else []
        return [dict(zip(("node", "operator", "device", "reason"), row)) for row in placed]

    def memory(self) -> dict[str, int | None]:
        """Bytes on an NPU: ``activations`` (the most that values between nodes need at a time), ``weights``, and
        ``allocated`` (what the runtime says, else ``None``). Empty before the network is compiled, and on the CPU.
        """
        if self._program is None:
            return {}
        return dict(zip(("activations", "weights", "allocated"), self._program.memory()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network as an ONNX file, which ``NPUBackend.load`` and other runtimes read."""
        if self._unwritable is not None:
            raise RuntimeError(f"save: the network cannot be an ONNX file: {self._unwritable}") from self._unwritable
        if self._file is None:
            raise RuntimeError(
                "save: the network is recorded with its first inputs: call it once, or give optimize_model calibration_data"
            )
        self._file.save(os.fspath(path))

    export = save

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModel:
        """A copy compiles its network itself, with its first inputs, so that threads can use both."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        shared = ("_file", "_npu", "_compiled", "_unwritable")
        for name, value in {**self.__dict__, "_program": None}.items():
            copied.__dict__[name] = value if name in shared else copy.deepcopy(value, memo)
        return copied

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, as it belongs to a device: save() writes a file, which "
            "NPUBackend.load reads"
        )

    def _described(self) -> str:
        """The network on one line."""
        network = self._network[0]
        return repr(network) if isinstance(network, OnnxModel) else type(network).__name__

    def __repr__(self) -> str:
        where = self._npu.name if self._npu is not None else f"cpu: {self._reason}"
        return f"OptimizedModel({self._described()}, {where})"


def sample_of(network: Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The arguments of a call as a sample: a tuple, or a dictionary in the order of the network's inputs."""
    if not named:
        return tuple(quantization._tensor(value) for value in inputs)
    if isinstance(network, OnnxModel):
        return _values([port.name for port in network.inputs], inputs, named)
    signature = inspect.signature(network.forward)
    values: dict[str, Any] = {}
    for name, value in signature.bind(*inputs, **named).arguments.items():
        values.update(value if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD else {name: value})
    return {name: quantization._tensor(value) for name, value in values.items()}


def _values(names: list[str], inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arguments of a call as tensors by name."""
    return {name: quantization._tensor(value) for name, value in _named(names, inputs, named).items()}


def _named(names: list[str], inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, in the order of ``names``, which must all be there."""
    if len(inputs) > len(names):
        raise TypeError(f"expected at most {len(names)} inputs, got {len(inputs)}")
    values = dict(zip(names, inputs))
    for name, value in named.items():
        if name in values:
            raise TypeError(f"the input {name!r} is given twice")
        if name not in names:
            raise TypeError(f"there is no input {name!r}; there are {', '.join(names)}")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise TypeError(f"inputs are missing: {', '.join(missing)}")
    return {name: values[name] for name in names}


def loaded(
    path: str | os.PathLike[str],
    device: _engine.NpuDevice | None,
    reason: str | None,
    settings: Mapping[str, Any],
    samples: Callable[[_engine.OnnxFile], list[Any]],
    compiled: Callable[[list[dict[str, Any]]], None],
) -> OptimizedModel:
    """A saved network, and what ``samples`` gives for its file."""
    file = _engine.OnnxFile.load(os.fspath(path))
    network = OnnxModel(file.network(None))
    return OptimizedModel(network, file, None, device, reason, settings, samples(file), compiled)


def of_quantized(
    model: QuantizedModel,
    samples: list[Any],
    device: _engine.NpuDevice | None,
    reason: str | None,
    settings: Mapping[str, Any],
    compiled: Callable[[list[dict[str, Any]]], None],
) -> OptimizedModel:
    """A quantized network for the device."""
    return OptimizedModel(model, model._file, model.quantization_report(), device, reason, settings, samples, compiled)
