"""PyTorch's functions outside the array API, and special functions, against NumPy, ``math`` and finite differences."""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Callable

import neurenix as nx
import numpy as np
import pytest
from neurenix import _table

NORMAL = statistics.NormalDist()


def numbers(*shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def derivatives(function: Callable[[nx.Tensor], nx.Tensor], at: list[float]) -> tuple[list[float], list[float]]:
    """The gradient from the graph, and from central differences."""
    x = nx.tensor(at, dtype=nx.float64, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    steps = [1e-5 * max(1e-2, min(abs(each), 1 - abs(each)) if abs(each) < 1 else 1.0) for each in at]
    apart = []
    for place, step in zip(at, steps):
        above, below = (function(nx.tensor([place + side * step], dtype=nx.float64)).item() for side in (1, -1))
        apart.append((above - below) / (2 * step))
    return x.grad.tolist(), apart


def test_functions_do_what_the_methods_do() -> None:
    x, y = nx.Tensor(numbers(3, 4)), nx.Tensor(numbers(4, 3))
    index, mask = nx.tensor([[0, 1, 2, 0], [2, 2, 1, 1]]), x > 0
    rows, order = nx.Tensor(numbers(2, 4)), nx.tensor([2, 0])
    for name, args in [
        ("diag", (x, 1)),
        ("trace", (x,)),
        ("kron", (x, y)),
        ("masked_fill", (x, mask, 2.0)),
        ("scatter", (x, 0, index, rows)),
        ("scatter_add", (x, 0, index, rows)),
        ("index_add", (x, 0, order, rows)),
        ("narrow", (x, 1, 1, 2)),
        ("select", (x, 1, -1)),
        ("ravel", (x,)),
        ("t", (x,)),
        ("swapaxes", (x, 0, 1)),
        ("unflatten", (x, 1, (2, 2))),
        ("take_along_dim", (x, index, 0)),
        ("repeat_interleave", (x, 2, 1)),
        ("rot90", (x,)),
        ("nansum", (x,)),
        ("nanmean", (x,)),
        ("erfc", (x,)),
        ("xlogy", (x.abs(), x.abs())),
    ]:
        assert nx.array_equal(getattr(nx, name)(*args), getattr(args[0], name)(*args[1:])), name
    assert [part.tolist() for part in nx.unbind(x, 1)] == x.numpy().T.tolist() and isinstance(nx.unbind(x), tuple)
    assert nx.array_equal(nx.index_add(x, 0, order, rows, alpha=2), x.index_add(0, order, rows * 2))
    assert nx.array_equal(nx.take_along_dim(x, nx.tensor([11, 0])), x.ravel()[nx.tensor([11, 0])])
    assert nx.repeat_interleave(nx.tensor([5, 6, 7]), nx.tensor([0, 2, 1])).tolist() == [6, 6, 7]
    assert nx.narrow(x, 1, -2, 2).tolist() == x[:, -2:].tolist()
    with pytest.raises(ValueError, match="narrow: start -9 is out of range for size"):
        x.narrow(1, -9, 1)
    assert nx.diag(x, 99).tolist() == nx.diag(x, -99).tolist() == []
    for right, side in [(False, "left"), (True, "right")]:
        found = nx.searchsorted(nx.tensor([1, 2, 2, 3]), nx.tensor([2]), right=right)
        assert found.tolist() == np.searchsorted([1, 2, 2, 3], [2], side).tolist()
    for name, other in [("arcsin", "asin"), ("arccosh", "acosh"), ("arctan2", "atan2"), ("trapz", "trapezoid")]:
        assert inspect.unwrap(getattr(nx, name)) is inspect.unwrap(getattr(nx, other))
    assert nx.is_floating_point(x) is True and nx.is_floating_point(index) is False


def test_cross_takes_the_first_dimension_of_size_3() -> None:
    a, b = numbers(2, 3, 3), numbers(2, 3, 3)[::-1].copy()
    for dim, axis in ((None, 1), (1, 1), (-1, 2)):
        expected = np.cross(a, b, axis=axis)
        assert np.allclose(nx.cross(nx.Tensor(a), nx.Tensor(b), dim).numpy(), expected, atol=1e-12)
    with pytest.raises(ValueError, match="size 3"):
        nx.cross(nx.ones(2), nx.ones(2))


@pytest.mark.parametrize("shapes", [[(), ()], [(2,), (3,)], [(2, 3), (2, 3)], [(2, 3, 4), (2, 3, 4)]])
def test_stacks_are_numpys(shapes: list[tuple[int, ...]]) -> None:
    arrays = [numbers(*shape) for shape in shapes]
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        if shapes[0] == (2,) and name in ("vstack", "dstack", "column_stack"):
            arrays = [arrays[0], arrays[1][:2]]
        found = getattr(nx, name)([nx.Tensor(array) for array in arrays])
        expected = getattr(np, name)(arrays)
        assert found.shape == expected.shape and found.numpy().tolist() == expected.tolist(), name


@pytest.mark.parametrize("k", range(-3, 6))
def test_quarter_turns_are_numpys(k: int) -> None:
    a = np.arange(24).reshape(2, 3, 4)
    for dims in ((0, 1), (1, 0), (1, 2), (-1, 0)):
        assert nx.rot90(nx.Tensor(a), k, dims).tolist() == np.rot90(a, k, dims).tolist()
    with pytest.raises(ValueError, match="two different dimensions"):
        nx.rot90(nx.Tensor(a), k, (0, -3))


@pytest.mark.parametrize("parts", [1, 3, 5, 9, (2, 5), (), (0, 3), (3, 1), (-2,), (4, 20)])
def test_parts_are_numpys(parts: int | tuple[int, ...]) -> None:
    a = np.arange(14).reshape(7, 2)
    expected = [part.tolist() for part in np.array_split(a, parts)]
    assert [part.tolist() for part in nx.tensor_split(nx.Tensor(a), parts)] == expected
    assert len(nx.Tensor(a).tensor_split(2, 1)) == 2
    # NumPy's numbers and arrays, and tensors.
    for given in (np.array(parts), nx.tensor(parts), np.int32(parts) if isinstance(parts, int) else list(map(np.int64, parts))):
        assert [part.tolist() for part in nx.tensor_split(nx.Tensor(a), given)] == expected
    for none in (0, np.int64(-1)):
        with pytest.raises(ValueError, match="at least"):
            nx.tensor_split(nx.Tensor(a), none)


def test_triangles_are_numpys() -> None:
    for row, col, offset in ((3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, 5), (0, 2, 0)):
        assert nx.tril_indices(row, col, offset).tolist() == np.array(np.tril_indices(row, offset, col)).tolist()
        assert nx.triu_indices(row, col, offset).tolist() == np.array(np.triu_indices(row, offset, col)).tolist()
    assert nx.tril_indices(2, 2).dtype == nx.int64 and nx.triu_indices(2, 2, dtype=nx.int32).dtype == nx.int32


def test_membership_and_intervals_are_numpys() -> None:
    a, among = np.array([[1.0, 2.0], [3.0, float("nan")]]), np.array([3.0, 1.0, float("nan")])
    for invert in (False, True):
        assert nx.isin(nx.Tensor(a), nx.Tensor(among), invert=invert).tolist() == np.isin(a, among, invert=invert).tolist()
    assert nx.isin(nx.tensor([1, 2]), 2).tolist() == [False, True] and nx.isin(2, nx.tensor([1, 2])).item() is True
    assert nx.isin(nx.tensor([1, 2]), nx.zeros(0, dtype=nx.int64)).tolist() == [False, False]
    edges, given = np.array([1.0, 3.0, 5.0]), np.array([[0.0, 1.0], [3.0, 9.0]])
    for right in (False, True):
        # NumPy's `right` has the opposite meaning.
        expected = np.digitize(given, edges, right=not right).tolist()
        assert nx.bucketize(nx.Tensor(given), nx.Tensor(edges), right=right).tolist() == expected
    assert nx.bucketize(4.0, nx.Tensor(edges)).item() == 2
    assert nx.bucketize(nx.Tensor(given), nx.Tensor(edges), out_int32=True).dtype == nx.int32


def test_sums_and_means_of_numbers_are_numpys() -> None:
    a = numbers(3, 4)
    a[0, 1] = a[2, 2] = float("nan")
    for dim in (None, 0, 1, (0, 1)):
        for keepdim in (False, True):
            x = nx.Tensor(a)
            assert np.allclose(nx.nansum(x, dim, keepdim).numpy(), np.nansum(a, dim, keepdims=keepdim))
            assert np.allclose(x.nanmean(dim, keepdim).numpy(), np.nanmean(a, dim, keepdims=keepdim))
    x = nx.tensor([1.0, float("nan"), 3.0], requires_grad=True)
    x.nanmean().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5, 0.0, 0.5]
    assert nx.nansum(nx.tensor([1, 2])).item() == 3 and math.isnan(nx.tensor([float("nan")]).nanmean().item())
    with pytest.raises(TypeError, match="nanmean"):
        nx.nanmean(nx.tensor([1]))


def test_powers_at_equal_distances_and_integrals_are_numpys() -> None:
    assert np.allclose(nx.logspace(-1, 2, 5, dtype=nx.float64).numpy(), np.logspace(-1, 2, 5), rtol=1e-12)
    assert np.allclose(nx.logspace(0, 3, 4, 2).numpy(), [1, 2, 4, 8]) and nx.logspace(0, 1, 3).dtype == nx.float32
    y, x = numbers(3, 5), np.cumsum(np.abs(numbers(5)))
    integral = (np.diff(x) * (y[:, 1:] + y[:, :-1]) / 2).sum(1)
    assert np.allclose(nx.trapezoid(nx.Tensor(y), nx.Tensor(x)).numpy(), integral)
    even = (y[1:] + y[:-1]).sum(0) / 4
    assert np.allclose(nx.trapezoid(nx.Tensor(y), dx=0.5, dim=0).numpy(), even)
    assert nx.trapezoid(nx.ones(1)).item() == nx.trapezoid(nx.ones(0)).item() == 0.0
    with pytest.raises(ValueError, match="sample points"):
        nx.trapezoid(nx.ones(3), nx.ones(2))
    with pytest.raises(ValueError, match="at least 1 dimension"):
        nx.trapezoid(nx.ones(()))


def test_methods_beside_functions() -> None:
    a = numbers(3, 3)
    x = nx.Tensor(a)
    assert np.allclose(x.det().item(), np.linalg.det(a)) and np.allclose(x.inverse().numpy(), np.linalg.inv(a))
    assert np.allclose(x.hypot(x + 1).numpy(), np.hypot(a, a + 1)) and x.signbit().tolist() == np.signbit(a).tolist()
    assert x.isclose(x + 1e-12).all() and not x.isclose(x + 1).any()
    assert x.diff().tolist() == nx.diff(x).tolist() and x.diff(2, 0).tolist() == nx.diff(x, n=2, dim=0).tolist()
    assert np.allclose(x.diff(prepend=x).numpy(), np.diff(a, prepend=a))
    assert nx.ones(2, 3, 4).moveaxis(0, -1).shape == (3, 4, 2)
    assert x.H.tolist() == x.mH.tolist() == a.T.tolist() and nx.ones(2, 3, 4).mH.shape == (2, 4, 3)
    assert x.is_cuda is False
    values, inverse, counts = nx.tensor([3, 1, 3]).unique(return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 3], [1, 0, 1], [1, 2])
    assert nx.unique(nx.tensor([2, 1]), False).tolist() == [1, 2]
    assert nx.tensor([[1, 2], [1, 2]]).unique(dim=0).tolist() == [[1, 2]]


def test_whole_numbers_are_drawn_in_place() -> None:
    x = nx.zeros(2000)
    assert x.random_(3, 6) is x and set(x.tolist()) == {3.0, 4.0, 5.0}
    assert set(nx.zeros(2000, dtype=nx.int8).random_(2).tolist()) == {0, 1}
    assert set(nx.zeros(200, dtype=nx.bool).random_().tolist()) == {False, True}
    wide = nx.zeros(2000).random_()
    assert 2**23 < wide.max().item() < 2**24 and wide.min().item() >= 0
    assert nx.zeros(2000, dtype=nx.uint8).random_().max().item() > 200
    first, second = (nx.zeros(9).random_(99, generator=nx.Generator(3, device="cpu")).tolist() for _ in range(2))
    assert first == second
    with pytest.raises(ValueError, match="expected low < high, got 2 and 2"):
        x.random_(2, 2)


def test_random_tensors_like_another() -> None:
    x = nx.zeros(2, 3, dtype=nx.float64)
    for make in (nx.rand_like, nx.randn_like):
        assert make(x).shape == (2, 3) and make(x).dtype == nx.float64 and make(x, dtype=nx.float32).dtype == nx.float32
        assert make(x, requires_grad=True).requires_grad
        assert make(x, generator=nx.Generator(1)).tolist() == make(x, generator=nx.Generator(1)).tolist()
    assert nx.normal(2.0, 0.0, (3,)).tolist() == [2.0] * 3
    drawn = nx.normal(nx.tensor([[0.0], [50.0]]), nx.tensor([1.0, 0.0]))
    assert drawn.shape == (2, 2) and drawn[:, 1].tolist() == [0.0, 50.0] and drawn[0, 0].item() != 0.0
    with pytest.raises(TypeError, match="size"):
        nx.normal(nx.zeros(2), 1.0, (2,))


def test_a_value_can_be_scattered_and_filled_in() -> None:
    x, index = nx.ones(2, 3), nx.tensor([[0, 2]])
    assert x.scatter(1, index, value=5.0).tolist() == [[5.0, 1.0, 5.0], [1.0, 1.0, 1.0]]
    assert nx.scatter(x, 1, index, 5).tolist() == x.scatter(1, index, value=5).tolist()
    assert x.scatter(1, index, 2.0, reduce="add").tolist()[0] == [3.0, 1.0, 3.0]
    assert (x * 3).scatter(1, index, nx.tensor([[2.0, 4.0]]), reduce="multiply").tolist()[0] == [6.0, 3.0, 12.0]
    assert x.clone().scatter_(1, index, value=5.0, reduce="add").tolist()[0] == [6.0, 1.0, 6.0]
    for wrong in ({}, {"src": 1.0, "value": 1.0}):
        with pytest.raises(TypeError, match="src or value"):
            x.scatter(1, index, **wrong)
    with pytest.raises(ValueError, match="multiply"):
        x.scatter(1, index, 1.0, reduce="mean")
    value = nx.tensor(4.0, dtype=nx.float64, requires_grad=True)
    filled = x.masked_fill(nx.tensor([True, False, True]), value)
    filled.sum().backward()
    assert filled.dtype == nx.float32 and filled.tolist() == [[4.0, 1.0, 4.0]] * 2
    assert value.grad is not None and value.grad.item() == 4.0
    assert nx.zeros(2).masked_fill_(nx.tensor([True, False]), nx.tensor(3)).tolist() == [3.0, 0.0]
    with pytest.raises(ValueError, match="0-d tensor"):
        x.masked_fill(x > 0, nx.ones(1))


def test_signatures_of_both_sides() -> None:
    x = nx.Tensor(numbers(3, 4))
    assert nx.topk(x, 2, sorted=False).values.tolist() == x.topk(2)[0].tolist()
    assert nx.diff(x, dim=0).tolist() == nx.diff(x, axis=0).tolist()
    assert nx.array_equal(nx.tensordot(x, x, dims=([0, 1], [0, 1])), nx.tensordot(x, x, axes=2))
    assert nx.tensordot(x, x.mT, 1).shape == (3, 3) and nx.tensordot(x, x, dims=0).shape == (3, 4, 3, 4)
    with pytest.raises(TypeError, match="dims and axes"):
        nx.tensordot(x, x, 1, axes=1)
    assert nx.mean(nx.tensor([1, 2]), dtype=nx.float64).dtype == nx.float64
    assert nx.array_equal(nx.tril(x, 1), nx.tril(x, k=1)) and nx.array_equal(nx.triu(x, -1), nx.triu(x, diagonal=-1))
    assert nx.as_tensor([1, 2], nx.float64).dtype == nx.float64 and nx.as_tensor(x) is x
    with nx.amp.autocast("cpu", nx.bfloat16, cache_enabled=False):
        assert (nx.ones(2, 2) @ nx.ones(2, 2)).dtype == nx.bfloat16


def test_a_number_alone_is_an_nvidia_gpu() -> None:
    if any(device.type == "cuda" for device in nx.devices()):
        assert nx.ones(1).to(0).device.name == "cuda:0"
    else:
        with pytest.raises(ValueError, match="cuda:0"):
            nx.ones(1).to(0)


def test_erfc_is_exact_where_it_is_small() -> None:
    at = [-40.0, -3.0, -0.4, 0.0, 0.1, 0.49, 0.5, 0.51, 1.0, 2.0, 3.99, 4.0, 4.01, 6.0, 9.0, 15.0, 25.0]
    for dtype, error in (("float64", 1e-12), ("float32", 5e-6)):
        kept = [x for x in at if dtype == "float64" or x <= 9]
        found = nx.tensor(kept, dtype=dtype).erfc()
        assert found.dtype.name == dtype
        assert np.allclose(found.numpy(), [math.erfc(x) for x in kept], rtol=error, atol=0)
    edges = nx.erfc(nx.Tensor([float("inf"), -float("inf"), float("nan"), 1e30]))
    assert edges.tolist()[:2] == [0.0, 2.0] and math.isnan(edges[2].item()) and edges[3].item() == 0.0
    assert nx.erfc(nx.tensor([0, 1])).dtype == nx.float32 and nx.erfc(nx.ones(1, dtype=nx.float16)).dtype == nx.float16
    places = [-3.0, -0.4, 0.1, 0.5, 0.7, 1.5, 3.0, 4.0, 4.5, 6.0, 20.0]
    x = nx.tensor(places, dtype=nx.float64, requires_grad=True)
    nx.erfc(x).sum().backward()
    assert x.grad is not None
    exact = [-2 / math.sqrt(math.pi) * math.exp(-place * place) for place in places]
    assert np.allclose(x.grad.numpy(), exact, rtol=1e-9, atol=0)
    assert np.allclose(*derivatives(nx.erfc, [-2.0, 0.2, 0.8, 2.5, 5.0]), rtol=1e-6, atol=1e-12)
    far = nx.tensor([-1e20, 100.0, 1e30], requires_grad=True)
    nx.erfc(far).sum().backward()
    assert far.grad is not None and far.grad.tolist() == [0.0, 0.0, 0.0]


def test_erfinv_is_the_inverse_of_erf() -> None:
    at = [x / 50 for x in range(-49, 50)] + [0.999, 1 - 1e-6, 1 - 2.0**-40, 1 - 2.0**-53, -1 + 2.0**-53, 1e-9]
    found = nx.erfinv(nx.tensor(at, dtype=nx.float64)).tolist()
    for x, y in zip(at, found):
        if abs(x) < 0.85:
            assert math.isclose(y, NORMAL.inv_cdf((1 + x) / 2) / math.sqrt(2), rel_tol=1e-6 if abs(x) < 1e-6 else 1e-12, abs_tol=1e-18)
        else:
            assert math.isclose(math.erfc(abs(y)), 1 - abs(x), rel_tol=1e-10) and (y > 0) == (x > 0)
    low = nx.erfinv(nx.tensor([-0.9, 0.1, 0.999, 1 - 2.0**-24]))
    assert low.dtype == nx.float32
    assert np.allclose([math.erf(y) for y in low.tolist()], [-0.9, 0.1, 0.999, 1 - 2.0**-24], rtol=2e-6)
    edges = nx.erfinv(nx.Tensor([1.0, -1.0, 1.5, float("nan")])).tolist()
    assert edges[:2] == [math.inf, -math.inf] and all(math.isnan(edge) for edge in edges[2:])
    assert np.allclose(*derivatives(nx.erfinv, [-0.95, -0.5, 0.0, 0.3, 0.84, 0.9, 0.999]), rtol=1e-6)
    x = nx.tensor([-0.9, 0.3, 0.85, 0.9999, 1 - 2.0**-53], dtype=nx.float64, requires_grad=True)
    y = nx.erfinv(x)
    y.sum().backward()
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), math.sqrt(math.pi) / 2 * np.exp(y.detach().numpy() ** 2), rtol=1e-9)


def test_xlogy_is_0_where_its_factor_is() -> None:
    x, y = nx.tensor([0.0, 0.0, 0.0, 2.0, 0.0]), nx.tensor([0.0, -1.0, 3.0, 3.0, float("inf")])
    assert np.allclose(nx.xlogy(x, y).numpy(), [0, 0, 0, 2 * math.log(3), 0])
    assert math.isnan(nx.xlogy(0.0, nx.tensor(float("nan"))).item()) and nx.xlogy(nx.tensor(2), 1).item() == 0.0
    assert nx.xlogy(nx.tensor([2, 0]), nx.tensor([3, 0])).tolist() == pytest.approx([2 * math.log(3), 0])
    x.requires_grad_()
    y.requires_grad_()
    nx.xlogy(x, y)[:4].sum().backward()
    assert x.grad is not None and y.grad is not None
    # As in PyTorch: d/dx is log(y), but 0 where both are 0 or the logarithm is undefined; d/dy is x / y.
    assert np.allclose(x.grad.numpy()[:4], [0, 0, math.log(3), math.log(3)]) and np.allclose(y.grad.numpy()[:4], [0, 0, 0, 2 / 3])
    with pytest.raises(TypeError, match="tensor"):
        nx.xlogy(1.0, 2.0)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_fmod_of_integers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    if limits.bits == 8:
        sides = np.arange(limits.min, limits.max + 1)
    else:
        ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
        sides = np.array(ends + [*range(-9, 10), limits.max // 2, limits.min // 2])
    a, b = (side.astype(dtype) for side in np.meshgrid(sides, sides))
    with np.errstate(divide="ignore"):
        expected = np.where(b == 0, 0, np.fmod(a, b))
    found = nx.fmod(nx.asarray(a), nx.asarray(b))
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(found.numpy(), expected)
    # The divisor may be a number.
    for divisor in (limits.min, limits.max, 3, 1):
        if divisor:
            column = nx.asarray(sides.astype(dtype))
            np.testing.assert_array_equal(nx.fmod(column, int(divisor)).numpy(), np.fmod(column.numpy(), np.array(divisor, dtype)))


def test_fmod_of_floats() -> None:
    values = [0.0, -0.0, 1.0, -1.0, 1e-20, -1e-20, 2.5, -7.25, 1e300, -1e300, math.inf, -math.inf, math.nan]
    a, b = np.meshgrid(np.array(values), np.array([1.5, -1.5, 1e-300, -3e200, math.inf, -math.inf]))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(nx.fmod(nx.asarray(a), nx.asarray(b)).numpy(), np.fmod(a, b))
    assert nx.fmod(nx.tensor([7, -7]), 2.5).tolist() == [2.0, -2.0]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_fmod_of_the_smallest_integer_and_a_float(dtype: str) -> None:
    """The magnitude of the smallest integer exceeds the dtype's greatest number."""
    least = np.iinfo(dtype).min
    ints = np.array([least, least + 1, -3, 3, -least - 1], dtype)
    floats = np.array([3.5, -3.5, 0.75, -1e30, 5.0, -5.0, 127.5], "float32")
    a, b = (each.ravel() for each in np.meshgrid(ints, floats))
    found = nx.fmod(nx.asarray(a), nx.asarray(b))
    assert found.dtype.name == "float32"
    np.testing.assert_array_equal(found.numpy(), np.fmod(a.astype("float32"), b))
    np.testing.assert_array_equal(nx.fmod(nx.asarray(b), nx.asarray(a)).numpy(), np.fmod(b, a.astype("float32")))
    for divisor in (3.5, -0.75):
        expected = np.fmod(ints.astype("float32"), np.float32(divisor))
        np.testing.assert_array_equal(nx.fmod(nx.asarray(ints), divisor).numpy(), expected)
    # NumPy scalars and arrays work too.
    for divisor in (np.array(least, dtype)[()], np.array([least], dtype)):
        assert nx.fmod(nx.tensor([5.0]), divisor).tolist() == [5.0]
    x = nx.tensor([5.0], requires_grad=True)
    nx.fmod(x, nx.asarray(ints[:1])).backward()
    assert x.grad is not None and x.grad.tolist() == [1.0]


def test_functions_of_the_table_are_methods_too() -> None:
    for name in _table.__all__:
        x = nx.tensor([0.5, 1.0, 1.5])
        others = [nx.tensor([1.5, 1.0, 0.5])] if "other" in inspect.signature(getattr(nx, name)).parameters else []
        assert nx.equal(getattr(nx, name)(x, *others).isnan(), getattr(x, name)(*others).isnan()).all(), name
        assert getattr(nx, name).__doc__, name


def test_sinc() -> None:
    x = np.array([0.0, -0.0, 0.25, 1.0, -2.5, 7.75, 1e6 + 0.5])
    np.testing.assert_allclose(nx.sinc(nx.tensor(x)).numpy(), np.sinc(x), rtol=1e-9, atol=1e-16)
    t = nx.tensor([0.0, 0.25, -1.5], dtype="float64").requires_grad_()
    t.sinc().sum().backward()
    # The derivative of sinc is (cos(pi x) - sinc(x)) / x, and 0 at 0.
    expected = [0.0, (math.cos(math.pi / 4) - math.sin(math.pi / 4) / (math.pi / 4)) / 0.25, 2 / (3 * math.pi) / 1.5 * -1]
    np.testing.assert_allclose(t.grad.numpy(), expected, rtol=1e-12, atol=1e-15)
