"""Hardware backends by name: their properties, and that they compute with and without the hardware."""

from __future__ import annotations

import pathlib
import threading
import warnings
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix.hardware import (
    DirectMLBackend,
    FallbackWarning,
    NPUBackend,
    TensorCoresBackend,
    is_directml_available,
    is_npu_available,
    is_tensor_cores_available,
)

BACKENDS = [
    (DirectMLBackend, is_directml_available),
    (NPUBackend, is_npu_available),
    (TensorCoresBackend, is_tensor_cores_available),
]


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
def test_a_backend_tells_the_truth_and_computes(backend: type, available: object) -> None:
    there = available()
    one = backend()
    assert one.initialize() is there
    assert (one.get_device_count() > 0) is there
    assert bool(one.get_device_info(0)) is there
    assert one.get_device_info(99) == {}
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]], "float32"), np.array([[5.0, 6.0], [7.0, 8.0]], "float32")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        product = one.matmul(nx.Tensor(a), nx.Tensor(b))
        one.matmul(nx.Tensor(a), nx.Tensor(b))
        image, weight = nx.randn(1, 3, 8, 8), nx.randn(4, 3, 3, 3)
        convolved = one.conv2d(input=image, weight=weight, bias=None, stride=(1, 1), padding=(1, 1))
        mean, variance = nx.zeros(3), nx.ones(3)
        normal = one.batch_norm(image, mean, variance, training=True)
    assert np.allclose(product.cpu().numpy(), a @ b, rtol=1e-3)
    assert convolved.shape == (1, 4, 8, 8)
    reference = nx.nn.functional.conv2d(image, weight, None, (1, 1), (1, 1))
    assert nx.allclose(convolved.cpu(), reference, rtol=1e-4, atol=1e-4)
    assert abs(normal.cpu().mean().item()) < 1e-4
    assert nx.any(mean != 0).item(), "running statistics move in training"
    fallbacks = [each for each in noted if issubclass(each.category, FallbackWarning)]
    # The statistics of batch_norm move on the CPU when the others run on an NPU.
    assert len(fallbacks) == (0 if there and backend is not NPUBackend else 1)
    report = {entry["operation"]: entry for entry in one.placement_report()}
    assert report["matmul"]["count"] == 2
    assert (report["matmul"]["reason"] is None) is there
    assert there or report["matmul"]["device"] == "cpu"


@pytest.mark.skipif(is_tensor_cores_available(), reason="with Tensor Cores factors are rounded, as asked")
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_without_tensor_cores_nothing_is_rounded() -> None:
    backend, a, b = TensorCoresBackend(), nx.Tensor([[2049.0, -2048.0]]), nx.Tensor([[1.0], [1.0]])
    product = backend.matmul(a, b)
    assert product.item() == 1.0 and product.dtype == nx.float32
    backend.set_precision("fp16")
    product = backend.matmul(a, b)
    assert product.item() == 1.0 and product.dtype == nx.float16


def test_the_report_lists_every_kind() -> None:
    report = {entry["kind"]: entry for entry in nx.hardware.report()}
    assert report["cpu"]["found"]
    for kind in ("cuda", "directml", "npu"):
        assert kind in report
        assert report[kind]["found"] or report[kind]["reason"]


def test_precisions() -> None:
    backend = TensorCoresBackend()
    backend.set_precision("fp16")
    with pytest.raises(ValueError, match="'fp32', 'fp16', 'mixed'"):
        backend.set_precision("int3")
    with pytest.raises(ValueError, match="'fp32', 'fp16', 'mixed'"):
        backend.optimize_model(nx.nn.Linear(2, 2), precision="x")
    with pytest.raises(ValueError, match="int8"):
        NPUBackend().optimize_model(nx.nn.Linear(2, 2), precision="int3")
    for limit in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="it must be a positive number of bytes"):
            NPUBackend().set_memory_limit(limit)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning", "ignore::UserWarning")
def test_a_model_for_an_npu_has_integers_for_weights() -> None:
    nn = nx.nn
    model = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, stride=1, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Linear(64 * 8 * 8, 10),
    )
    x = nx.randn(2, 3, 32, 32)
    expected = model(x)
    npu = NPUBackend()
    npu.set_memory_limit(1024 * 1024 * 100)
    npu.enable_memory_optimization(True)
    with pytest.warns(UserWarning, match="without calibration_data"):
        plain = npu.optimize_model(model=model, quantize=True, precision="int8", optimize_for="performance")
    calibrated = npu.optimize_model(model, precision="int8", calibration_data=[x])
    finer = npu.optimize_model(model, precision="int16")
    scale = expected.abs().max().item()
    for optimized, tolerance in ((plain, 0.02), (calibrated, 0.05), (finer, 1e-4)):
        assert (optimized(x).cpu() - expected).abs().max().item() < tolerance * scale
    for optimized, ratio in ((plain, 3.0), (calibrated, 3.0), (finer, 1.9)):
        report = optimized.quantization_report()
        assert report is not None and report.quantized_bytes < report.float_bytes / ratio
    assert nx.array_equal(model(x), expected), "the model itself stays as it was"


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_a_model_trains_in_mixed_precision() -> None:
    nn = nx.nn
    backend = TensorCoresBackend()
    backend.initialize()
    backend.set_precision("mixed")
    model = backend.optimize_model(nn.Sequential([nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)]), precision="mixed")
    optimizer = nx.optim.Adam(model.parameters(), lr=0.01)
    x = nx.randn(64, 8).to(model[0].weight.device)
    target = x.sum(1, True)
    losses = []
    for _ in range(150):
        loss = nn.functional.mse_loss(model(x).float(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert all(parameter.dtype == nx.float32 for parameter in model.parameters())


def test_kinds_of_devices_and_settings() -> None:
    assert nx.Device(nx.DeviceType.CPU) == nx.Device(nx.DeviceType("cpu"), 0) == nx.Device("cpu")
    assert {entry["kind"] for entry in nx.hardware.report()} <= {kind.value for kind in nx.DeviceType} | {"reference"}
    assert nx.Device("cpu:0").name == nx.Device("cpu", 0).name == "cpu"
    assert str(nx.ones(1, device="cpu:0").device) == "cpu"
    for name, meant in (("CPU", "cpu"), ("Cuda0", "cuda:0"), ("nvidia:1", "cuda:1")):
        with pytest.raises(ValueError, match=f'did you mean "{meant}".*found here: '):
            nx.Device(name)
    nx.init()
    nx.init({"device": "cpu", "debug": False, "log_level": "info"})
    assert nx.get_default_device().type == nx.DeviceType.CPU
    for config in ({"device": "cuda:99"}, {"color": 1}, {"debug": True}):
        with pytest.raises(ValueError):
            nx.init(config)


def test_the_profiler_tells_what_ran() -> None:
    with nx.Profiler() as profiler:
        (nx.randn(64, 64) @ nx.randn(64, 64)).evaluate()
    assert profiler.rows() and all(row["device"] == "cpu" for row in profiler.rows())
    assert "cpu" in profiler.table()
    assert profiler.chrome_trace().lstrip()[0] in "[{"
    with pytest.raises(RuntimeError):
        nx.Profiler().rows()


def test_a_kernel_without_a_source_for_the_device_says_so() -> None:
    kernel = nx.CustomKernel(
        "twice", inputs=[("x", "float32", "n")], outputs=[("y", "float32", "n")], sources={"cuda": "void twice() {}"}
    )
    with pytest.raises(RuntimeError, match="twice"):
        kernel(nx.ones(3)).evaluate()
    with pytest.raises(ValueError, match='"fortran" .*"cuda", "hip", "opencl", "wgsl"'):
        nx.CustomKernel("twice", inputs=[], outputs=[("y", "float32", "3")], sources={"fortran": ""})


def test_a_kernel_with_a_function_for_the_cpu_runs_there() -> None:
    def both(x: np.ndarray, scale: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        assert not x.flags.writeable and x.shape == (2, 3)
        return x * scale, x.sum(1) + count

    kernel = nx.CustomKernel(
        "both",
        inputs=[("x", "float32", "m n")],
        outputs=[("scaled", "float32", "m n"), ("sums", "float32", "m")],
        scalars=[("scale", "float32"), ("count", "int32")],
        sources={},
        cpu=both,
        gradient=lambda inputs, outputs, gradients: [gradients[0] * 2 + gradients[1].unsqueeze(1)],
    )
    x = nx.arange(6, dtype="float32").reshape(3, 2).mT.requires_grad_()
    scaled, sums = kernel(x, 2.0, 1)
    assert scaled.tolist() == (x * 2).tolist() and sums.tolist() == (x.sum(1) + 1).tolist()
    (scaled.sum() + sums.sum()).backward()
    assert x.grad.tolist() == [[3.0] * 3] * 2
    threads = [threading.Thread(target=lambda: kernel(nx.randn(2, 3), 2.0, 1)[0].evaluate()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_a_function_for_the_cpu_takes_all_dtypes(dtype: str) -> None:
    same = nx.CustomKernel("same", inputs=[("x", dtype, "n")], outputs=[("y", dtype, "n")], sources={}, cpu=lambda x: x)
    x = nx.tensor([0, 1, 1, 0]).to(dtype)
    assert same(x).dtype == x.dtype and same(x).tolist() == x.tolist()


def test_mistakes_of_a_function_for_the_cpu() -> None:
    def kernel(function: object, dtype: str = "float32") -> nx.CustomKernel:
        return nx.CustomKernel("one", inputs=[("x", dtype, "n")], outputs=[("y", dtype, "n")], sources={}, cpu=function)

    with pytest.raises(ValueError, match=r"shape \[1\] for an output of shape \[3\]"):
        kernel(lambda x: x[:1])(nx.ones(3)).evaluate()
    with pytest.raises(ValueError, match="expected 1 array, got 2"):
        kernel(lambda x: (x, x))(nx.ones(3)).evaluate()
    with pytest.raises(ZeroDivisionError):
        kernel(lambda x: 1 // 0)(nx.ones(3)).evaluate()
    with pytest.raises(TypeError, match="cast"):
        kernel(lambda x: x * 0.5, "int32")(nx.ones(3, dtype="int32")).evaluate()


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_mixed_precision_is_what_the_layers_compute_in() -> None:
    seen: list[str] = []

    class Watch(nx.nn.Module):
        def forward(self, x: nx.Tensor) -> nx.Tensor:
            seen.append(x.dtype.name)
            return x

    def dtypes(precision: str) -> list[str]:
        seen.clear()
        model = TensorCoresBackend().optimize_model(nx.nn.Sequential(nx.nn.Linear(4, 4), Watch()), precision)
        model(nx.ones(1, 4).to(model[0].weight.device))
        return list(seen)

    assert dtypes("mixed") == ["float16"]
    assert dtypes("fp16") == ["float16"]
    assert dtypes("fp32") == ["float32"]


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
def test_what_a_backend_says_of_missing_hardware(backend: type, available: object) -> None:
    if available():
        pytest.skip("the hardware is here")
    one = backend()
    with pytest.warns(FallbackWarning, match="available, operations run on the CPU: .") as noted:
        one.matmul(nx.ones(1, 1), nx.ones(1, 1))
    assert str(noted[0].message)[0].isupper() and noted[0].filename == __file__, "the warning names the caller's line"
    assert len(noted) == 1 and one.get_device_info(0) == {} and "CPU" in repr(one)
    with pytest.warns(FallbackWarning) as noted:
        backend().optimize_model(nx.nn.Linear(1, 1))
    assert noted[0].filename == __file__
    kinds = {entry["kind"]: entry for entry in nx.hardware.report()}
    reason = one.placement_report()[0]["reason"]
    assert reason == kinds[backend.kind]["reason"] or (backend is NPUBackend and "npu" in reason.lower())


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_what_a_backend_refuses() -> None:
    for backend in (DirectMLBackend(), NPUBackend(), TensorCoresBackend()):
        with pytest.raises(TypeError, match="expected a tensor, got list"):
            backend.matmul([[1.0]], nx.ones(1, 1))
        with pytest.raises(ValueError, match="2, 3"):
            backend.matmul(nx.ones(2, 3), nx.ones(2, 3))
    for backend in (NPUBackend(), TensorCoresBackend()):
        with pytest.raises(TypeError, match="expected (a module|neurenix.nn.Module)"):
            backend.optimize_model(3)
    npu, model = NPUBackend(), nx.nn.Conv2d(1, 2, 3)
    with pytest.raises(ValueError, match="no batches"):
        npu.optimize_model(model, calibration_data=iter([]))
    if not is_npu_available():
        with pytest.raises(RuntimeError, match="optimize_model: strict mode excludes the CPU, and "):
            npu.optimize_model(model, strict=True)
    images = 10 * nx.randn(2, 1, 5, 5)
    one, several = (npu.optimize_model(model, calibration_data=data) for data in (images, [images]))
    assert nx.array_equal(one(images), several(images))
    assert model.training and isinstance(model, nx.nn.Conv2d)


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, {"exluded": []}),
        (ValueError, {"optimize_for": "accuracy"}),
        (ValueError, {"weights": "uint8"}),
        (ValueError, {"equalize": True}),
        (ValueError, {"precision": "int16", "optimize_for": "size"}),
        (ValueError, {"precision": "int16", "dynamic": True}),
        (ValueError, {"dynamic": True, "calibration_data": nx.ones(2, 4)}),
        (ValueError, {"dynamic": True, "optimize_for": "size"}),
        (ValueError, {"quantize": False, "precision": "float16"}),
        (ValueError, {"quantize": False, "excluded": ["Gemm"]}),
        (ValueError, {"precision": "float16", "optimize_for": "performance"}),
        (ValueError, {"model": "network.onnx", "precision": "float16"}),
    ],
    ids=str,
)
def test_arguments_without_effect(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match="unexpected keyword" if error is TypeError else "no effect"):
        NPUBackend().optimize_model(**{"model": nx.nn.Linear(4, 3), **arguments})


@pytest.mark.skipif(is_npu_available(), reason="this machine has an NPU")
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_floats_on_the_cpu_are_reported_and_saved(tmp_path: pathlib.Path) -> None:
    class Deciding(nx.nn.Module):
        def forward(self, x: nx.Tensor) -> nx.Tensor:
            return x if x.sum().item() > 0 else -x

    x, npu, layer = nx.ones(2, 4), NPUBackend(), nx.nn.Linear(4, 3)
    called, calibrated = (npu.optimize_model(layer, quantize=False, calibration_data=data) for data in (None, x))
    assert not called.placement_report()
    called(x)
    for number, model in enumerate((called, calibrated)):
        assert [entry["device"] for entry in model.placement_report()] == ["cpu"]
        model.save(tmp_path / f"{number}.onnx")
        assert nx.allclose(npu.load(tmp_path / f"{number}.onnx")(x), layer(x))
    model = npu.optimize_model(Deciding(), quantize=False)
    assert nx.array_equal(model(x), x)
    assert model.placement_report()[0]["operator"] == "Deciding"
    with pytest.raises(RuntimeError, match="decision cannot be written"):
        model.save(tmp_path / "none.onnx")


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_quantized_models_compute_what_their_layers_do() -> None:
    nn = nx.nn

    class Doubled(nn.Linear):
        def forward(self, input: nx.Tensor) -> nx.Tensor:
            return 2.0 * super().forward(input)

    nx.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(3, 3, 2, padding="same", padding_mode="circular"),
        nn.BatchNorm2d(3),
        nn.Flatten(),
        Doubled(3 * 6 * 6, 4),
    )
    model[2].eval()
    x = 5 + nx.randn(2, 2, 6, 6)
    expected = model(x)
    optimized = NPUBackend().optimize_model(model, precision="int16", calibration_data=[x])
    scale = expected.abs().max().item()
    # Activations have 16 bits, weights 8.
    assert (optimized(x).cpu() - expected.cpu()).abs().max().item() < 0.02 * scale
    assert [part.training for part in model] == [True, True, False, True, True]
