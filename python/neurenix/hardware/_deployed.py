"""Networks for NPUs: quantized, compiled when the shape of their inputs is known, and run by the runtime of a vendor."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from ..nn import Module
from ..onnx import OnnxModel, file_of
from ..quantize import QuantizationReport, QuantizedModel


def folders() -> list[str]:
    """Where the packages of the running interpreter are: some bring runtimes."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"], paths["scripts"]]))


def cache_folder() -> str:
    """Where compiled networks are kept."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return str((Path(given) if given else Path.home() / ".cache") / "neurenix" / "npu")


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
        samples: list[dict[str, Tensor]],
    ) -> None:
        super().__init__()
        self._network = [network]
        self._file = file
        self._report = report
        self._npu = device
        self._reason = reason
        self._settings = dict(settings)
        self._samples = samples
        self._program: _engine.NpuProgram | None = None
        if device is not None and file is not None and samples:
            self._program = _engine.NpuProgram(file, device, samples, self._settings)
        self.eval()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Computes the outputs: a tensor if there is one, otherwise a tuple."""
        network = self._network[0]
        if self._npu is None:
            with no_grad():
                return network(*inputs, **named)
        if self._file is None:
            self._file = file_of(network, tuple(inputs) or dict(named))
        names = self._file.inputs()
        values = {**dict(zip(names, inputs)), **named}
        tensors = {name: value if isinstance(value, Tensor) else Tensor(value) for name, value in values.items()}
        if self._program is None:
            self._program = _engine.NpuProgram(self._file, self._npu, [tensors], self._settings)
        results = [value for _, value in self._program.run(tensors)]
        return results[0] if len(results) == 1 else tuple(results)

    def quantization_report(self) -> QuantizationReport | None:
        """What quantization did; ``None`` if the network was not quantized."""
        return self._report

    def placement_report(self) -> list[dict[str, Any]]:
        """For each node: its name ``node``, its ``operator``, the ``device``, and the ``reason`` if that is the CPU. On an
        NPU it is empty until the network is compiled: with the first inputs, if there was no calibration data.
        """
        if self._npu is None:
            nodes = self._file.nodes() if self._file is not None else []
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
        if self._file is None:
            raise RuntimeError(
                "save: the network is recorded with its first inputs: call it once, or give optimize_model calibration_data"
            )
        self._file.save(os.fspath(path))

    export = save

    def __repr__(self) -> str:
        where = self._npu.name if self._npu is not None else f"cpu: {self._reason}"
        return f"{type(self).__name__}({where})"


def loaded(
    path: str | os.PathLike[str], device: _engine.NpuDevice | None, reason: str | None, settings: Mapping[str, Any]
) -> OptimizedModel:
    """A saved network."""
    file = _engine.OnnxFile.load(os.fspath(path))
    return OptimizedModel(OnnxModel(file.network(None)), file, None, device, reason, settings, [])


def of_quantized(
    model: QuantizedModel,
    samples: list[dict[str, Tensor]],
    device: _engine.NpuDevice | None,
    reason: str | None,
    settings: Mapping[str, Any],
) -> OptimizedModel:
    """A quantized network for the device."""
    return OptimizedModel(model, model._file, model.quantization_report(), device, reason, settings, samples)
