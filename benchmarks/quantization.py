"""Compares quantized networks with ONNX Runtime's, in one run: accuracy and signal to noise on the bundled digits, and the
speed of integers on the CPU. Both quantize the same ONNX file with the same calibration rows.

Usage: quantization.py [quality] [speed]

Needs ``onnx`` and ``onnxruntime``. SQNR is 10 log10(sum x^2 / sum (x - q)^2) of the outputs for the test rows. Each file
is run by ONNX Runtime, and ours also by Neurenix. Times are the least of several rounds that alternate; both use all cores.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import onnxruntime as ort
from neurenix import nn
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

ROWS = 200
"""Calibration rows."""


class Recurrent(nn.Module):
    """Reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 32, batch_first=True)
        self.output = nn.Linear(32, 10)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        states, _ = self.lstm(x.reshape(-1, 8, 8))
        return self.output(states[:, -1])


class Transformer(nn.Module):
    """Attends to the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(8, 32)
        self.position = nn.Parameter(nx.randn(8, 32) * 0.1)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.output = nn.Linear(32, 10)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        hidden = self.block(self.input(x.reshape(-1, 8, 8)) + self.position)
        return self.output(hidden.mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[], nn.Module]] = {"MLP": mlp, "CNN": cnn, "LSTM": Recurrent, "transformer": Transformer}

# Ours by keywords, ONNX Runtime's by types and options.
FORMATS: dict[str, tuple[dict[str, Any], tuple[Any, Any, bool]]] = {
    "u8s8": ({"per_channel": False}, (QuantType.QUInt8, QuantType.QInt8, False)),
    "u8s8 per channel": ({}, (QuantType.QUInt8, QuantType.QInt8, True)),
    "s8s8 per channel": ({"activations": "int8"}, (QuantType.QInt8, QuantType.QInt8, True)),
    "u16u8": ({"activations": "uint16", "weights": "uint8", "per_channel": False}, (QuantType.QUInt16, QuantType.QUInt8, False)),
}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images ``[rows, 1, 8, 8]`` and labels for training and test."""
    train, test = nx.data.digits(device="cpu")
    parts = [tensor.numpy() for dataset in (train, test) for tensor in dataset.tensors]
    x, y, test_x, test_y = parts
    shape = (-1, 1, 8, 8)
    return x.reshape(shape).astype(np.float32), y, test_x.reshape(shape).astype(np.float32), test_y


def trained(make: Callable[[], nn.Module], x: np.ndarray, y: np.ndarray, epochs: int = 30) -> nn.Module:
    """A network trained on the digits, the same in every run."""
    nx.manual_seed(0)
    model = make()
    optimizer = nx.optim.Adam(model.parameters(), lr=0.003)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - 63, 64):
            rows = order[start : start + 64]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(nx.from_numpy(x[rows])), nx.from_numpy(y[rows])).backward()
            optimizer.step()
    return model.eval()


class Reader(CalibrationDataReader):
    """Calibration rows for ONNX Runtime, in the batches that ours gets."""

    def __init__(self, name: str, batches: list[np.ndarray]) -> None:
        self._batches = iter([{name: batch} for batch in batches])

    def get_next(self) -> Any:
        return next(self._batches, None)


def exported(model: nn.Module, x: np.ndarray, path: pathlib.Path, rows: str | None = None) -> pathlib.Path:
    """The network as ONNX Runtime's documentation wants it before quantization: with constants computed and normalisations
    folded. Both quantizers get this file.
    """
    axes = {"x": {0: rows}} if rows else None
    nx.onnx.export(model, nx.from_numpy(x), path, dynamic_axes=axes, input_names=["x"])
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    return prepared


def session(path: pathlib.Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def outputs(path: pathlib.Path, x: np.ndarray) -> np.ndarray:
    """What ONNX Runtime computes."""
    network = session(path)
    return network.run(None, {network.get_inputs()[0].name: x})[0]


def sqnr(expected: np.ndarray, got: np.ndarray) -> float:
    signal, noise = np.square(expected, dtype=np.float64).sum(), np.square(expected.astype(np.float64) - got).sum()
    return float(10 * np.log10(signal / noise)) if noise else float("inf")


def theirs(source: pathlib.Path, target: pathlib.Path, batches: list[np.ndarray], settings: tuple[Any, Any, bool]) -> None:
    """Quantizes a file with ONNX Runtime."""
    activations, weights, per_channel = settings
    name = session(source).get_inputs()[0].name
    quantize_static(
        str(source), str(target), Reader(name, batches), quant_format=QuantFormat.QDQ, activation_type=activations,
        weight_type=weights, per_channel=per_channel, calibrate_method=CalibrationMethod.MinMax,
    )  # fmt: skip


def quality(folder: pathlib.Path) -> list[dict[str, Any]]:
    """For each network and format: accuracy and SQNR of ours and of ONNX Runtime's quantizer."""
    x, y, test_x, test_y = digits()
    batches = [x[start : start + 50] for start in range(0, ROWS, 50)]
    rows = []
    for name, make in NETWORKS.items():
        model = trained(make, x, y)
        source = exported(model, test_x[:2], folder / f"{name}.onnx", rows="batch")
        expected = outputs(source, test_x)
        accuracy = float((expected.argmax(-1) == test_y).mean())
        for label, (ours, settings) in FORMATS.items():
            own, other = folder / "own.onnx", folder / "other.onnx"
            quantized = nx.quantize.static(source, [{"x": batch} for batch in batches], **ours)
            quantized.save(own)
            theirs(source, other, batches, settings)
            by_runtime, by_other = outputs(own, test_x), outputs(other, test_x)
            by_us = quantized.run({"x": test_x})
            by_us = next(iter(by_us.values()))
            rows.append(
                {
                    "network": name, "format": label, "accuracy": accuracy,
                    "ours": float((by_us.argmax(-1) == test_y).mean()), "theirs": float((by_other.argmax(-1) == test_y).mean()),
                    "sqnr": sqnr(expected, by_us), "sqnr_in_their_runtime": sqnr(expected, by_runtime),
                    "sqnr_theirs": sqnr(expected, by_other),
                }
            )  # fmt: skip
    return rows


def fast_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def fast_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


SPEED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP, 1 row": (fast_mlp, (1, 784)),
    "MLP, 64 rows": (fast_mlp, (64, 784)),
    "MLP, 256 rows": (fast_mlp, (256, 784)),
    "CNN, 1 image of 32x32": (fast_cnn, (1, 3, 32, 32)),
    "CNN, 16 images of 32x32": (fast_cnn, (16, 3, 32, 32)),
}


def fastest(functions: list[Callable[[], Any]], rounds: int = 12) -> list[float]:
    """The least time of each in milliseconds; they alternate."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for place, function in enumerate(functions):
            function()
            repeats = max(1, int(0.02 / max(best[place], 1e-4))) if best[place] < float("inf") else 1
            start = time.perf_counter()
            for _ in range(repeats):
                function()
            best[place] = min(best[place], (time.perf_counter() - start) / repeats)
    return [1e3 * each for each in best]


def speed(folder: pathlib.Path) -> list[dict[str, Any]]:
    """For each network: milliseconds of our float32 and integers, and of ONNX Runtime's."""
    rows = []
    for name, (make, shape) in SPEED.items():
        nx.manual_seed(0)
        model = make().eval()
        x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        source, target = folder / "float.onnx", folder / "integer.onnx"
        source = exported(model, x, source)
        quantized = nx.quantize.static(source, [{"x": x}], per_channel=True)
        theirs(source, target, [x], (QuantType.QUInt8, QuantType.QInt8, True))
        floats, tensor = nx.onnx.load(source).eval(), nx.from_numpy(x)
        compiled = [nx.compile(network) for network in (floats, quantized)]

        def ours(network: Any, tensor: nx.Tensor = tensor) -> Any:
            with nx.no_grad():
                return network(tensor).evaluate()

        sessions = [session(path) for path in (source, target)]
        functions: list[Callable[[], Any]] = [lambda n=network: ours(n) for network in compiled]
        functions += [lambda s=each, x=x: s.run(None, {"x": x}) for each in sessions]
        rows.append(dict(zip(("network", "float", "integer", "their_float", "their_integer"), (name, *fastest(functions)))))
    return rows


def main() -> None:
    parts = sys.argv[1:] or ["quality", "speed"]
    if unknown := set(parts) - {"quality", "speed"}:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "quality" in parts:
            print("| network | format | float | ours | ONNX Runtime | SQNR ours | ours in ONNX Runtime | ONNX Runtime |")
            print("|---|---|---:|---:|---:|---:|---:|---:|")
            for row in quality(folder):
                shares = " | ".join(f"{100 * row[key]:.2f} %" for key in ("accuracy", "ours", "theirs"))
                ratios = " | ".join(f"{row[key]:.2f} dB" for key in ("sqnr", "sqnr_in_their_runtime", "sqnr_theirs"))
                print(f"| {row['network']} | {row['format']} | {shares} | {ratios} |", flush=True)
        if "speed" in parts:
            print("\n| network | float32 ms | int8 ms | ratio | ONNX Runtime float32 ms | int8 ms | ratio of int8 to ours |")
            print("|---|---:|---:|---:|---:|---:|---:|")
            for row in speed(folder):
                own, other = row["float"] / row["integer"], row["their_integer"] / row["integer"]
                print(
                    f"| {row['network']} | {row['float']:.3f} | {row['integer']:.3f} | {own:.2f} | "
                    f"{row['their_float']:.3f} | {row['their_integer']:.3f} | {other:.2f} |", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
