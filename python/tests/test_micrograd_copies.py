"""Pickles and copies of `micrograd_rs`."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from micrograd_rs import MLP, Device, Layer, Neuron, Tensor, Value, ValueBatch


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


both = pytest.mark.parametrize("copied", [pickled, copy.deepcopy])


@both
def test_a_value_comes_back_with_number_and_gradient_and_without_its_graph(copied: Callable[[Any], Any]) -> None:
    a = Value(0.1)
    b = a * 3 + 1
    b.backward()
    c, d = copied(a), copied(b)
    assert (c.data, c.grad, d.data, d.grad) == (0.1, 3.0, b.data, 1.0)
    assert (d._op, d._prev, b._op) == ("", [], "+") and d.device == Device.CPU
    d.backward()
    (c * c).backward()
    assert (a.grad, c.grad) == (3.0, 3.2), "the copy has a gradient of its own"


@both
@pytest.mark.parametrize("number", [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308])
def test_every_number_comes_back(copied: Callable[[Any], Any], number: float) -> None:
    value = Value(number)
    value.grad = -number
    other = copied(value)
    assert (other.data.hex(), other.grad.hex()) == (value.data.hex(), value.grad.hex())


@both
def test_a_value_at_the_end_of_a_long_chain(copied: Callable[[Any], Any]) -> None:
    value = Value(1.0)
    for _ in range(100_000):
        value = value + 1.0
    assert copied(value).data == 100_001.0


@both
@pytest.mark.parametrize(
    "make",
    [
        lambda: Neuron(3),
        lambda: Neuron(3, nonlin=False),
        lambda: Neuron(0),
        lambda: Layer(3, 2),
        lambda: Layer(3, 1, False),
        lambda: Layer(3, 0),
        lambda: MLP(3, [4, 4, 1]),
        lambda: MLP(3, [2]),
        lambda: MLP(3, []),
    ],
)
def test_networks_come_back_with_values_and_gradients(copied: Callable[[Any], Any], make: Callable[[], Any]) -> None:
    random.seed(5)
    model = make()
    x = [Value(0.5), Value(-1.0), Value(2.0)] if repr(model) != "ReLUNeuron(0)" else []

    def results(network: Any) -> list[Value]:
        result = network(x)
        return result if isinstance(result, list) else [result]

    for value in results(model):
        value.backward()
    other = copied(model)
    assert type(other) is type(model) and repr(other) == repr(model)
    mine, theirs = model.parameters(), other.parameters()
    assert [(p.data, p.grad) for p in theirs] == [(p.data, p.grad) for p in mine]
    assert not set(mine) & set(theirs)
    assert [value.data for value in results(other)] == [value.data for value in results(model)]
    before = [(p.data, p.grad) for p in mine]
    other.zero_grad()
    for p in theirs:
        p.data += 1.0
    assert [(p.data, p.grad) for p in mine] == before, "the copy has parameters of its own"
    assert [(p.data, p.grad) for p in theirs] == [(p.data + 1.0, 0.0) for p in mine]


@both
def test_values_that_are_shared_stay_shared(copied: Callable[[Any], Any]) -> None:
    model = MLP(2, [3, 1])
    other, parameters, again = copied((model, model.parameters(), model))
    assert again is other and other.parameters() == parameters
    a = Value(1.0)
    first, second = copied([a, a])
    assert first is second


def test_a_shallow_copy_has_the_same_parameters() -> None:
    model = MLP(2, [3, 1])
    other = copy.copy(model)
    assert other is not model and other.parameters() == model.parameters()
    x = [Value(1.0), Value(2.0)]
    assert other(x).data == model(x).data


def test_training_goes_on_in_another_process() -> None:
    random.seed(2)
    model = MLP(2, [3, 1])
    x = [Value(0.25), Value(-0.5)]
    program = (
        "import pickle, sys; model, x = pickle.loads(bytes.fromhex(sys.argv[1])); y = model(x); y.backward();"
        "print(pickle.dumps((y.data, [p.grad for p in model.parameters()])).hex())"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, pickle.dumps((model, x)).hex()], check=True, capture_output=True, text=True
    )
    y = model(x)
    y.backward()
    assert pickle.loads(bytes.fromhex(told.stdout.strip())) == (y.data, [p.grad for p in model.parameters()])


@both
def test_batches_and_tensors(copied: Callable[[Any], Any]) -> None:
    for array in (ValueBatch([1.0, 2.5], dtype="f32"), Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1.5]], dtype="bf16")):
        result = array * 2.0 + array
        result.backward()
        for one in (array, result):
            other = copied(one)
            assert type(other) is type(one) and (other.dtype, other.shape) == (one.dtype, one.shape)
            assert (other.data, other.grad, other.device) == (one.data, one.grad, one.device)
        other.data = other.numpy() * 0.0
        other.backward()
        (copied(array) * 3.0).backward()
        assert array.data == copied(array).data and result.data != other.data


@both
def test_devices(copied: Callable[[Any], Any]) -> None:
    assert copied(Device.CPU) == Device.CPU and copied(Device.GPU) == 1
    assert str(copied(Device.GPU)) == "GPU"


def test_what_comes_from_a_device_that_is_not_there_is_on_the_cpu() -> None:
    value = Value._restored(2.0, 3.0, "cuda:99")
    assert (value.data, value.grad, value.device) == (2.0, 3.0, Device.CPU)
    assert Device._restored("cuda:99") == Device.CPU
    neuron = Neuron._restored((1, "cuda:99", [(False, [Value(2.0), Value(1.0)])]))
    assert neuron([Value(3.0)]).data == 7.0


def test_pickles_that_do_not_fit_are_refused() -> None:
    leaf = Value(1.0)
    with pytest.raises(ValueError, match="a neuron with 3 inputs cannot have 2 parameters"):
        Neuron._restored((3, "cpu", [(True, [leaf, leaf])]))
    with pytest.raises(ValueError, match="leaf values"):
        Layer._restored((1, "cpu", [(True, [leaf + leaf, leaf])]))
    with pytest.raises(ValueError, match="one neuron, got 2"):
        Neuron._restored((0, "cpu", [(True, [leaf]), (True, [leaf])]))
    with pytest.raises(TypeError):
        MLP._restored([(1, "cpu", [(True, [1.0, 2.0])])])
