"""Numerical edge cases: out-of-range casts, NaN in sorting, probabilities, undefined gradients."""

from __future__ import annotations

import math

import neurenix as nx
import numpy as np
import pytest

INF, NAN = math.inf, math.nan
BEYOND = [INF, -INF, NAN, 300.7, -300.7, 1e20, -1e20, -0.9, 2.9, -2.9]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_floats_beyond_an_integer_type_become_its_limits(source: str, name: str) -> None:
    limits = nx.iinfo(name)
    given = nx.tensor(BEYOND, dtype=source)
    # Converted on the device, and as a constant when the graph is recorded.
    computed = (given * nx.ones(len(BEYOND), dtype=source)).to(name).tolist()
    for x, found in zip(given.double().tolist(), computed, strict=True):
        expected = 0 if math.isnan(x) else limits.max if x == INF else limits.min if x == -INF else math.trunc(x)
        assert found == min(max(expected, limits.min), limits.max), x
    assert nx.full((2,), INF, dtype="float64").to(name).tolist() == [limits.max] * 2
    assert nx.tensor([NAN, -1.0, 0.0]).to("bool").tolist() == [True, True, False]


# The array API standard's special cases of floor division, in which Python and NumPy differ from it.
LIMITS = [
    (INF, 2.0, INF),
    (INF, -2.0, -INF),
    (-INF, 2.0, -INF),
    (-INF, -2.0, INF),
    (1.0, INF, 0.0),
    (1.0, -INF, -0.0),
    (-1.0, INF, -0.0),
    (-1.0, -INF, 0.0),
    (0.0, 3.0, 0.0),
    (-0.0, 3.0, -0.0),
    (0.0, -3.0, -0.0),
    (-0.0, -3.0, 0.0),
    (1.0, -0.0, -INF),
    (INF, INF, NAN),
    (0.0, -0.0, NAN),
    (NAN, INF, NAN),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floor_divide_with_infinities_and_zeros(dtype: str) -> None:
    dividends, divisors, _ = zip(*LIMITS, strict=True)
    found = (nx.tensor(dividends, dtype=dtype) // nx.tensor(divisors, dtype=dtype)).tolist()
    for case, quotient in zip(LIMITS, found, strict=True):
        np.testing.assert_equal(quotient, case[2], err_msg=str(case))
        assert math.isnan(quotient) or math.copysign(1, quotient) == math.copysign(1, case[2]), case
    for zero, divisor in [(0.0, 3.0), (-0.0, 3.0), (0.0, -3.0), (-0.0, -3.0)]:
        rest = (nx.tensor([zero], dtype=dtype) % nx.tensor([divisor], dtype=dtype)).item()
        assert rest == 0 and math.copysign(1, rest) == math.copysign(1, divisor)


def test_casts_between_integers_keep_the_low_bits() -> None:
    assert nx.tensor([300, -1, 128]).to("uint8").tolist() == [44, 255, 128]
    assert nx.tensor([300, -129]).to("int8").tolist() == [44, 127]


def test_nan_is_the_greatest_in_every_order() -> None:
    x = nx.tensor([2.0, NAN, INF, -1.0, NAN])
    assert x.argsort().tolist() == [3, 0, 2, 1, 4]
    assert x.argsort(descending=True).tolist() == [1, 4, 2, 0, 3]
    values, indices = x.sort(descending=True)
    assert indices.tolist() == [1, 4, 2, 0, 3] and np.isnan(values.numpy()).tolist() == [True, True, False, False, False]
    assert x.topk(3).indices.tolist() == [1, 4, 2]
    assert x.topk(3, largest=False).indices.tolist() == [3, 0, 2]
    # Long rows use another sorting algorithm.
    many = nx.arange(3000.0)
    many[[7, 2000]] = NAN
    assert many.argsort(descending=True)[:4].tolist() == [7, 2000, 2999, 2998]
    assert many.argsort()[-3:].tolist() == [2999, 7, 2000]


def test_probabilities_are_checked() -> None:
    for wrong in ([0.5, 1.5], [-0.1], [NAN]):
        with pytest.raises(ValueError, match="probability"):
            nx.bernoulli(nx.tensor(wrong))
    with pytest.raises(ValueError, match="probability"):
        nx.zeros(2).bernoulli_(1.5)
    assert nx.bernoulli(nx.tensor([0.0, 1.0, 1.0])).tolist() == [0.0, 1.0, 1.0]
    for replacement in (False, True):
        for weights, match in (([1.0, -1.0], "negative"), ([1.0, NAN], "NaN"), ([1.0, INF], "infinite"), ([0.0, 0.0], "zero")):
            with pytest.raises(ValueError, match=match):
                nx.multinomial(nx.tensor(weights), 1, replacement)
        with pytest.raises(ValueError, match="sum to zero"):
            nx.multinomial(nx.tensor([[1.0, 1.0], [0.0, 0.0]]), 1, replacement)
        with pytest.raises(ValueError, match="at least 1"):
            nx.multinomial(nx.ones(2), 0, replacement)
        with pytest.raises(ValueError, match="1 or 2 dimensions"):
            nx.multinomial(nx.ones(2, 2, 2), 1, replacement)
        with pytest.raises(TypeError, match="int64"):
            nx.multinomial(nx.tensor([1, 2]), 1, replacement)
        assert nx.multinomial(nx.tensor([0.0, 2.0]), 1, replacement).tolist() == [1]
    drawn = nx.compile(lambda p: nx.bernoulli(p))
    assert drawn(nx.ones(3)).tolist() == [1.0] * 3


def test_improbable_indices_are_not_drawn() -> None:
    # One in sixteen draws of a million uniform numbers contains a 0.
    weights = nx.full((1_000_000,), 1e-30)
    weights[0] = 1.0
    assert [nx.multinomial(weights, 1).item() for _ in range(20)] == [0] * 20


def test_the_derivative_of_copysign() -> None:
    x = nx.tensor([2.0, -3.0, 0.0, 5.0], requires_grad=True)
    y = nx.tensor([-1.0, -0.0, 2.0, NAN], requires_grad=True)
    result = nx.copysign(x, y)
    assert result[:3].tolist() == [-2.0, -3.0, 0.0] and abs(result[3].item()) == 5.0
    result[:3].sum().backward()
    assert x.grad[:3].tolist() == [-1.0, 1.0, 0.0] and y.grad.tolist() == [0.0] * 4
    assert math.copysign(1.0, nx.copysign(nx.zeros(1), nx.tensor([-2.0], requires_grad=True)).item()) == -1.0


def test_nextafter_has_no_derivative() -> None:
    x = nx.tensor([1.0, 0.0], requires_grad=True)
    result = nx.nextafter(x, nx.tensor([2.0, -1.0]))
    assert result.tolist() == np.nextafter(np.float32([1, 0]), np.float32([2, -1])).tolist()
    with pytest.raises(RuntimeError, match="nextafter has no gradient"):
        result.sum().backward()
    assert x.grad is None


def test_what_has_no_gradient_is_named_by_the_call() -> None:
    x = nx.ones(2)
    for tensor in (x.sum(), (x * 2).reshape(1, 2).sum(), x.sum().detach(), x.sum().reshape(())):
        with pytest.raises(RuntimeError, match="this tensor has no gradient: it depends on no tensor that requires"):
            tensor.backward()
