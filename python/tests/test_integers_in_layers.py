"""Integers in pooling and activations. Expected numbers are PyTorch's (2.15), or follow from the definition."""

from __future__ import annotations

import itertools
from typing import Any

import neurenix as nx
import numpy as np
import pytest

F = nx.nn.functional
X = [0, 1, 2, 3, 4, 5, 7, 8]


def test_average_pooling_has_the_numbers_of_pytorch() -> None:
    x = nx.tensor([X])
    assert F.avg_pool1d(x, 3).tolist() == [[1, 4]] and F.avg_pool1d(x, 3).dtype == nx.int64
    assert F.avg_pool1d(x, 3, 2, 1).tolist() == [[0, 2, 4, 6]]
    assert F.avg_pool1d(x, 3, 3, 0, True).tolist() == [[1, 4, 7]]
    assert F.avg_pool2d(x.reshape(1, 2, 4), 2).tolist() == [[[2, 5]]]
    assert F.avg_pool2d(x.reshape(1, 2, 4), 2, divisor_override=3).tolist() == [[[3, 6]]]
    assert F.avg_pool3d(x.reshape(1, 2, 2, 2), 2).tolist() == [[[[3]]]]
    assert nx.nn.AvgPool1d(3)(x - 3).tolist() == [[-2, 1]]
    large = nx.tensor([[2**53 + 1, 2**60 + 1, -3, 5, -5]])
    assert F.avg_pool1d(large, 2).tolist() == [[580964351930793985, 1]]
    assert F.avg_pool1d(large, 3, 2, 1, True, False).tolist() == [[580964351930793985, 384307168202282326, 0]]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "ceil_mode", "include"),
    list(itertools.product([2, 3], [1, 2, 4], [0, 1], [False, True], [False, True])),
)
def test_average_pooling_of_integers_truncates_that_of_floats(
    kernel: int, stride: int, padding: int, ceil_mode: bool, include: bool
) -> None:
    x = nx.asarray(np.random.default_rng(0).integers(-50, 50, (2, 3, 6, 5)))
    found = F.avg_pool2d(x, kernel, stride, padding, ceil_mode, include)
    expected = F.avg_pool2d(x.double(), kernel, stride, padding, ceil_mode, include)
    # Quotients of small integers are as far from the next integer as 1 / 9, or are one.
    assert found.tolist() == (expected + expected.sign() * 1e-9).trunc().long().tolist()


@pytest.mark.parametrize("dtype", [nx.int64, nx.int32, nx.int16, nx.int8])
def test_activations(dtype: Any) -> None:
    y = (nx.arange(8) - 3).to(dtype)
    for found, expected in [
        (F.hardtanh(y), [-1, -1, -1, 0, 1, 1, 1, 1]),
        (F.hardtanh(y, -1.5, 2.7), [-1, -1, -1, 0, 1, 2, 2, 2]),
        (F.relu6(y * 3), [0, 0, 0, 0, 3, 6, 6, 6]),
        (F.threshold(y, 1, -7), [-7, -7, -7, -7, -7, 2, 3, 4]),
        (F.threshold(y, 1.5, 2.7), [2, 2, 2, 2, 2, 2, 3, 4]),
    ]:
        assert found.dtype == dtype and found.tolist() == expected
    softsign = F.softsign(y)
    assert softsign.dtype == nx.float32
    np.testing.assert_allclose(softsign.numpy(), [-3 / 4, -2 / 3, -1 / 2, 0, 1 / 2, 2 / 3, 3 / 4, 4 / 5], rtol=1e-6)
    assert F.hardtanh_(y) is y and y.tolist() == [-1, -1, -1, 0, 1, 1, 1, 1]


def test_unsigned_integers_have_no_negative_limit() -> None:
    assert F.hardtanh(nx.arange(5).to(nx.uint8), -1, 3).tolist() == [0, 1, 2, 3, 3]
    assert F.hardtanh(nx.arange(5).to(nx.uint8), 1, 3).tolist() == [1, 1, 2, 3, 3]


def test_refusals() -> None:
    x = nx.tensor([X])
    with pytest.raises(ValueError, match="at most half"):
        F.avg_pool1d(x, 2, 1, 2)
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        F.avg_pool1d(x[0], 2)
    with pytest.raises(TypeError, match="int32"):
        F.avg_pool1d(x.int(), 2)
    for function in (F.hardtanh, F.softsign):
        with pytest.raises(TypeError, match="bool"):
            function(x > 3)
