"""Tensors against NumPy: creation, operators, functions, reductions, shapes, indices."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading

import neurenix as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
FLOATS = hnp.arrays(np.float64, SHAPES, elements=st.floats(-100, 100, width=32))


def same(tensor: nx.Tensor, array: np.ndarray, tolerance: float = 1e-12) -> None:
    assert tuple(tensor.shape) == array.shape
    np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_keep_their_dtype_and_values(dtype: str) -> None:
    array = (np.arange(24) % 2 if dtype == "bool" else np.arange(24)).astype(dtype).reshape(2, 3, 4)
    for view in (array, array.T, array[:, ::-1], array[1:1], array[0, 0, 0]):
        tensor = nx.Tensor(view)
        assert tensor.dtype.name == dtype
        assert np.array_equal(tensor.numpy(), view)
        assert tensor.numpy().dtype == view.dtype


def test_big_endian_arrays_and_buffers_come_in() -> None:
    assert nx.Tensor(np.arange(3, dtype=">f4")).tolist() == [0.0, 1.0, 2.0]
    assert nx.Tensor(memoryview(b"\x01\x02")).tolist() == [1, 2]


def test_lists_become_the_natural_dtype() -> None:
    assert nx.Tensor([[1, 2], [3, 4]]).dtype == nx.int64
    assert nx.Tensor([1, 2.5]).dtype == nx.float32
    assert nx.Tensor([True, False]).dtype == nx.bool
    assert nx.Tensor([]).dtype == nx.float32
    assert nx.tensor(3).shape == ()
    assert nx.Tensor([[], []]).shape == (2, 0)
    assert nx.Tensor([nx.Tensor([1, 2]), nx.Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert nx.Tensor([1, 2], dtype=nx.float64, requires_grad=True).requires_grad
    assert nx.Tensor(range(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("ragged", [[[1, 2], [3]], [[1], 2], [1, [2]], [[[1]], [2]], [[1, 2], [[3, 4]]]])
def test_ragged_lists_are_refused(ragged: list) -> None:
    with pytest.raises(ValueError, match="ragged"):
        nx.Tensor(ragged)


@pytest.mark.parametrize("bad", [["a"], [None], [1j], {"a": 1}, np.array(["a"]), np.array([1j])])
def test_what_is_no_number_is_refused(bad: object) -> None:
    with pytest.raises(TypeError):
        nx.Tensor(bad)


def test_numpy_shares_memory_and_cannot_write() -> None:
    tensor = nx.randn(4, 5)
    array = tensor.numpy()
    assert array.base is not None
    assert np.shares_memory(array, tensor.numpy())
    with pytest.raises(ValueError):
        array[0, 0] = 1.0
    before = array.copy()
    tensor += 1
    assert np.array_equal(array, before), "the exported array is a value of its own time"
    del tensor
    gc.collect()
    assert np.array_equal(array, before)


@given(FLOATS, FLOATS)
def test_operators_agree_with_numpy(a: np.ndarray, b: np.ndarray) -> None:
    try:
        expected = a + b
    except ValueError:
        with pytest.raises(ValueError):
            nx.Tensor(a) + nx.Tensor(b)
        return
    x, y = nx.Tensor(a), nx.Tensor(b)
    same(x + y, expected)
    same(x - y, a - b)
    same(x * y, a * b)
    same(x.maximum(y), np.maximum(a, b))
    assert np.array_equal((x < y).numpy(), a < b)
    assert np.array_equal((x == y).numpy(), a == b)
    same(x + b, expected)
    same(b + x, expected)
    same(2 - x, 2 - a)
    same(x * 3, a * 3)


@given(hnp.arrays(np.int64, SHAPES, elements=st.integers(-50, 50)))
def test_integer_operators_agree_with_numpy(a: np.ndarray) -> None:
    x = nx.Tensor(a)
    assert np.array_equal((x // 7).numpy(), a // 7)
    assert np.array_equal((x % 7).numpy(), a % 7)
    assert np.array_equal((x & 12).numpy(), a & 12)
    assert np.array_equal((~x).numpy(), ~a)
    assert np.array_equal((x << 2).numpy(), a << 2)
    assert (x / 2).dtype == nx.float32
    assert x.float().mean().dtype == nx.float32


@given(FLOATS, st.booleans(), st.data())
def test_reductions_agree_with_numpy(a: np.ndarray, keepdims: bool, data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from([None, *range(-a.ndim, a.ndim), tuple(range(a.ndim))]))
    x = nx.Tensor(a)
    same(nx.sum(x, axis, keepdims=keepdims), a.sum(axis, keepdims=keepdims), 1e-9)
    same(nx.prod(x / 100, axis, keepdims=keepdims), (a / 100).prod(axis, keepdims=keepdims), 1e-9)
    same(x.sum(axis, keepdims), a.sum(axis, keepdims=keepdims), 1e-9)
    assert np.array_equal(nx.any(x, axis, keepdims=keepdims).numpy(), a.any(axis, keepdims=keepdims))
    if a.size:
        same(nx.mean(x, axis, keepdims=keepdims), a.mean(axis, keepdims=keepdims), 1e-9)
        same(nx.std(x, axis, keepdims=keepdims), a.std(axis, keepdims=keepdims), 1e-6)
        same(nx.max(x, axis, keepdims=keepdims), a.max(axis, keepdims=keepdims))


@pytest.mark.parametrize("name", "exp log1p sqrt sin cos tanh floor ceil abs sign square trunc".split())
def test_functions_agree_with_numpy(name: str) -> None:
    a = np.linspace(0.1, 4, 50)
    same(getattr(nx, name)(nx.Tensor(a)), getattr(np, name)(a), 1e-13)


INDICES = [
    0, -1, slice(None), slice(1, 3), slice(None, None, -1), slice(5, 0, -2), None, ..., (0, 1), (slice(None), 1),
    (..., 0), (None, 0, ..., None), (slice(1, 2), slice(None, None, 2)), [0, 2, 1], ([0, 1], [1, 2]), (slice(None), [2, 0]),
    ([[0, 1], [2, 0]],), (0, slice(None), [1, 1]), slice(10, 20), slice(-100, 100), (slice(None), None, 1),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_agree_with_numpy(index: object) -> None:
    a = np.arange(60.0).reshape(3, 4, 5)
    x = nx.Tensor(a)
    same(x[index], a[index])
    b, y = a.copy(), nx.Tensor(a)
    b[index] = -1
    y[index] = -1
    same(y, b)
    same(x, a)


def test_masks_and_tensor_indices() -> None:
    a = np.arange(12.0).reshape(3, 4)
    x = nx.Tensor(a)
    same(x[x > 5], a[a > 5])
    same(x[nx.Tensor([2, 0])], a[[2, 0]])
    x[x > 5] = 0
    a[a > 5] = 0
    same(x, a)
    with pytest.raises(IndexError):
        x[5]
    with pytest.raises(TypeError):
        x[0, 0.5]
    with pytest.raises(IndexError):
        x[nx.Tensor([0.5])]
    with pytest.raises((IndexError, ValueError)):
        x[0, 0, 0]


def test_an_assignment_that_fails_changes_nothing() -> None:
    x = nx.Tensor(np.arange(6.0).reshape(2, 3))
    before = x.tolist()
    with pytest.raises(ValueError):
        x[0] = nx.Tensor([1.0, 2.0])
    with pytest.raises(ValueError):
        x += nx.zeros(3, 3)
    with pytest.raises(ValueError):
        x.copy_(nx.zeros(4))
    whole = nx.Tensor([1, 2])
    with pytest.raises(TypeError):
        whole += 0.5
    assert x.tolist() == before
    assert whole.tolist() == [1, 2]


def test_shapes() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    x = nx.Tensor(a)
    same(x.reshape(4, -1), a.reshape(4, -1))
    same(x.reshape((6, 4)), a.reshape(6, 4))
    same(x.permute(2, 0, 1), a.transpose(2, 0, 1))
    same(x.transpose(0, -1), a.swapaxes(0, -1))
    same(nx.moveaxis(x, 0, -1), np.moveaxis(a, 0, -1))
    same(x.flatten(1), a.reshape(2, 12))
    same(x.unsqueeze(-1).squeeze(-1), a)
    same(x[:1].expand(5, -1, -1), np.broadcast_to(a[:1], (5, 3, 4)))
    same(nx.roll(x, 2, axis=1), np.roll(a, 2, 1))
    same(nx.flip(x), np.flip(a))
    same(nx.concat([x, x], axis=1), np.concatenate([a, a], 1))
    same(nx.stack([x, x], axis=-1), np.stack([a, a], -1))
    same(nx.tile(x, (2, 1, 3)), np.tile(a, (2, 1, 3)))
    same(nx.repeat(x, 2, axis=1), np.repeat(a, 2, 1))
    assert [part.shape for part in x.split(2, 1)] == [(2, 2, 4), (2, 1, 4)]
    assert len(x.unbind(1)) == 3
    assert x.size() == (2, 3, 4) and x.size(-1) == 4 and x.numel() == 24 and len(x) == 2
    same(nx.tensordot(x, x, axes=([1, 2], [1, 2])), np.tensordot(a, a, ([1, 2], [1, 2])))
    same(nx.einsum("ijk,ilk->ijl", x, x), np.einsum("ijk,ilk->ijl", a, a))
    with pytest.raises(ValueError, match="reshape"):
        x.reshape(5, 5)
    with pytest.raises(IndexError):
        x.sum(7)


def test_order_and_choice() -> None:
    a = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    x = nx.Tensor(a)
    same(nx.sort(x), np.sort(a))
    values, indices = x.sort(descending=True)
    same(values, -np.sort(-a))
    assert indices.tolist() == [[0, 2, 1], [1, 2, 0]]
    top = x.topk(2)
    assert top.values.tolist() == [[3.0, 2.0], [5.0, 4.0]]
    assert x.max(1).indices.tolist() == [0, 1]
    assert x.argmax().item() == 4
    assert nx.unique_values(nx.Tensor([3, 1, 3])).tolist() == [1, 3]
    assert nx.unique_all(nx.Tensor([3, 1, 3])).indices.tolist() == [1, 0]
    assert nx.searchsorted(nx.Tensor([1.0, 2.0]), nx.Tensor([1.5])).tolist() == [1]
    assert [part.tolist() for part in nx.nonzero(x == 5)] == [[1], [1]]
    assert nx.where(x > 2, x, 0).tolist() == [[3.0, 0.0, 0.0], [0.0, 5.0, 4.0]]


def test_in_place_operations_change_the_place() -> None:
    x = nx.ones(3)
    alias = x
    x += 1
    x.mul_(3).add_(nx.ones(3), alpha=0.5)
    assert alias.tolist() == [6.5] * 3
    x.zero_()
    x.fill_(2)
    x.clamp_(max=1)
    assert x.tolist() == [1.0] * 3
    view = x[:2]
    x[0] = 9
    assert view.tolist() == [9.0, 1.0]


def test_scalars() -> None:
    x = nx.Tensor([2.5])
    assert x.item() == 2.5 and float(x) == 2.5 and int(x) == 2 and bool(x)
    assert f"{x.sum():.2f}" == "2.50"
    assert [10, 20, 30][nx.tensor(1)] == 20
    assert math.isclose(nx.Tensor(0.1, dtype="float64").item(), 0.1)
    with pytest.raises(ValueError, match="any"):
        bool(nx.ones(2))
    with pytest.raises(ValueError):
        nx.ones(2).item()
    with pytest.raises(TypeError):
        len(nx.Tensor(1.0))
    assert 2.5 in x
    assert nx.Tensor([1.0]) != "text"
    assert hash(x) == hash(x)


def test_repr_is_readable() -> None:
    assert repr(nx.Tensor([1.0, 2.0])) == "tensor([1., 2.])"
    assert "requires_grad=True" in repr(nx.ones(1, requires_grad=True))
    assert repr(nx.float32) == "neurenix.float32"
    assert repr(nx.Device("cpu")) == "Device('cpu')" or repr(nx.Device("cpu")) == 'Device("cpu")'


def test_pickles_and_copies() -> None:
    for tensor in (nx.randn(2, 3), nx.arange(4), nx.ones(2, dtype=nx.bfloat16), nx.ones(2, requires_grad=True), nx.zeros(0, 2)):
        for other in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
            assert other.dtype == tensor.dtype and other.requires_grad == tensor.requires_grad
            assert nx.array_equal(other.float(), tensor.float())
    assert pickle.loads(pickle.dumps(nx.float16)) == nx.float16
    assert pickle.loads(pickle.dumps(nx.Device("cpu"))) == "cpu"


def test_random_numbers_repeat_with_their_seed() -> None:
    nx.manual_seed(7)
    first = nx.randn(3, 4)
    nx.manual_seed(7)
    assert nx.array_equal(first, nx.randn((3, 4)))
    assert nx.random.randn(1, 3, 2, 2).shape == (1, 3, 2, 2)
    whole = nx.randint(3, 9, (1000,))
    assert whole.min().item() == 3 and whole.max().item() == 8
    assert sorted(nx.random.permutation(10).tolist()) == list(range(10))
    generator = nx.Generator(3)
    state = generator.get_state()
    drawn = nx.rand(5, generator=generator)
    generator.set_state(state)
    assert nx.array_equal(drawn, nx.rand(5, generator=generator))


@pytest.mark.parametrize("bad", ["cuda:99", "nothing", "cpu:7"])
def test_a_device_that_does_not_exist_is_named(bad: str) -> None:
    with pytest.raises(ValueError, match=bad.split(":")[0]):
        nx.zeros(2, device=bad)


def test_exceptions_have_the_right_kind() -> None:
    with pytest.raises(TypeError):
        nx.ones(2) + "a"
    with pytest.raises(TypeError):
        nx.ones(2).sqrt(1, 2, 3)
    with pytest.raises(ValueError, match=r"\[2, 3\].*\[4, 5\]|\(2, 3\).*\(4, 5\)"):
        nx.ones(2, 3) @ nx.ones(4, 5)
    with pytest.raises(ValueError):
        nx.zeros(2, dtype="rational")
    with pytest.raises(ValueError):
        nx.zeros(-1)
    with pytest.raises((ValueError, OverflowError, MemoryError)):
        nx.zeros(2**62, 2**62)
    with pytest.raises(MemoryError):
        nx.zeros(2**44, 8).evaluate()
    with pytest.raises(TypeError):
        nx.ones(2, dtype=nx.bfloat16).numpy()
    with pytest.raises(RuntimeError, match="detach"):
        nx.ones(2, requires_grad=True).numpy()


def test_threads_share_tensors() -> None:
    shared = nx.randn(64, 64)
    expected = (shared @ shared).tolist()
    results: list[bool] = []

    def work() -> None:
        for _ in range(20):
            results.append((shared @ shared).tolist() == expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


def test_small_operations_leave_nothing_behind() -> None:
    def work(count: int) -> None:
        x = nx.ones(4)
        for _ in range(count):
            (x + 1).sum().item()

    work(1_000)
    gc.collect()
    before = nx.Device("cpu").memory()["allocated"]
    work(10_000)
    gc.collect()
    assert nx.Device("cpu").memory()["allocated"] <= before


def test_other_libraries_take_and_give_arrays() -> None:
    x = nx.randn(3, 4)
    taken = np.from_dlpack(x.T)
    assert np.array_equal(taken, x.numpy().T)
    assert np.shares_memory(taken, x.numpy())
    del x
    gc.collect()
    assert np.isfinite(taken).all()
    for array in (np.arange(12).reshape(3, 4)[:, ::2], np.array(2.0), np.zeros((0, 3)), np.ones(3, bool)):
        given = nx.from_dlpack(array)
        assert np.array_equal(given.numpy(), array) and given.numpy().dtype == array.dtype
    with pytest.raises(BufferError):
        nx.ones(2, requires_grad=True).__dlpack__()
    assert nx.from_dlpack(np.ones(2, "complex64")).tolist() == [1.0, 1.0]


def test_size_is_a_number_and_a_function() -> None:
    x = nx.zeros(2, 3)
    assert x.size == 6 and x.size() == (2, 3) and x.size(-1) == 3
    with pytest.raises(IndexError):
        x.size(2)
    assert x.__array_namespace__() is nx


def test_a_bool_is_a_mask_of_one_element() -> None:
    x = nx.Tensor([1.0, 2.0])
    assert x[True].tolist() == [[1.0, 2.0]] and x[False].shape == (0, 2)
    point = nx.Tensor(3.0)
    assert point[point > 2].tolist() == [3.0] and point[point > 5].shape == (0,)
    point[point > 2] = 1.0
    assert point.item() == 1.0


def test_lists_that_hold_themselves_and_odd_truth_values() -> None:
    endless: list = []
    endless.append(endless)
    with pytest.raises(ValueError, match="deep"):
        nx.Tensor(endless)
    odd = np.array([2, 3, 0, 255], np.uint8).view(bool)
    for tensor in (nx.Tensor(odd), nx.from_dlpack(odd)):
        assert tensor.to(nx.int32).tolist() == [1, 1, 0, 1]
    assert nx.Tensor(odd[::2]).to(nx.int32).tolist() == [1, 0]
    for point in (odd[:1].reshape(()), odd[0]):
        assert nx.Tensor(point).shape == () and nx.Tensor(point).to(nx.int32).item() == 1


def test_a_product_is_read_beside_its_transpose() -> None:
    left, right = nx.arange(6, dtype=nx.float32).reshape(3, 2), nx.Tensor([[1.0, 2.0], [3.0, 4.0]])
    product = left @ right
    turned = product.t().contiguous()
    nx.evaluate([product, turned])
    assert product.tolist() == [[3.0, 4.0], [11.0, 16.0], [19.0, 28.0]]
    assert turned.tolist() == [[3.0, 11.0, 19.0], [4.0, 16.0, 28.0]]


def test_conversions_to_the_own_dtype_are_the_tensor_itself() -> None:
    x = nx.zeros(2, 3)
    for same in (x.float(), x.to(nx.float32), x.type(nx.float32)):
        assert same is x
    x.float().fill_(2.0)
    assert x.tolist() == [[2.0] * 3] * 2
    for name, dtype in (("double", nx.float64), ("half", nx.float16), ("bfloat16", nx.bfloat16), ("int", nx.int32)):
        other = getattr(x, name)()
        assert other.dtype == dtype and getattr(other, name)() is other
    assert x.long().dtype == nx.int64 and x.bool().dtype == nx.bool
    leaf = nx.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no_grad"):
        leaf.float().fill_(2.0)


def test_running_sums_of_many_small_numbers_do_not_drift() -> None:
    for dtype, error in (("float32", 1e-6), ("bfloat16", 4e-3)):
        x = nx.full((1_000_000,), 0.1, dtype=dtype)
        assert abs(x.cumsum(0)[-1].item() / x.double().sum().item() - 1) < error


def test_many_samples_are_drawn_by_weight() -> None:
    for weights in (nx.arange(100_000).float(), nx.arange(100_000).bfloat16(), nx.arange(100_000).float().reshape(1, -1)):
        count = 100_000 if weights.ndim == 1 else 100
        drawn = nx.multinomial(weights, count, replacement=True, generator=nx.Generator(3))
        assert drawn.shape == (*weights.shape[:-1], count) and drawn.min().item() > 0
        # Positions are proportional to their weights: the mean is two thirds of the greatest.
        assert abs(drawn.double().mean().item() / 66_666 - 1) < (0.01 if weights.ndim == 1 else 0.2)
