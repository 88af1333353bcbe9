"""Tensor methods that are written in Python: in-place methods, and errors."""

from __future__ import annotations

import neurenix as nx
import numpy as np
import pytest


def test_methods_in_place_do_what_the_others_do() -> None:
    start, index = nx.arange(12, dtype="float32").reshape(3, 4), nx.tensor([2, 0])
    rows, places = nx.randn(2, 4), nx.tensor([[0, 1, 2, 0], [2, 2, 1, 1]])
    pair, mask, other = (index, nx.tensor([1, 3])), nx.tensor([True, False, True, False]), nx.randn(3, 4)
    for name, args, kwargs in [
        ("scatter", (0, places, rows), {}),
        ("scatter_add", (0, places, rows), {}),
        ("index_add", (0, index, rows), {}),
        ("index_copy", (0, index, rows), {}),
        ("index_fill", (1, index, 5.0), {}),
        ("index_put", (pair, nx.tensor([7.0, 8.0])), {}),
        ("masked_scatter", (mask, nx.randn(6)), {}),
        ("addcmul", (other, other), {"value": 2.0}),
        ("addcdiv", (other, other + 9), {}),
        ("lerp", (other, 0.25), {}),
    ]:
        place = start.clone()
        expected = getattr(place, name)(*args, **kwargs)
        assert nx.array_equal(place, start), name
        assert getattr(place, f"{name}_")(*args, **kwargs) is place
        assert nx.array_equal(place, expected), name
    place = start.clone().index_add_(0, index, rows, alpha=2)
    assert nx.allclose(place, start.index_add(0, index, rows * 2))


def test_random_numbers_in_place() -> None:
    for name, args, mean, spread in [
        ("uniform_", (2.0, 4.0), 3.0, 2 / 12**0.5),
        ("normal_", (1.0, 3.0), 1.0, 3.0),
        ("exponential_", (0.5,), 2.0, 2.0),
        ("bernoulli_", (0.25,), 0.25, (0.25 * 0.75) ** 0.5),
    ]:
        drawn = [getattr(nx.zeros(20_000), name)(*args, generator=nx.Generator().manual_seed(3)) for _ in range(2)]
        assert nx.array_equal(*drawn)
        values = drawn[0].numpy()
        assert abs(values.mean() - mean) < 0.06 * spread + 0.02 and abs(values.std() / spread - 1) < 0.05, name


def test_tensors_like_another() -> None:
    x = nx.zeros(2, dtype="float64")
    assert x.new_tensor([1, 2]).dtype == nx.float64 and x.new_full((2,), 3).tolist() == [3.0, 3.0]
    assert x.new_zeros(2, 3).shape == x.new_ones((2, 3)).shape == x.new_empty(2, 3).shape == (2, 3)
    assert x.new_ones(1, dtype=nx.int64).dtype == nx.int64 and nx.ones(1).type_as(x).dtype == nx.float64
    assert x.nelement() == 2 and x.equal(nx.zeros(2, dtype="float64")) is True and x.equal(nx.zeros(3)) is False
    assert nx.equal(x, x).tolist() == [True, True], "the function is the standard's"
    assert x.allclose(x + 1e-12) and not x.allclose(x + 1)


def test_mistakes() -> None:
    x = nx.randn(3, 4)
    for wrong, error in [
        (lambda: x.kthvalue(5), ValueError),
        (lambda: x.kthvalue(0), ValueError),
        (lambda: x.quantile(1.5), ValueError),
        (lambda: x.quantile(0.5, interpolation="cubic"), ValueError),
        (lambda: nx.zeros(2, 0).median(1), IndexError),
        (lambda: nx.tensor([-1]).bincount(), ValueError),
        (lambda: nx.tensor([0.5]).bincount(), ValueError),
        (lambda: x.histc(0), ValueError),
        (lambda: x.masked_scatter(x == x, nx.ones(3)), ValueError),
        (lambda: x.median(2), IndexError),
        (lambda: x.cdist(nx.ones(2, 3)), ValueError),
        (lambda: x.index_copy(0, nx.tensor([5]), nx.ones(1, 4)).tolist(), IndexError),
    ]:
        with pytest.raises(error):
            wrong()


def test_distances_of_equal_rows_have_a_gradient_of_zero() -> None:
    x = nx.ones(2, 3, requires_grad=True)
    nx.cdist(x, nx.ones(1, 3)).sum().backward()
    assert np.array_equal(x.grad.numpy(), np.zeros((2, 3)))


def test_a_vector_product_is_along_the_first_dimension_of_three() -> None:
    x, y = np.arange(18.0).reshape(2, 3, 3), np.arange(18.0)[::-1].reshape(2, 3, 3) ** 2
    a, b = nx.tensor(x), nx.tensor(y)
    assert np.array_equal(a.cross(b).numpy(), np.cross(x, y, axis=1))
    assert np.array_equal(a.cross(b, dim=-1).numpy(), np.cross(x, y, axis=-1))
    assert np.array_equal(nx.linalg.cross(a, b).numpy(), np.cross(x, y, axis=-1))
    assert np.array_equal(a[0].cross(b).numpy(), np.cross(x[:1], y, axis=1))
    with pytest.raises(ValueError, match=r"cross: .*no dimension of size 3"):
        nx.ones(2, 2).cross(nx.ones(2, 2))


def test_reductions_give_the_dtype_asked_for() -> None:
    x = nx.Tensor([1, 2, 2])
    for given, dtype, value in [
        (x.sum(dtype=nx.float64), nx.float64, 5.0),
        (x.prod(dtype="int32"), nx.int32, 4),
        (x.mean(), nx.float32, np.float32(5 / 3)),
        (x.mean(dtype=nx.float64), nx.float64, 5 / 3),
        (x.mean(dtype=nx.int64), nx.int64, 1),
        (x.cumsum(0, dtype=nx.float16)[2], nx.float16, 5.0),
    ]:
        assert given.dtype == dtype and given.item() == value


def test_extremes_by_every_argument() -> None:
    x = nx.Tensor([[3.0, 1.0], [2.0, 4.0]])
    assert x.max().item() == 4.0 and x.min().item() == 1.0
    assert x.max(nx.Tensor(2.5)).tolist() == [[3.0, 2.5], [2.5, 4.0]]
    assert x.min(nx.Tensor(2.5)).tolist() == [[2.5, 1.0], [2.0, 2.5]]
    for greatest in (x.max(1, True), x.max(dim=1, keepdim=True), x.max(axis=-1, keepdims=True)):
        assert greatest.values.tolist() == [[3.0], [4.0]] and greatest.indices.tolist() == [[0], [1]]
    least = x.min(0)
    assert least.values.tolist() == [2.0, 1.0] and least.indices.tolist() == [1, 0]
    assert repr(least).startswith("min(")
    with pytest.raises(TypeError, match="amax or amin"):
        x.max((0, 1))
    with pytest.raises(TypeError, match="same argument"):
        x.min(0, axis=0)
