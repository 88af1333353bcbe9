"""Scalars and networks of `micrograd_rs` on the CPU, against micrograd's own rules."""

from __future__ import annotations

import gc
import math
import random
import re
import sys
import threading
from pathlib import Path
from typing import Any

import neurenix as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micrograd_rs import MLP, Device, Layer, Neuron, Tensor, Value


class Plain:
    """micrograd's rules in Python, the reference for `Value`."""

    def __init__(self, data: float, prev: tuple[Plain, ...] = (), derivatives: tuple[float, ...] = ()) -> None:
        self.data, self.grad, self.prev, self.derivatives = data, 0.0, prev, derivatives

    def __add__(self, other: Plain) -> Plain:
        return Plain(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Plain) -> Plain:
        return Plain(self.data * other.data, (self, other), (other.data, self.data))

    def __pow__(self, n: float) -> Plain:
        return Plain(self.data**n, (self,), (n * self.data ** (n - 1),))

    def relu(self) -> Plain:
        return Plain(max(self.data, 0.0), (self,), (float(self.data > 0),))

    def tanh(self) -> Plain:
        y = math.tanh(self.data)
        return Plain(y, (self,), (1 - y * y,))

    def backward(self) -> None:
        order: list[Plain] = []
        seen: set[Plain] = set()

        def visit(value: Plain) -> None:
            if value not in seen:
                seen.add(value)
                for operand in value.prev:
                    visit(operand)
                order.append(value)

        visit(self)
        self.grad = 1.0
        for value in reversed(order):
            for operand, derivative in zip(value.prev, value.derivatives, strict=True):
                operand.grad += derivative * value.grad


def test_the_example_of_the_readme_of_micrograd() -> None:
    a, b = Value(-4.0), Value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    assert f"{g.data:.4f}" == "24.7041"
    g.backward()
    assert f"{a.grad:.4f}" == "138.8338"
    assert f"{b.grad:.4f}" == "645.5773"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(-2, 2), min_size=2, max_size=4),
    st.lists(st.tuples(st.sampled_from("+*2rt"), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=25),
)
def test_expressions_are_micrograds_to_the_last_bit(numbers: list[float], steps: list[tuple[str, int, int]]) -> None:
    def build(kind: Any) -> list[Any]:
        values = [kind(number) for number in numbers]
        for operation, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append({"+": a + b, "*": a * b, "2": a * a, "r": a.relu(), "t": a.tanh()}[operation])
        return values

    ours, theirs = build(Value), build(Plain)
    assert [value.data for value in ours] == [value.data for value in theirs]
    ours[-1].backward()
    theirs[-1].backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad == pytest.approx(other.grad, rel=1e-12, abs=1e-12)


def test_operations_and_operands_are_those_of_micrograd() -> None:
    a, b = Value(3.0), Value(2.0)
    assert (a._op, a._prev) == ("", [])
    assert (a + b)._op == "+" and (a + b)._prev == [a, b] and (a + a)._prev == [a, a]
    assert (a * b)._op == "*" and (a * 2)._prev[1].data == 2.0
    assert ((a**3)._op, (a**0.5)._op, (a**-1)._op) == ("**3", "**0.5", "**-1")
    assert a.relu()._op == "ReLU"
    negative = -a
    assert negative._op == "*" and negative._prev[1].data == -1.0
    assert (a - 2)._op == "+" and (a - 2)._prev[1].data == -2.0
    assert (a - b)._prev[1]._op == "*"
    assert (a / b)._op == "*" and (a / b)._prev[1]._op == "**-1"
    assert (1 / a)._prev[0]._op == "**-1" and (2 - a).data == -1.0 and (a / 2).data == 1.5


def test_repr_is_short() -> None:
    a = Value(1)
    assert repr(a) == "Value(data=1, grad=0)"
    a.data, a.grad = 3.5, -0.25
    assert repr(a) == "Value(data=3.5, grad=-0.25)"


@pytest.mark.parametrize(
    ("function", "exact", "derivative"),
    [
        ("exp", math.exp, math.exp),
        ("log", math.log, lambda x: 1 / x),
        ("tanh", math.tanh, lambda x: 1 - math.tanh(x) ** 2),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x)), lambda x: math.exp(-x) / (1 + math.exp(-x)) ** 2),
    ],
)
def test_functions(function: str, exact: Any, derivative: Any) -> None:
    for x in (0.3, 1.0, 4.5):
        value = Value(x)
        result = getattr(value, function)()
        result.backward()
        assert result._op == function
        assert result.data == pytest.approx(exact(x), rel=1e-14)
        assert value.grad == pytest.approx(derivative(x), rel=1e-12)


def test_sigmoid_does_not_overflow() -> None:
    assert Value(-1000.0).sigmoid().data == 0.0 and Value(1000.0).sigmoid().data == 1.0


def test_relu_at_zero_has_no_derivative() -> None:
    a = Value(0.0)
    a.relu().backward()
    assert a.grad == 0.0


def test_gradients_accumulate_and_the_root_is_one() -> None:
    a = Value(2.0)
    b = a * 3
    b.backward()
    b.backward()
    assert (a.grad, b.grad) == (6.0, 1.0)
    c = (a * a) * a
    square = c._prev[0]
    a.zero_grad()
    c.backward()
    c.backward()
    # The gradient of the square accumulates too: 2, then 4.
    assert (square.grad, a.grad) == (4.0, 4 + 8 + 4 + 16)


def test_values_are_compared_by_number_but_equal_only_to_themselves() -> None:
    a, b = Value(1.0), Value(1.0)
    assert a < Value(2.0) and a <= b and a >= 1 and not a > 1.0 and 0.5 < a
    assert a != b and a == a and len({a, b, a}) == 2
    with pytest.raises(TypeError):
        _ = a < "1"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a + "x",
        lambda a: None * a,
        lambda a: a - [1],
        lambda a: {} / a,
        lambda a: a**a,
        lambda a: 2.0**a,
        lambda a: pow(a, 2, 3),
        lambda a: Value("1"),
        lambda a: Value(),
        lambda a: Value(1.0, "cpu"),
        lambda a: a.to("cpu"),
        lambda a: MLP(2, [1])([1.0, 2.0]),
        lambda a: MLP(2, [1])(3.0),
        lambda a: Neuron("2"),
    ],
)
def test_wrong_types_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrong(Value(1.0))


def test_infinities_and_what_is_no_number() -> None:
    assert (Value(1.0) / 0).data == math.inf
    assert math.isnan((Value(-1.0) ** 0.5).data)
    assert repr(Value(math.inf)) == "Value(data=inf, grad=0)"


def test_neurons_are_micrograds() -> None:
    random.seed(5)
    neuron = Neuron(3)
    random.seed(5)
    weights = [random.uniform(-1, 1) for _ in range(3)]
    parameters = neuron.parameters()
    assert [value.data for value in parameters] == [*weights, 0.0]
    x = [Value(0.5), Value(-1.5), Value(2.0)]
    y = neuron(x)
    assert y._op == "ReLU" and y.data == max(sum((w * v.data for w, v in zip(weights, x, strict=True)), 0.0), 0.0)
    assert y._prev[0]._op == "dot" and y._prev[0]._prev == [*parameters[:3], *x, parameters[3]]
    assert Neuron(3, nonlin=False)(x)._op == "dot"
    assert (repr(neuron), repr(Neuron(2, False))) == ("ReLUNeuron(3)", "LinearNeuron(2)")


@pytest.mark.parametrize("make", [lambda: Neuron(2), lambda: Layer(2, 3), lambda: MLP(2, [3, 1])])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_network_says_how_many_inputs_it_takes(make: Any, count: int) -> None:
    with pytest.raises(ValueError, match=f"expects 2 inputs, got {count}"):
        make()([Value(1.0)] * count)
    make()((Value(1.0), Value(2.0)))
    assert Neuron(0)([]).data == 0.0


def test_a_network_says_what_its_inputs_are() -> None:
    with pytest.raises(TypeError, match=r"must be Values, but one has type float: convert each number to a Value"):
        MLP(2, [1])([Value(1.0), 2.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"expects a list or tuple of Values, got an object of type float"):
        MLP(2, [1])(3.0)  # type: ignore[arg-type]


def test_the_parts_of_a_network() -> None:
    model = MLP(2, [3, 1])
    first, last = model.layers
    assert repr(model) == f"MLP of [{first}, {last}]"
    neurons = [*first.neurons, *last.neurons]
    assert [neuron.nonlin for neuron in neurons] == [True, True, True, False]
    # The same values, not copies.
    assert [value for neuron in neurons for value in [*neuron.w, neuron.b]] == model.parameters()
    assert [len(neuron.w) for neuron in neurons] == [2, 2, 2, 3]
    for value in model.parameters():
        value.data = 1.0
    neurons[0].w[0].data = 5.0
    x = [Value(1.0), Value(2.0)]
    assert [value.data for value in first(x)] == [8.0, 4.0, 4.0]  # type: ignore[union-attr]
    assert neurons[0](x).data == 8.0 and neurons[3]([neuron(x) for neuron in neurons[:3]]).data == 17.0
    # These lists are copies: clearing them does not change the network.
    first.neurons.clear()
    neurons[0].w.clear()
    assert len(model.parameters()) == 13
    for name in ("w", "b", "nonlin"):
        with pytest.raises(AttributeError):
            setattr(neurons[0], name, None)
    assert MLP(2, []).layers == [] and Layer(2, 0).neurons == [] and Neuron(0).w == []


def test_a_network_is_the_same_expression_written_out() -> None:
    random.seed(0)
    model = MLP(3, [4, 4, 2])
    assert len(model.parameters()) == 4 * 4 + 5 * 4 + 5 * 2
    rng = random.Random(2)
    for parameter in model.parameters():
        parameter.data = rng.uniform(-1, 1)
    x = [Value(rng.uniform(-1, 1)) for _ in range(3)]
    outputs = model(x)
    (outputs[0] * outputs[1] + outputs[0]).backward()

    copies = [Plain(parameter.data) for parameter in model.parameters()]
    inputs = activations = [Plain(value.data) for value in x]
    left = iter(copies)
    for width, nonlinear in ((4, True), (4, True), (2, False)):
        row = []
        for _ in range(width):
            weights = [next(left) for _ in activations]
            total = next(left)
            for weight, activation in zip(weights, activations, strict=True):
                total = total + weight * activation
            row.append(total.relu() if nonlinear else total)
        activations = row
    (activations[0] * activations[1] + activations[0]).backward()
    assert [value.data for value in outputs] == [value.data for value in activations]
    for mine, other in zip([*model.parameters(), *x], [*copies, *inputs], strict=True):
        assert mine.grad == pytest.approx(other.grad, rel=1e-12, abs=1e-14)
    assert any(value.grad != 0 for value in x)
    model.zero_grad()
    assert all(parameter.grad == 0 for parameter in model.parameters())


def test_layers_and_networks_are_shown() -> None:
    assert repr(Layer(2, 2)) == "Layer of [ReLUNeuron(2), ReLUNeuron(2)]"
    assert repr(MLP(2, [1])) == "MLP of [Layer of [LinearNeuron(2)]]"
    assert len(MLP(10, [20, 20, 1]).parameters()) == 661
    x = [Value(1.0), Value(2.0)]
    assert isinstance(Layer(2, 1)(x), Value) and len(Layer(2, 3)(x)) == 3
    assert isinstance(MLP(2, [3, 1])(tuple(x)), Value)


def test_a_network_learns() -> None:
    random.seed(1)
    model = MLP(2, [8, 1])
    points = [(0.0, 0.0, -1.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, -1.0)]
    losses = []
    for _ in range(200):
        loss = sum((model([Value(a), Value(b)]) - target) ** 2 for a, b, target in points)
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data -= 0.05 * parameter.grad
        losses.append(loss.data)
    assert losses[-1] < 0.02 < losses[0]


def test_devices() -> None:
    assert Device() == Device.cpu() == Device.CPU == 0 and Device.GPU == 1 and Device.CPU != Device.GPU
    assert (int(Device.CPU), int(Device.GPU)) == (0, 1)
    assert (str(Device.CPU), repr(Device.GPU)) == ("CPU", "Device.GPU")
    assert isinstance(Device.is_gpu_available(), bool)
    with pytest.raises(TypeError):
        hash(Device.CPU)
    a = Value(1.0, device=Device.cpu())
    assert a.device == Device.CPU and a.to(Device.cpu()) is a and (a + 1).device == Device.CPU


def test_without_a_gpu_asking_for_one_says_so() -> None:
    if Device.is_gpu_available():
        assert Value(2.0, device=Device.gpu()).device == Device.GPU
        return
    for ask in (Device.gpu, lambda: Value(1.0, device=Device.GPU), lambda: MLP(1, [1], device=Device.GPU)):
        with pytest.raises(RuntimeError) as raised:
            ask()
        assert str(raised.value) == "GPU is not available on this system"
        # Notes give the reason for each kind of device; a traceback shows them below the message.
        notes = raised.value.__notes__  # type: ignore[attr-defined]
        # NPUs are of runtimes that take whole networks.
        kinds = [entry for entry in nx.hardware.report() if not entry["found"] and entry["kind"] != "npu"]
        assert kinds and {f"{entry['device']}: {entry['reason']}" for entry in kinds} <= set(notes)
        devices = [entry for entry in nx.hardware.report() if entry["kind"] != "npu"]
        emulators = [entry["device"] for entry in devices if entry.get("nature") == "emulator"]
        assert {f"{name}: an emulator, not hardware" for name in emulators} <= set(notes)
        assert len(notes) == len(kinds) + len(emulators)


def test_chains_of_a_million_values() -> None:
    start = value = Value(1.0)
    for _ in range(1_000_000):
        value = value + 1e-6
    value.backward()
    assert start.grad == 1.0 and value.data == pytest.approx(2.0)
    # Dropping the chain must not exhaust the stack either.
    del value
    deep = start
    for _ in range(1_000_000):
        deep = deep.relu()
    del deep


def test_dropped_expressions_are_freed() -> None:
    def work() -> None:
        for _ in range(25_000):
            a, b = Value(2.0), Value(3.0)
            (a * b + a).backward()

    work()
    gc.collect()
    before = sys.getallocatedblocks()
    work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100


def test_training_does_not_grow() -> None:
    model = MLP(4, [8, 1])
    x = [Value(0.1 * k) for k in range(4)]

    def step() -> None:
        loss = (model(x) - 1.0) ** 2
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.data -= 0.01 * parameter.grad

    for _ in range(10):
        step()
    before = sys.getallocatedblocks()
    for _ in range(500):
        step()
    assert sys.getallocatedblocks() - before < 100


def test_threads_may_share_values() -> None:
    shared = Value(2.0)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(500):
                (shared * 3 + shared.relu()).backward()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and shared.grad == 4 * 500 * 4.0


def test_the_documentation_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "micrograd.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})


def test_numbers_that_are_replaced_leave_earlier_results_whole() -> None:
    a = Tensor([1.0, 2.0])
    before = a * a
    a.data = [5.0, 6.0]
    both = (before + a * 3.0).sum()
    assert before.data == [1.0, 4.0] and both.data == 38.0
    both.backward()
    assert a.grad == [5.0, 7.0], "twice the old numbers from the square, and three from the product"
    a.zero_grad()
    (a * a).sum().backward()
    assert a.grad == [10.0, 12.0]
    v = Value(2.0)
    square = v * v
    v.data = 5.0
    square.backward()
    assert v.grad == 10.0, "as in micrograd"
