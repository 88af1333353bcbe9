"""The class `Value` of `micrograd_rs`, built on the C API: accepted and refused operands, references, and memory."""

from __future__ import annotations

import gc
import sys
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from micrograd_rs import Device, Layer, Neuron, Tensor, Value, ValueBatch


@pytest.mark.parametrize(
    "number",
    [3, -1, True, 2**53 + 1, -(2**80), 0.5, float("inf"), np.float64(1.5), np.float32(1.5), np.int64(4), Fraction(1, 4)],
)
def test_numbers_of_every_kind_are_operands(number: Any) -> None:
    a, real = Value(2.0), float(number)
    assert [(a + number).data, (number + a).data] == [2.0 + real] * 2
    assert [(a * number).data, (number * a).data] == [2.0 * real] * 2
    assert [(a - number).data, (number - a).data] == [2.0 - real, real - 2.0]
    assert [(a / number).data, (number / a).data] == [pytest.approx(2.0 / real), real / 2.0]
    with np.errstate(all="ignore"):
        assert (a**number).data == pytest.approx(np.power(2.0, real))
    assert (a < number, a <= number, a > number, a >= number) == (2.0 < real, 2.0 <= real, 2.0 > real, 2.0 >= real)
    assert (number < a, number >= a) == (real < 2.0, real >= 2.0)


SCALARS = [
    *(np.float64(3.0), np.float32(3.0), np.float16(3.0), np.int64(3), np.uint8(3)),
    *(np.array(3.0), np.array(3), np.array(3, "f4")),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: f"{type(scalar).__name__}-{scalar.dtype}")
@pytest.mark.parametrize("kind", [Value, ValueBatch, Tensor])
def test_scalars_of_numpy_are_operands_on_both_sides(kind: Any, scalar: Any) -> None:
    a = kind(2.0) if kind is not ValueBatch else kind([2.0])
    results = [a + scalar, scalar + a, a - scalar, scalar - a, a * scalar, scalar * a, a / scalar, scalar / a, a**scalar]
    assert {type(result) for result in results} == {kind}
    numbers = [float(np.squeeze(result.data)) for result in results]
    assert numbers == pytest.approx([5.0, 5.0, -1.0, 1.0, 6.0, 6.0, 2 / 3, 1.5, 8.0])
    assert np.all(a < scalar) and np.all(scalar > a) and not np.any(a >= scalar)
    (scalar * a).backward()
    assert np.squeeze(a.grad) == 3.0
    with pytest.raises(TypeError):
        _ = scalar**a


@pytest.mark.parametrize("kind", [Value, ValueBatch, Tensor])
@pytest.mark.parametrize("array", [np.array([3.0]), np.array([1.0, 2.0]), np.array([[1, 2]]), np.array([object()])])
def test_arrays_of_numpy_do_not_become_arrays_of_objects(kind: Any, array: Any) -> None:
    a = kind([2.0, 3.0]) if kind is not Value else kind(2.0)
    for operator in (lambda: a * array, lambda: array * a, lambda: array + a, lambda: a - array, lambda: a**array):
        with pytest.raises(TypeError):
            operator()
    with pytest.raises(TypeError):
        array *= a


class Failing:
    def __float__(self) -> float:
        raise KeyError("asked")


OPERATORS = [
    lambda a, b: a + b,
    lambda a, b: b + a,
    lambda a, b: a - b,
    lambda a, b: b - a,
    lambda a, b: a * b,
    lambda a, b: b * a,
    lambda a, b: a / b,
    lambda a, b: b / a,
    lambda a, b: a**b,
    lambda a, b: a < b,
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("operand", "error"), [(10**400, OverflowError), (Failing(), KeyError), ("1", TypeError), (None, TypeError)]
)
def test_what_is_no_number_of_this_size_is_refused(operator: Any, operand: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        operator(Value(1.0), operand)


def test_arguments_have_positions_and_names() -> None:
    assert Value(data=1).data == 1.0 and Value(1.0, None).device == Device.CPU
    a = Value(device=Device.CPU, data=2.5)
    assert a.data == 2.5 and a.to(device=Device.CPU) is a


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: Value(1.0, Device.CPU, 3),
        lambda a: Value(1.0, data=1.0),
        lambda a: Value(1.0, place=Device.CPU),
        lambda a: Value(device=Device.CPU),
        lambda a: a.to(),
        lambda a: a.to(Device.CPU, Device.CPU),
        lambda a: a.to(place=Device.CPU),
        lambda a: a.relu(1),
        lambda a: Value.relu(1.0),
        lambda a: Value.__add__(1.0, a),
        lambda a: Value._restored(1.0, 2.0),
        lambda a: Value._restored("1", 2.0, "cpu"),
        lambda a: setattr(a, "data", "1"),
        lambda a: setattr(a, "grad", None),
        lambda a: type("Mine", (Value,), {}),
    ],
)
def test_wrong_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrong(Value(1.0))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: delattr(a, "data"),
        lambda a: delattr(a, "grad"),
        lambda a: setattr(a, "_op", ""),
        lambda a: setattr(a, "other", 1),
        lambda a: a.other,
    ],
)
def test_attributes_are_those_of_the_class(wrong: Any) -> None:
    with pytest.raises(AttributeError):
        wrong(Value(1.0))


def test_the_class_says_what_it_is() -> None:
    assert (Value.__module__, Value.__qualname__, Value.__mro__) == ("micrograd_rs", "Value", (Value, object))
    assert "A number on a device" in (Value.__doc__ or "") and Value.__array_ufunc__ is None  # type: ignore[attr-defined]
    for name in ("relu", "exp", "log", "tanh", "sigmoid", "to", "backward", "zero_grad"):
        assert getattr(Value, name).__doc__ and getattr(Value, name).__text_signature__.startswith("($self")
    a = Value(2.0)
    assert Value.__radd__(a, 3.0).data == 5.0 and Value.__rsub__(a, 3.0).data == 1.0
    assert hash(a) == hash(a) and a.relu.__self__ is a  # type: ignore[attr-defined]


def test_a_number_among_operands_is_a_leaf_with_a_gradient() -> None:
    a = Value(3.0)
    product = a * 2
    leaf = product._prev[1]
    assert leaf is product._prev[1] and (leaf.data, leaf._op) == (2.0, "")
    product.backward()
    assert (leaf.grad, a.grad) == (3.0, 2.0)
    leaf.data = 5.0
    product.backward()
    assert (leaf.grad, a.grad) == (6.0, 7.0)


def test_references_are_given_back() -> None:
    a, b = Value(2.0), Value(3.0)
    neuron = Neuron(2)

    def work() -> None:
        calls: list[Any] = [*OPERATORS, lambda a, b: Value(a), lambda a, b: a.to(b), lambda a, b: Value(1.0, place=b)]
        for call in calls:
            for operand in (b, 2, 2.5, "1", None, 10**400, Failing(), a):
                try:
                    call(a, operand)
                except (TypeError, OverflowError, KeyError):
                    pass
        (neuron([a, b]) + (-a).relu().exp() - b.tanh()).backward()
        assert a._prev == [] and "Value" in repr(a) and a == a and a.__reduce__()

    work()
    gc.collect()
    counts = sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(Value)
    for _ in range(20):
        work()
    gc.collect()
    assert (sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(Value)) == counts
    # Cycles cannot form, so the garbage collector need not track values.
    assert not gc.is_tracked(a + b)


def test_long_chains_of_every_kind_are_dropped() -> None:
    neuron = Neuron(1, nonlin=False)
    value, other, twin = (Value(1.0) for _ in range(3))
    for _ in range(100_000):
        value = neuron([value])
        other = -(other - 1) / 2
        twin = twin + twin
    del value, other, twin


def test_long_chains_of_neurons_are_differentiated() -> None:
    neuron = Neuron(2, nonlin=False)
    for parameter, number in zip(neuron.parameters(), (0.5, 0.5, 0.0), strict=True):
        parameter.data = number
    start = value = Value(1.0)
    for _ in range(50_000):
        value = neuron([value, value.relu()])
    value.backward()
    assert (value.data, start.grad, neuron.parameters()[2].grad) == (1.0, 1.0, 50_000.0)


def test_results_reached_by_several_ways_pass_on_the_whole_gradient() -> None:
    x = Value(3.0)
    a = x * x
    b = a + x
    c = b * a
    d = (c + a) + b
    e = c.relu() + d
    e.backward()
    assert (d.grad, c.grad, b.grad, a.grad, x.grad) == (1.0, 2.0, 19.0, 44.0, 283.0)
    layer = Layer(2, 2, nonlin=False)
    for parameter, number in zip(layer.parameters(), (1.0, 2.0, 0.0, 3.0, 4.0, 0.0), strict=True):
        parameter.data = number
    y = Value(1.0)
    inputs = [y * 2.0, (y * 3.0).relu()]
    outputs = layer(inputs)
    assert isinstance(outputs, list)
    total = outputs[0] * inputs[0] + outputs[1]
    total.backward()
    # (2y + 6y) * 2y + (6y + 12y)
    assert (total.data, y.grad) == (34.0, 50.0)


def test_values_in_the_memory_of_others_are_new() -> None:
    # More objects than are kept for reuse, then fewer.
    for count in (2000, 300):
        values = [Value(float(n)) ** 2 for n in range(count)]
        for value in values:
            value.backward()
        del values, value
        leaves = [Value(1.0) for _ in range(count)]
        assert all((leaf.data, leaf.grad, leaf._op, leaf._prev) == (1.0, 0.0, "", []) for leaf in leaves)
        assert len({id(leaf) for leaf in leaves}) == count and sys.getrefcount(leaves[0]) == sys.getrefcount(leaves[-1])
        total = sum(leaves, Value(0.0))
        total.backward()
        assert total.data == count and all(leaf.grad == 1.0 for leaf in leaves)


def test_operands_live_as_long_as_somebody_has_them() -> None:
    a = Value(2.0)
    left, right = a * 3.0, a + 1.0
    for _ in range(1000):
        twice = (left * right) + left * left
        square = twice._prev[1]
        del twice
        assert (square.data, [value.data for value in square._prev]) == (36.0, [6.0, 6.0])
        assert square._prev[0] is left
    neuron = Neuron(2, nonlin=False)
    inputs = [left + 1.0, right]
    output = neuron(inputs)
    del neuron, inputs
    operands = output._prev
    del output
    assert [value.data for value in operands[2:]] == [7.0, 3.0, 0.0] and operands[2]._prev[0] is left


def test_values_of_one_thread_are_dropped_by_another() -> None:
    chains = []

    def build() -> None:
        value = Value(1.0)
        for _ in range(20_000):
            value = value * 0.5 + value
        chains.append(value)

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = sys.getallocatedblocks()
    assert len(chains) == 4
    chains.clear()
    # Three values per step, freed immediately and not at the next call of the library.
    assert before - sys.getallocatedblocks() > 4 * 3 * 20_000 - 1000


def test_the_power_of_exponent_zero_has_no_derivative() -> None:
    for number in (0.0, 2.0):
        x = Value(number)
        y = x**0
        y.backward()
        assert y.data == 1.0 and x.grad == 0.0
