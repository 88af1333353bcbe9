"""The operations of the hardware backends, and what the CPU does for them."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import _engine
from neurenix.hardware import (
    DirectMLBackend,
    FallbackWarning,
    HardwareBackend,
    NPUBackend,
    TensorCoresBackend,
    directml,
    is_directml_available,
    is_npu_available,
    is_tensor_cores_available,
)

BACKENDS = [
    (DirectMLBackend, is_directml_available),
    (NPUBackend, is_npu_available),
    (TensorCoresBackend, is_tensor_cores_available),
]

OPERATIONS: dict[str, tuple[Any, ...]] = {
    "matmul": (nx.randn(3, 4), nx.randn(4, 2)),
    "linear": (nx.randn(3, 4), nx.randn(2, 4), nx.randn(2)),
    "conv2d": (nx.randn(2, 4, 6, 6), nx.randn(4, 2, 3, 3), nx.randn(4), (2, 1), (1, 0), 1, 2),
    "max_pool2d": (nx.randn(2, 3, 7, 7), 3, 2, 1, 1, True),
    "avg_pool2d": (nx.randn(2, 3, 7, 7), 3, 2, 1, False, False),
    "adaptive_max_pool2d": (nx.randn(2, 3, 7, 6), (3, None)),
    "adaptive_avg_pool2d": (nx.randn(2, 3, 7, 6), 2),
    "batch_norm": (nx.randn(4, 3, 2, 2), nx.randn(3), nx.rand(3) + 0.5, nx.randn(3), nx.randn(3)),
    "layer_norm": (nx.randn(4, 3, 5), (3, 5), nx.randn(3, 5), nx.randn(3, 5)),
    "softmax": (nx.randn(4, 3, 5), 1),
    "log_softmax": (nx.randn(4, 5), -1),
    "relu": (nx.randn(9),),
    "leaky_relu": (nx.randn(9), 0.3),
    "elu": (nx.randn(9), 0.5),
    "gelu": (nx.randn(9), "tanh"),
    "silu": (nx.randn(9),),
    "softplus": (nx.randn(9), 2.0, 1.0),
    "sigmoid": (nx.randn(9),),
    "tanh": (nx.randn(9),),
}
ARITHMETIC: dict[str, Any] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
ARITHMETIC |= {"maximum": nx.maximum, "minimum": nx.minimum}


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_every_operation_equals_the_function_of_its_name(backend: type, available: object) -> None:
    one = backend()
    # Products of Tensor Cores and NPUs are of 16 bits.
    tolerance = 1e-4 if backend is DirectMLBackend or one.get_device_count() == 0 else 2e-2
    for name, arguments in OPERATIONS.items():
        expected = getattr(nx.functional, name, None) or getattr(nx, name)
        result = getattr(one, name)(*arguments)
        assert nx.allclose(result.cpu(), expected(*arguments), rtol=tolerance, atol=tolerance), name
    a, b = nx.randn(2, 3), nx.rand(3) + 0.5
    for name, function in ARITHMETIC.items():
        for other in (b, 3, 0.5, np.float32(0.5), np.int64(3), np.bool_(True)):
            result = getattr(one, name)(a, other).cpu()
            assert nx.allclose(result, function(a, other), rtol=tolerance, atol=tolerance), name
    same = one.conv2d(OPERATIONS["conv2d"][0], nx.ones(1, 4, 3, 2), padding="same").cpu()
    expected = nx.functional.conv2d(OPERATIONS["conv2d"][0], nx.ones(1, 4, 3, 2), padding="same")
    assert nx.allclose(same, expected, rtol=tolerance, atol=tolerance)
    report = {entry["operation"] for entry in one.placement_report()}
    assert report == {*OPERATIONS, *ARITHMETIC}
    public = {name for name in vars(HardwareBackend) if not name.startswith("_")}
    assert public == report | {"apply"}, "an operation without a test"
    for factor in (2.0, 3.0):
        result = one.apply(lambda x: x.exp() * factor, a)  # noqa: B023
        assert nx.allclose(result.cpu(), a.exp() * factor, rtol=tolerance, atol=tolerance)
    assert one.placement_report()[-1]["operation"] == "<lambda>"


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_a_selected_device_must_exist(backend: type, available: object) -> None:
    one = backend()
    count = one.get_device_count()
    for index in (-1, max(count, 1), nx.Device("cpu")):
        if count == 0:
            one.select_device(index)
            continue
        with pytest.raises(ValueError, match=f"no device {index}"):
            one.select_device(index)
    for index in ("0", 0.0):
        with pytest.raises(TypeError, match=f"select_device: expected an integer index, got {type(index).__name__}"):
            one.select_device(index)
    for index in ("0", 0.0, None, nx.Device("cpu")):
        with pytest.raises(TypeError, match=f"get_device_info: expected an integer index, got {type(index).__name__}"):
            one.get_device_info(index)
    one.select_device(np.int64(max(count - 1, 0)))
    assert one.matmul(nx.ones(1, 2), nx.ones(2, 1)).item() == 2.0
    if count and backend is not NPUBackend:
        assert one.placement_report()[0]["device"] == one.get_device_info(count - 1)["device"]


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
def test_strict_mode_makes_missing_hardware_an_error(backend: type, available: object) -> None:
    if available():
        pytest.skip("the hardware is here")
    one = backend()
    nx.set_strict_placement(True)
    try:
        for call in (lambda: one.relu(nx.ones(2)), lambda: one.optimize_model(nx.nn.Linear(1, 1))):
            with pytest.raises(RuntimeError, match="strict mode excludes the CPU, and "):
                call()
    finally:
        nx.set_strict_placement(False)
    assert one.placement_report() == []
    with pytest.warns(FallbackWarning):
        one.relu(nx.ones(2))


def refused(one: HardwareBackend) -> None:
    """Arguments that a backend refuses, wherever it computes."""
    a = nx.ones(2, 2)
    calls = [
        ("relu", (None,)), ("matmul", (None, None)), ("matmul", (None, a)), ("matmul", (a, None)), ("add", (a, None)),
        ("add", (None, 1)), ("linear", (a, None)), ("conv2d", (None, a)), ("batch_norm", (None, a, a)), ("layer_norm", (None, 2)),
    ]  # fmt: skip
    for name, arguments in calls:
        with pytest.raises(TypeError, match=f"^{name}: expected a tensor, got NoneType$"):
            getattr(one, name)(*arguments)
    with pytest.raises(TypeError, match="batch_norm: expected a tensor, got list"):
        one.batch_norm(a, [0.0], None, training=True)
    with pytest.raises(TypeError, match="apply: expected a function as the first argument, got str"):
        one.apply("relu", a)
    with pytest.raises(TypeError, match="apply: expected a tensor after the function, got none"):
        one.apply(nx.relu)
    with pytest.raises(ValueError, match="2, 3"):
        one.matmul(nx.ones(2, 3), nx.ones(2, 3))
    for result in (3, (a, 3), None):
        with pytest.raises(TypeError, match="apply: expected <lambda> to return a tensor or a tuple of them, got (int|None)"):
            one.apply(lambda x: result, a)  # noqa: B023
    for leaf in (0, 1):
        statistics = [nx.zeros(2), nx.ones(2)]
        statistics[leaf].requires_grad_()
        with pytest.raises(RuntimeError) as expected:
            nx.functional.batch_norm(a, statistics[0].clone().detach().requires_grad_(), nx.ones(2), training=True)
        with pytest.raises(RuntimeError) as error:
            one.batch_norm(a, *statistics, training=True)
        assert str(error.value) == str(expected.value) and "a leaf that requires gradients" in str(error.value)
        assert statistics[0].tolist() == [0.0, 0.0], "nothing moved"
    assert one.placement_report() == [], "calls that raise are not counted"


@pytest.mark.parametrize("backend", [DirectMLBackend, TensorCoresBackend])
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_wrong_arguments(backend: type) -> None:
    refused(backend())


@pytest.mark.parametrize(("backend", "available"), BACKENDS)
@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_running_statistics_are_optional(backend: type, available: object) -> None:
    one, x = backend(), nx.randn(6, 3)
    expected = nx.functional.batch_norm(x, None, None, training=True)
    for mean, variance in ((None, None), (nx.zeros(3), None), (None, nx.ones(3))):
        result = one.batch_norm(x, mean, variance, training=True)
        assert nx.allclose(result.cpu(), expected, rtol=1e-4, atol=1e-4)
        assert mean is None or mean.tolist() == [0.0] * 3
        assert variance is None or variance.tolist() == [1.0] * 3


SOFTWARE = [device.name for device in nx.devices() if device.type != "cpu"]


@pytest.fixture(params=SOFTWARE or [pytest.param(None, marks=pytest.mark.skip(reason="the CPU is the only device"))])
def on_device(request: pytest.FixtureRequest) -> Iterator[tuple[HardwareBackend, nx.Device]]:
    """A backend of any device that is not the CPU, to test what all have in common."""
    device = nx.Device(request.param)

    class Own(HardwareBackend):
        kind = device.type
        title = missing = "this device"

    backend = Own()
    backend.initialize()
    backend.select_device([backend.get_device_info(i)["device"] for i in range(backend.get_device_count())].index(device.name))
    yield backend, device
    device.set_memory_limit(None)
    nx.set_strict_placement(False)


def test_a_full_device_is_helped_by_the_cpu(on_device: tuple[HardwareBackend, nx.Device]) -> None:
    backend, device = on_device
    # A shape that no other test uses, so that the plan is new.
    here = nx.randn(73, 70)
    there = here.to(device).evaluate()
    assert backend.matmul(here, here.T).device == device
    device.empty_cache()
    device.set_memory_limit(device.memory()["allocated"] + 1024)
    with pytest.warns(FallbackWarning, match="runs on the CPU: .*out of memory") as noted:
        products = [backend.matmul(x, x.T) for x in (here, there)]
        sums = backend.add(products[0], products[1])
    assert len(noted) == 1 and noted[0].filename == __file__
    expected = here @ here.T
    # The device has no room for the results, which are read where they are.
    for result in products:
        assert result.device == device and nx.allclose(result.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert nx.allclose(sums.cpu(), 2 * expected, rtol=1e-4, atol=1e-4)
    report = {(entry["operation"], entry["device"]): entry for entry in backend.placement_report()}
    assert report["matmul", "cpu"]["count"] == 2 and "out of memory" in report["matmul", "cpu"]["reason"]
    assert report["matmul", device.name]["reason"] is None
    nx.set_strict_placement(True)
    with pytest.raises(MemoryError, match="^matmul: strict mode excludes the CPU, and .*out of memory"):
        backend.matmul(there, there.T)
    nx.set_strict_placement(False)
    with pytest.raises(MemoryError):
        (there @ there.T).evaluate()
    nx.set_recovery(True)
    try:
        assert nx.allclose((there @ there.T).cpu(), expected, rtol=1e-4, atol=1e-4)
    finally:
        nx.set_recovery(False)
    device.set_memory_limit(None)
    # With room, the device computes, also with what was in host memory.
    assert nx.allclose(backend.add(products[0], sums).cpu(), 3 * expected, rtol=1e-4, atol=1e-4)
    assert {entry["operation"]: entry for entry in backend.placement_report()}["add"]["device"] == device.name


def test_what_a_device_refuses_is_reported(on_device: tuple[HardwareBackend, nx.Device]) -> None:
    backend, device = on_device
    kernel = nx.CustomKernel(
        "thrice", inputs=[("x", "float32", "n")], outputs=[("y", "float32", "n")], cpu=lambda x: 3 * x
    )
    with pytest.warns(FallbackWarning, match="thrice runs on the CPU: .*a function for the CPU") as noted:
        results = [backend._computed("thrice", kernel, nx.ones(5)) for _ in range(2)]
    assert len(noted) == 1 and all(result.tolist() == [3.0] * 5 for result in results)
    [entry] = backend.placement_report()
    assert (entry["device"], entry["count"]) == ("cpu", 2) and "custom thrice: " in entry["reason"]
    nx.set_strict_placement(True)
    with pytest.raises(RuntimeError, match="strict mode"):
        backend._computed("thrice", kernel, nx.ones(5))


def test_operands_of_the_host_are_copied_again_if_a_call_fails(
    on_device: tuple[HardwareBackend, nx.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, device = on_device
    recovering, failures = _engine.recovering, iter([True, False, True])

    def failing(function: Any) -> Any:
        result = recovering(function)
        if next(failures):
            raise RuntimeError(f"{device.name}: the device was lost")
        return result

    monkeypatch.setattr(_engine, "recovering", failing)
    x = nx.Tensor([1.0, -2.0])
    assert backend.relu(x).tolist() == [1.0, 0.0]
    # What only the device has is lost.
    with pytest.raises(RuntimeError, match="lost"):
        backend.relu(x.to(device))
    assert [entry["count"] for entry in backend.placement_report()] == [1]
    # A function that fails itself is called once.
    calls = []

    def wrong(x: nx.Tensor) -> nx.Tensor:
        calls.append(x)
        raise RuntimeError("wrong")

    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="wrong"):
        backend.apply(wrong, x)
    assert len(calls) == 1


def test_running_statistics_move_once_on_a_full_device(on_device: tuple[HardwareBackend, nx.Device]) -> None:
    backend, device = on_device
    x, means = nx.randn(64, 8, 5) + 2, [nx.zeros(8), nx.zeros(8).to(device).evaluate()]
    expected_mean, expected_variance = nx.zeros(8), nx.ones(8)
    expected = nx.functional.batch_norm(x, expected_mean, expected_variance, training=True)
    device.empty_cache()
    device.set_memory_limit(device.memory()["allocated"] + 512)
    for mean in means:
        variance = nx.ones(8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = backend.batch_norm(x, mean, variance, training=True)
        assert nx.allclose(result.cpu(), expected, rtol=1e-4, atol=1e-4)
        assert nx.allclose(mean.cpu(), expected_mean, rtol=1e-4) and nx.allclose(variance, expected_variance, rtol=1e-4)


def test_a_device_refuses_wrong_arguments(on_device: tuple[HardwareBackend, nx.Device]) -> None:
    refused(on_device[0])


def test_a_device_is_selected_by_itself_too(on_device: tuple[HardwareBackend, nx.Device]) -> None:
    backend, device = on_device
    backend.select_device(None)
    assert backend.relu(nx.ones(2)).device == nx.Device(backend.get_device_info(0)["device"])
    backend.select_device(device)
    assert backend.relu(nx.ones(2)).device == device
    with pytest.raises(ValueError, match=f"no device cpu: .*{device.name}.* found for"):
        backend.select_device(nx.Device("cpu"))


@pytest.mark.parametrize("there", [False, True])
def test_a_compiled_function_refuses_a_backend_whose_report_changes(
    on_device: tuple[HardwareBackend, nx.Device], there: bool
) -> None:
    backend, device = on_device
    x = nx.ones(4).to(device if there else "cpu")
    backend.relu(x)
    with pytest.raises(RuntimeError, match=r"compile: .*\._report changes while the function runs"):
        nx.compile(lambda x: backend.relu(x))(x)


def test_a_model_stays_where_it_is_if_the_device_is_full(
    on_device: tuple[HardwareBackend, nx.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = on_device[1]
    monkeypatch.setattr(DirectMLBackend, "kind", device.type)
    monkeypatch.setattr(DirectMLBackend, "_describe", lambda self, device: {"float16": True})
    backend = DirectMLBackend()
    backend.select_device(device)
    model, x = nx.nn.Sequential(nx.nn.Linear(67, 65), nx.nn.Linear(65, 3)), nx.randn(2, 67)
    expected = model(x)
    device.empty_cache()
    device.set_memory_limit(device.memory()["allocated"] + 4096)
    with pytest.warns(FallbackWarning, match="optimize_model runs on the CPU: .*out of memory.*stays on cpu as it was") as noted:
        assert backend.optimize_model(model) is model
    assert len(noted) == 1 and noted[0].filename == __file__
    assert {(p.device, p.dtype) for p in model.parameters()} == {(nx.Device("cpu"), nx.float32)}
    assert model.computation_dtype is None and nx.array_equal(model(x), expected)
    [entry] = backend.placement_report()
    assert (entry["operation"], entry["device"]) == ("optimize_model", "cpu") and "out of memory" in entry["reason"]
    nx.set_strict_placement(True)
    with pytest.raises(MemoryError, match="^optimize_model: strict mode excludes the CPU, and .*out of memory"):
        backend.optimize_model(model)
    device.set_memory_limit(None)
    backend.optimize_model(model, "mixed")
    assert {(p.device, p.dtype) for p in model.parameters()} == {(device, nx.float32)}


FEATURES = [
    "vendor 0x10de", "device 0x2684", "24326 MiB dedicated", "16279 MiB shared", "driver 32.0.15.6094",
    "feature level 12.2", "shader model 6.6", "DirectML 6.4", "float16", "DXC",
]  # fmt: skip


def test_the_properties_of_a_directml_device() -> None:
    told = directml._properties(FEATURES)
    assert told == {
        "vendor": "NVIDIA", "vendor_id": 0x10DE, "device_id": 0x2684, "dedicated_memory": 24326 << 20,
        "shared_memory": 16279 << 20, "driver_version": "32.0.15.6094", "feature_level": "12.2",
        "shader_model": "6.6", "directml_feature_level": "6.4", "float16": True, "software": False,
    }  # fmt: skip
    assert directml._properties(["vendor 0x1af4", "software"]) == {
        "vendor": "0x1af4", "vendor_id": 0x1AF4, "float16": False, "software": True,
    }  # fmt: skip
    backend = DirectMLBackend()
    for index in range(backend.get_device_count()):
        info = backend.get_device_info(index)
        assert info["device"] == f"directml:{index}" and info["name"] and info["type"] == "GPU"
        assert set(told) <= set(info) and info["memory"] > 0


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_a_model_for_directml_has_the_precision() -> None:
    backend, x = DirectMLBackend(), nx.randn(4, 8)
    for precision, weights in (("float16", nx.float16), ("fp16", nx.float16), ("mixed", nx.float32), ("float32", nx.float32)):
        model = nx.nn.Sequential(nx.nn.Linear(8, 8), nx.nn.ReLU(), nx.nn.Linear(8, 2))
        expected = model(x)
        if backend.get_device_count() and not backend.get_device_info(0)["float16"]:
            weights = nx.float32
        optimized = backend.optimize_model(model, precision=precision)
        assert optimized is model and all(p.dtype == weights for p in model.parameters())
        result = optimized(x.to(model[0].weight.device))
        assert nx.allclose(result.float().cpu(), expected, rtol=1e-2, atol=1e-2)
    for precision in ("int3", nx.float64):
        with pytest.raises(ValueError, match="'float32', 'float16', 'mixed'"):
            backend.optimize_model(nx.nn.Linear(1, 1), precision=precision)
    with pytest.raises(TypeError, match="optimize_model: precision must be a string or a dtype, got list"):
        backend.optimize_model(nx.nn.Linear(1, 1), precision=["float16"])
    with pytest.raises(TypeError, match=r"expected neurenix.nn.Module"):
        backend.optimize_model(3)
    [entry] = backend.placement_report()
    assert entry["operation"] == "optimize_model" and entry["count"] == 4


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning", "ignore::UserWarning")
def test_a_model_may_change_its_precision_again() -> None:
    directml, tensor_cores = DirectMLBackend(), TensorCoresBackend()
    for backend, half, full in ((directml, nx.float16, nx.float32), (directml, "fp16", "mixed"), (tensor_cores, "bf16", "mixed")):
        model = nx.nn.Linear(4, 4)
        backend.optimize_model(model, half)
        result = backend.optimize_model(model, full)(nx.ones(1, 4).to(model.weight.device))
        assert model.weight.dtype == nx.float32
        assert result.dtype == nx.float32 or full == "mixed"
