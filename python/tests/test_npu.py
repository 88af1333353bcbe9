"""Networks on NPUs. Most tests need a runtime: the checks of the project run this file with ``RNN_NPU_PATH`` and
``RNN_NPU_EMULATORS`` set, so that Qualcomm's emulator is ``npu:0``.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import pickle
import re
import runpy
import warnings
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn, quantize
from neurenix.hardware import FallbackWarning
from neurenix.hardware.npu import NPUBackend, is_npu_available

with_unit = pytest.mark.skipif(
    os.environ.get("RNN_NPU_EMULATORS") != "1", reason="needs a runtime: the npu stage of the checks sets RNN_NPU_PATH"
)


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    train, test = nx.data.digits(device="cpu")
    x, y, test_x, test_y = (tensor.numpy() for dataset in (train, test) for tensor in dataset.tensors)
    return x.reshape(-1, 1, 8, 8), y, test_x.reshape(-1, 1, 8, 8), test_y


def trained(model: nn.Module, epochs: int = 12) -> nn.Module:
    x, y, _, _ = digits()
    optimizer = nx.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(epochs):
        for start in range(0, len(x) - 63, 64):
            rows = slice(start, start + 64)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(nx.from_numpy(x[rows])), nx.from_numpy(y[rows])).backward()
            optimizer.step()
    return model.eval()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


@pytest.fixture(scope="module", params=["mlp", "cnn"])
def network(request: pytest.FixtureRequest) -> nn.Module:
    nx.manual_seed(0)
    return trained({"mlp": mlp, "cnn": cnn}[request.param]())


def sqnr(expected: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10(np.square(expected).sum() / np.square(expected - got).sum()))


@with_unit
def test_the_unit_says_what_it_is() -> None:
    npu = NPUBackend()
    assert npu.initialize() and is_npu_available()
    info = npu.get_device_info(0)
    assert info["device"] == "npu:0" and info["nature"] == "emulator" and info["vendor"] == "Qualcomm"
    assert info["version"] and info["architecture"]
    listed = {entry["device"]: entry for entry in nx.hardware.report()}
    assert listed["npu:0"]["nature"] == "emulator"


@with_unit
@pytest.mark.parametrize(("precision", "least"), [("int8", 25.0), ("int16", 35.0)])
def test_accuracy_on_the_unit(network: nn.Module, precision: str, least: float) -> None:
    x, _, test_x, test_y = digits()
    npu = NPUBackend()
    model = npu.optimize_model(network, precision=precision, calibration_data=x[:200], strict=True)
    rows = test_x[:200]
    expected = network(nx.from_numpy(rows)).detach().numpy()
    got = model(nx.from_numpy(rows)).numpy()
    assert {entry["device"] for entry in model.placement_report()} == {"npu:0"}
    assert sqnr(expected, got) > least
    accuracy = [(scores.argmax(-1) == test_y[:200]).mean() for scores in (expected, got)]
    assert accuracy[1] >= accuracy[0] - 0.005 - 1e-9
    report = model.quantization_report()
    assert report is not None and report.outputs


@with_unit
def test_a_network_of_16_bit_floats(network: nn.Module) -> None:
    rows = nx.from_numpy(digits()[2][:40])
    model = NPUBackend().optimize_model(network, precision="float16")
    expected = network(rows).detach().numpy()
    assert sqnr(expected, model(rows.to("float16")).numpy().astype("float32")) > 45
    assert {entry["device"] for entry in model.placement_report()} == {"npu:0"}
    # A product of float32 and float16 is the CPU's: ONNX has none.
    assert sqnr(expected, model(rows).numpy().astype("float32")) > 45


@with_unit
def test_every_call_of_the_document() -> None:
    npu = NPUBackend()
    npu.initialize()
    c = npu.matmul(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([[5, 6], [7, 8]]))
    assert c.tolist() == [[19, 22], [43, 50]] and c.dtype == nx.Tensor([1]).dtype
    assert [(entry["operation"], entry["device"]) for entry in npu.placement_report()] == [("matmul", "npu:0")]
    # Sums that 16-bit floats cannot hold.
    with pytest.warns(FallbackWarning, match="matmul runs on the CPU: a unit would round or clip these integers") as noted:
        c = npu.matmul(nx.Tensor([[1000, 2]]), nx.Tensor([[5], [7001]]))
    assert c.tolist() == [[19002]] and noted[0].filename == __file__
    c = npu.matmul(nx.Tensor([[1.0, 2.0], [3.0, 4.0]]), nx.Tensor([[5.0, 6.0], [7.0, 8.0]]))
    np.testing.assert_allclose(c.numpy(), [[19, 22], [43, 50]], rtol=2e-3)
    image, weight = nx.randn(1, 3, 8, 8), nx.randn(4, 3, 3, 3)
    expected = nn.functional.conv2d(image, weight, padding=1)
    np.testing.assert_allclose(npu.conv2d(image, weight, padding=(1, 1)).numpy(), expected.numpy(), atol=0.05)
    normal = npu.batch_norm(image, nx.zeros(3), nx.ones(3))
    np.testing.assert_allclose(normal.numpy(), image.numpy(), atol=0.05)
    # What the programs of these calls say.
    places = {(key[0], tuple(entry["device"] for entry in p.placement_report())) for key, p in npu._programs.items()}
    report = [(entry["operation"], entry["device"]) for entry in npu.placement_report()]
    assert report[1] == ("matmul", "cpu") and "integers" in npu.placement_report()[1]["reason"]
    del report[1]
    for operation, devices in places:
        assert set(devices) == {device for name, device in report if name == operation}, operation
    assert ("matmul", "npu:0") in report and ("conv2d", "npu:0") in report
    model = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1), nn.ReLU(),
        nn.Linear(64 * 8 * 8, 10),
    )  # fmt: skip
    npu.set_memory_limit(1024 * 1024 * 100)
    npu.enable_memory_optimization(True)
    x = nx.randn(1, 3, 32, 32)
    expected = model(x).detach()
    with pytest.warns(UserWarning, match="without calibration_data"):
        optimized = npu.optimize_model(model=model, quantize=True, precision="int8", optimize_for="performance")
    assert sqnr(expected.numpy(), optimized(x).numpy()) > 20
    nodes, entries = optimized.placement_report(), npu.placement_report()
    told = {entry["device"] for entry in entries if entry["operation"] == "optimize_model"}
    assert told == {node["device"] for node in nodes} and all(n["reason"] for n in nodes if n["device"] == "cpu")
    for goal in ("balanced", "performance", "accuracy", "power", "size"):
        options = {"adaptive_rounding": 50} if goal == "accuracy" else {}
        optimized = npu.optimize_model(model, optimize_for=goal, calibration_data=x, **options)
        assert sqnr(expected.numpy(), optimized(x).numpy()) > (8 if goal == "size" else 20), goal
        assert {entry["device"] for entry in optimized.placement_report()} == {"npu:0"}, goal


@with_unit
@pytest.mark.parametrize(
    ("dtype", "largest"),
    # The largest sum that the dtype and a 16-bit float hold.
    [("int8", 127), ("uint8", 255), ("int16", 2048), ("int64", 2048)],
)
def test_integers_are_those_of_the_cpu(dtype: str, largest: int) -> None:
    half = nx.tensor([[largest // 16, largest // 16]], dtype=dtype)
    eights = nx.tensor([[8], [8]], dtype=dtype)
    for left, right, device in (
        (half, eights, "npu:0"),
        (nx.tensor([[0, 0]], dtype=dtype), eights, "npu:0"),
        (half, eights * 2, "cpu"),
        (half * 8, eights * 4, "cpu"),
        (nx.tensor([[100, 2]], dtype=dtype), nx.tensor([[2], [1]], dtype=dtype), "npu:0" if largest > 400 else "cpu"),
    ):
        npu = NPUBackend()
        npu.initialize()
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            product = npu.matmul(left, right)
        expected = left.numpy() @ right.numpy()
        assert product.dtype == left.dtype and np.array_equal(product.numpy(), expected), (left, right)
        assert [entry["device"] for entry in npu.placement_report()] == [device], (left, right)
        assert [warning.category for warning in noted] == ([FallbackWarning] if device == "cpu" else [])


@with_unit
def test_programs_of_operations_are_limited() -> None:
    npu = NPUBackend()
    for rows in range(1, 19):
        npu.matmul(nx.ones(rows, 2), nx.ones(2, 2))
    assert len(npu._programs) == 16
    npu.enable_memory_optimization(True)
    assert not npu._programs


@with_unit
def test_a_network_of_floats_takes_any_number_of_rows(network: nn.Module) -> None:
    x = nx.from_numpy(digits()[0][:9])
    model = NPUBackend().optimize_model(network, quantize=False)
    for rows in (4, 9, 1):
        assert sqnr(network(x[:rows]).detach().numpy(), model(x[:rows]).numpy()) > 35
    assert {entry["device"] for entry in model.placement_report()} == {"npu:0"}


@with_unit
def test_the_notebook_shows_what_the_unit_does() -> None:
    notebooks = runpy.run_path(str(pathlib.Path(__file__).parent / "notebooks.py"))
    path = notebooks["EXAMPLES"] / "deployment.ipynb"

    def printed(notebook: dict[str, Any]) -> dict[str, str]:
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        return {cell["id"]: "".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells}

    stored, now = printed(json.loads(path.read_text(encoding="utf-8"))), printed(notebooks["run"](path))
    # Other cells have numbers, whose last digits depend on the processor.
    assert now["npu-1"] == stored["npu-1"] and "emulator" in now["npu-1"] and "cpu" not in now["npu-1"]
    for cell in ("npu-2", "report-1"):
        share = [float(re.findall(r"accuracy:? ([0-9.]+)", text[cell])[0]) for text in (stored, now)]
        assert share[0] == pytest.approx(share[1], rel=0.01)


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning", "ignore::UserWarning")
def test_several_inputs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, a: nx.Tensor, b: nx.Tensor) -> nx.Tensor:
            return self.layer(a) + b

    nx.manual_seed(0)
    network, a, b, labels = Sum(), nx.randn(16, 4), nx.randn(16, 3), nx.zeros(16)
    expected = network(a, b).detach().numpy()
    npu = NPUBackend()
    pending, floats = npu.optimize_model(network), npu.optimize_model(network, quantize=False)
    batches = (batch for batch in [(a, b, labels), ((a, b), labels), {"a": a, "b": b}])
    for model in (pending, floats, npu.optimize_model(network, calibration_data=batches)):
        for _ in range(2):
            # 25 dB; without a unit, floats are exact.
            for got in (model(a, b).numpy(), model(b=b, a=a).numpy()):
                assert np.square(expected - got).sum() < 10**-2.5 * np.square(expected).sum()
        for wrong in ((), (a,), (a, b, labels)):
            with pytest.raises(TypeError):
                model(*wrong)
        assert model.placement_report()


@with_unit
def test_a_network_is_saved_and_loaded(network: nn.Module, tmp_path: pathlib.Path) -> None:
    x = digits()[0]
    npu = NPUBackend()
    model = npu.optimize_model(network, calibration_data=x[:100])
    path = tmp_path / "network.onnx"
    model.save(path)
    again = npu.load(path)
    rows = nx.from_numpy(x[:7])
    assert np.array_equal(again(rows).numpy(), model(rows).numpy())


@with_unit
def test_strictness_and_limits(network: nn.Module) -> None:
    x = digits()[0]

    class Remainder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input: nx.Tensor) -> nx.Tensor:
            return nx.remainder(self.network(input), 2.0)

    npu = NPUBackend()
    model = npu.optimize_model(Remainder(), quantize=False)
    with pytest.warns(FallbackWarning, match="Mod"):
        model(nx.from_numpy(x[:4]))
    result = model(nx.from_numpy(x[:4]))
    assert result.shape == (4, 10)
    places = {entry["operator"]: entry for entry in model.placement_report()}
    assert places["Mod"]["device"] == "cpu" and places["Mod"]["reason"]
    strict = npu.optimize_model(Remainder(), quantize=False, strict=True)
    with pytest.raises(RuntimeError, match="Mod"):
        strict(nx.from_numpy(x[:4]))
    npu.set_memory_limit(1000)
    with pytest.raises(MemoryError, match="bytes"):
        npu.optimize_model(network, calibration_data=x[:10])


@pytest.mark.skipif(is_npu_available(), reason="this machine has an NPU")
def test_without_a_unit_the_cpu_computes_and_says_so(network: nn.Module) -> None:
    x, _, test_x, test_y = digits()
    npu = NPUBackend()
    assert not npu.initialize() and npu.get_device_count() == 0 and npu.get_device_info(0) == {}
    with pytest.warns(FallbackWarning, match="No NPU is available"):
        model = npu.optimize_model(network, calibration_data=x[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = model(nx.from_numpy(test_x)).numpy()
    expected = network(nx.from_numpy(test_x)).detach().numpy()
    assert (got.argmax(-1) == test_y).mean() >= (expected.argmax(-1) == test_y).mean() - 0.003
    entries = model.placement_report()
    assert entries and {entry["device"] for entry in entries} == {"cpu"} and all(entry["reason"] for entry in entries)


@pytest.mark.skipif(is_npu_available(), reason="this machine has an NPU")
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_a_quantized_network_keeps_its_numbers(tmp_path: pathlib.Path) -> None:
    npu, x, path = NPUBackend(), nx.randn(6, 4), tmp_path / "network.onnx"
    quantized = quantize.static(nn.Linear(4, 3), x)
    quantized.save(path)
    for network in (quantized, nx.onnx.load(path)):
        for arguments in ({}, {"quantize": False}, {"quantize": False, "calibration_data": x}):
            model = npu.optimize_model(network, **arguments)
            assert nx.array_equal(model(x), quantized(x))
            operators = [entry["operator"] for entry in model.placement_report()]
            assert "QuantizeLinear" in operators and "Round" not in operators
        for arguments in ({"calibration_data": x}, {"precision": "float16"}, {"precision": "int16"}, {"dynamic": True}):
            with pytest.raises(ValueError, match="would quantize a network again"):
                npu.optimize_model(network, **arguments)
    with pytest.raises(ValueError, match="the network is quantized already"):
        npu.optimize_model(path, calibration_data=x)


@pytest.mark.skipif(is_npu_available(), reason="this machine has an NPU")
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_copies_of_an_optimized_network() -> None:
    x = nx.randn(6, 4)
    for arguments in ({"calibration_data": x}, {}, {"quantize": False}):
        model = NPUBackend().optimize_model(nn.Linear(4, 3), **arguments)
        expected = model(x)
        for again in (model.clone(), copy.deepcopy(model)):
            assert nx.array_equal(again(x), expected)
            assert again.placement_report() == model.placement_report()
        with pytest.raises(TypeError, match=r"save\(\) writes a file"):
            pickle.dumps(model)
