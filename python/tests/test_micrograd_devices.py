"""`micrograd_rs` on GPUs, or on this machine's emulators; batches and tensors there and on the CPU."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import sys
import threading
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from micrograd_rs import MLP, Device, Tensor, Value, ValueBatch, autocast
from neurenix import _engine

NAMES = [device.name for device in nx.devices() if device.name != "cpu"]


@pytest.fixture(params=NAMES or [pytest.param(None, marks=pytest.mark.skip(reason="the CPU is the only device"))])
def device(request: pytest.FixtureRequest) -> Any:
    return Device._named(request.param)


def near(device: Any) -> float:
    return 1e-12 if device.dtype == "f64" else 2e-5


def launches(function: Any) -> int:
    """The number of launches of the tape's kernel during a call."""
    with _engine.Profiler() as profiler:
        function()
    return sum(row["count"] for row in profiler.rows() if "micrograd_tape" in row["name"])


def expression(a: Value, b: Value) -> Value:
    c = (a * b + a**2 - b / a).tanh() + (a.exp() * 0.1).log()
    return c + b.sigmoid() - (-b).relu() + 1 / a + a**-2.5 + b**3 + (b - 2) ** 0


def test_an_expression_is_one_launch_and_equals_the_cpus(device: Any) -> None:
    a, b = Value(2.0, device), Value(-3.0, device=device)
    result = expression(a, b)
    assert result.device == device
    assert launches(lambda: result.data) == 1
    assert launches(lambda: (result.data, repr(result), result < 1)) == 0
    here = [Value(2.0), Value(-3.0)]
    expected = expression(*here)
    expected.backward()
    assert result.data == pytest.approx(expected.data, rel=near(device))
    result.backward()
    assert [a.grad, b.grad] == pytest.approx([value.grad for value in here], rel=near(device))
    # Forward and backward pass are one launch.
    again = expression(a, b)
    assert launches(again.backward) == 1
    assert [a.grad, b.grad] == pytest.approx([2 * value.grad for value in here], rel=near(device))


def test_networks(device: Any) -> None:
    results = []
    for place in (device, Device.cpu()):
        random.seed(3)
        model = MLP(3, [4, 4, 1], device=place)
        x = [Value(k / 3, device=place) for k in range(3)]
        for _ in range(3):
            loss = (model(x) - 2.0) ** 2
            model.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                parameter.data -= 0.02 * parameter.grad
        assert all(parameter.device == place for parameter in model.parameters())
        results.append([loss.data, *(parameter.data for parameter in model.parameters()), *(v.grad for v in x)])
    assert results[0] == pytest.approx(results[1], rel=100 * near(device), abs=100 * near(device))


def test_threads_lose_no_gradients(device: Any) -> None:
    shared = Value(2.0, device)

    def work() -> None:
        for _ in range(15):
            (shared * 3.0 + 1.0).backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.grad == 4 * 15 * 3.0


@pytest.mark.parametrize("name", ["cpu", *NAMES])
def test_what_the_first_documentation_shows(name: str) -> None:
    device = Device._named(name)
    a, b = Value(2.0, device=device), Value(3.0, device=device)
    c = a * b + a**2
    c.backward()
    assert c.device == device and (c.data, a.grad, b.grad) == (10.0, 7.0, 2.0)
    model = MLP(10, [20, 20, 1], device=device)
    x = [Value(i, device=device) for i in range(10)]
    y = model(x)
    assert launches(y.backward) == (name != "cpu")
    assert y.grad == 1.0 and any(parameter.grad != 0 for parameter in model.parameters())
    batch = ValueBatch([1.0, 2.0, 3.0], device=device)
    result = batch * 2.0
    tensor = other_tensor = Tensor([[1, 2], [3, 4]], device=device)
    result = tensor @ other_tensor
    assert result.data == [[7.0, 10.0], [15.0, 22.0]]


def test_what_was_recorded_means_the_numbers_of_then(device: Any) -> None:
    a = Value(2.0, device)
    double = a * 2
    a.data = 10.0
    assert double.data == 4.0 and (a * 2).data == 20.0


def test_devices_do_not_mix_but_values_move(device: Any) -> None:
    a = Value(2.0)
    there = (a * 3).to(device)
    with pytest.raises(ValueError, match=r"different devices.*\.to\(\)"):
        _ = a + there
    with pytest.raises(ValueError, match=r"different devices.*\.to\(\)"):
        MLP(1, [1])([there])
    assert there._op == "to_device" and there.device == device
    back = (there * there + Value(1.0, device)).to(Device.cpu()) * a
    back.backward()
    assert (back.data, a.grad) == (74.0, 37.0 + 2 * 2 * 6 * 3)


def test_long_chains(device: Any) -> None:
    start = value = Value(1.0, device)
    for _ in range(20_000):
        value = value * 1.0
    assert launches(value.backward) == 2 * 8
    assert (value.data, start.grad) == (1.0, 1.0)


def test_many_products_that_share_nothing(device: Any) -> None:
    values = [Value(0.5, device) for _ in range(12_000)]
    total = Value(0.0, device)
    for left, right in zip(values[::2], values[1::2], strict=True):
        total = total + left * right
    total.backward()
    assert total.data == 1500.0 and all(value.grad == 0.5 for value in values)


def test_dropped_expressions_are_freed_on_devices(device: Any) -> None:
    def work() -> None:
        a = Value(1.0, device)
        for _ in range(5_000):
            _ = a * 2 + 1
        _ = (a + 1).data

    work()
    gc.collect()
    before = sys.getallocatedblocks()
    work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 5_000


PLACES = [pytest.param("cpu", id="cpu"), *NAMES]


@pytest.mark.parametrize("name", PLACES)
def test_batches(name: str) -> None:
    place = Device._named(name)
    batch = ValueBatch([1.0, 2.0, 3.0], device=place)
    result = batch * 2.0
    assert result.data == result.tolist() == [2.0, 4.0, 6.0] and result.device == place
    assert isinstance(result.numpy(), np.ndarray) and batch.grad == [0.0, 0.0, 0.0]
    loss = ((1 - result) ** 2 / batch + (-batch).exp() - 2 / batch).sum()
    loss.backward()
    x = np.array([1.0, 2.0, 3.0])
    expected = (-4 * (1 - 2 * x) * x - (1 - 2 * x) ** 2) / x**2 - np.exp(-x) + 2 / x**2
    assert batch.grad == pytest.approx(expected, rel=near(place))
    assert loss.grad == [1.0] and len(batch) == 3
    batch.zero_grad()
    assert batch.grad == [0.0, 0.0, 0.0]
    assert (batch > 1.5) == [False, True, True] and (batch <= result) == [True, True, True]
    for function in ("tanh", "sigmoid", "log", "relu"):
        assert getattr(batch, function)().data == pytest.approx(
            [getattr(Value(v), function)().data for v in (1.0, 2.0, 3.0)], rel=near(place)
        )


@pytest.mark.parametrize("name", PLACES)
def test_tensors(name: str) -> None:
    place = Device._named(name)
    a = Tensor([[1, 2], [3, 4]], device=place)
    b = Tensor([[5.0], [6.0]], device=place)
    product = a @ b
    assert product.data == [[17.0], [39.0]] and product.shape == (2, 1) and a.dtype == place.dtype
    half = product * 0.5
    (half * half).sum().backward()
    assert half.grad == [[17.0], [39.0]]
    assert a.grad == [[42.5, 51.0], [97.5, 117.0]] and b.grad == [[67.0], [95.0]]
    assert np.array_equal(a.numpy(), [[1, 2], [3, 4]]) and (a.T.reshape(4)).tolist() == [1, 3, 2, 4]
    a.data = a.numpy() - 1
    assert a.data == [[0.0, 1.0], [2.0, 3.0]]
    if not name == "cpu":
        with pytest.raises(ValueError, match=r"different devices.*\.to\(\)"):
            _ = a @ Tensor([[1.0], [1.0]])
        leaf = Tensor([[1.0, 2.0]])
        (leaf.to(place) * 3).to(Device.cpu()).backward()
        assert leaf.grad == [[3.0, 3.0]]


@pytest.mark.parametrize(("dtype", "kind"), [("f64", "f8"), ("f32", "f4"), ("f16", "f2"), ("bf16", "f4")])
def test_types(dtype: str, kind: str) -> None:
    batch = ValueBatch([0.5, 2.0], dtype=dtype)
    tensor = Tensor([[0.5, 2.0]], dtype=dtype) @ Tensor([[2.0], [1.0]], dtype=dtype)
    assert batch.dtype == tensor.dtype == dtype and tensor.data == [[3.0]]
    assert (batch * batch).numpy().dtype == np.dtype(kind) and (batch * batch).dtype == dtype


def test_mixed_precision() -> None:
    third = 1 / 3
    a, b = Tensor([[third]], dtype="f32"), Tensor([[5.0]], dtype="f32")
    with autocast("bf16"):
        product = a @ b
    assert product.dtype == "f32" and product.item() != (a @ b).item()
    assert product.item() == pytest.approx(5 / 3, rel=2**-7)
    product.backward()
    assert a.grad == [[5.0]] and a._gradient().dtype == nx.float32
    with autocast("f16", enabled=False):
        assert (a @ b).item() == np.float32(third) * np.float32(5)
    # 1e-9 is zero in f16, so the gradient is scaled during the backward pass.
    a.zero_grad()
    with autocast("f16"):
        tiny = (a @ b) * 1e-9
    tiny.backward()
    assert a.grad[0][0] == pytest.approx(5e-9, rel=1e-3)
    # The scale is reduced for a gradient that scaling would make too large.
    a.zero_grad()
    with autocast("f16"):
        large = (a @ b) * 100.0
    large.backward()
    assert a.grad == [[500.0]]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: ValueBatch([[1.0]]), ValueError),
        (lambda: Tensor([[1.0], [1.0, 2.0]]), ValueError),
        (lambda: ValueBatch([1.0], device="cpu"), TypeError),
        (lambda: ValueBatch(["a"]), TypeError),
        (lambda: ValueBatch([1.0], dtype="i32"), TypeError),
        (lambda: ValueBatch([1.0, 2.0]) + ValueBatch([1.0, 2.0, 3.0]), ValueError),
        (lambda: ValueBatch([1.0]) + Value(1.0), TypeError),
        (lambda: ValueBatch([1.0]) @ ValueBatch([1.0]), TypeError),
        (lambda: Tensor([[1.0]]) @ 2.0, TypeError),
        (lambda: Tensor([[1.0]]) + "a", TypeError),
        (lambda: autocast("f32"), ValueError),
        (lambda: setattr(ValueBatch([1.0]) * 2, "data", [1.0]), ValueError),
    ],
)
def test_mistakes(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()


def test_copies_stay_on_their_device(device: Any) -> None:
    a = Value(2.0, device)
    result = a * 3.0
    model = MLP(2, [2, 1], device=device)
    for copied in (copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))):
        other, network, place = copied(result), copied(model), copied(device)
        assert (other.data, other.device, other._prev, place) == (6.0, device, [], device)
        assert [p.data for p in network.parameters()] == [p.data for p in model.parameters()]
        assert network([a, a]).data == model([a, a]).data and network([a, a]).device == device
        batch = copied(ValueBatch([1.0, 2.0], device))
        assert (batch.data, batch.device) == ([1.0, 2.0], device)
