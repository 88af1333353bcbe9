"""Sizes beyond any machine's memory raise immediate errors and do not end the process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import neurenix as nx
import numpy as np
import pytest

X = nx.arange(6).reshape(2, 3)


class Endless:
    """An endless sequence with a false length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return 1


SEQUENCES = [range(2**40), Endless(2), Endless(2**40), Endless(2**62), [1] * 1000]

TAKE_NUMBERS: list[Callable[[Any], Any]] = [
    lambda s: nx.zeros(s),
    lambda s: nx.ones(s),
    lambda s: nx.full(s, 1.0),
    lambda s: nx.rand(s),
    lambda s: nx.rand(size=s),
    lambda s: nx.randint(0, 9, s),
    lambda s: nx.broadcast_to(X, s),
    lambda s: nx.broadcast_shapes(s, (1,)),
    lambda s: nx.reshape(X, s),
    lambda s: X.reshape(s),
    lambda s: X.view(s),
    lambda s: X.expand(s),
    lambda s: X.permute(s),
    lambda s: nx.permute_dims(X, s),
    lambda s: nx.tile(X, s),
    lambda s: X.repeat(s),
    lambda s: X.sum(s),
    lambda s: nx.sum(X, axis=s),
    lambda s: nx.max(X, axis=s),
    lambda s: X.float().mean(s),
    lambda s: X.flip(s),
    lambda s: X.squeeze(s),
    lambda s: X.movedim(s, 0),
    lambda s: X.roll(s, 0),
    lambda s: X.unflatten(0, s),
    lambda s: X.split(s),
    lambda s: X.pad(s),
    lambda s: nx.nn.functional.layer_norm(X.float(), s),
    lambda s: nx.nn.functional.avg_pool2d(nx.zeros(1, 1, 4, 4), s),
]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda s: f"{type(s).__name__}({len(s)})")
def test_sequences_of_numbers_are_read_no_further_than_they_can_be_used(sequence: Any) -> None:
    for take in TAKE_NUMBERS:
        with pytest.raises((ValueError, IndexError, TypeError, MemoryError)) as raised:
            take(sequence)
        # The message does not list the numbers.
        assert len(str(raised.value)) < 2000


def test_sequences_that_are_no_lists_are_read() -> None:
    class Pair:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            return (2, 3)[index]

    assert nx.zeros(Pair()).shape == nx.zeros(np.array([2, 3])).shape == nx.zeros(range(2, 4)).shape == (2, 3)
    assert X.sum(np.array([0, 1])).item() == 15
    for wrong in ({2: 1, 3: 1}, {2, 3}, "23", (n for n in (2, 3)), [2, 3.5], None):
        with pytest.raises(TypeError):
            nx.zeros(wrong)


def test_a_broadcast_array_is_not_written_out_where_there_is_no_room() -> None:
    array = np.broadcast_to(np.float32(1), (2**20, 2**20, 2**20))
    for call in (lambda: nx.from_dlpack(array), lambda: nx.asarray(array), lambda: nx.from_dlpack(array[:, 0])):
        with pytest.raises(MemoryError):
            call()
    np.testing.assert_array_equal(nx.from_dlpack(array[0, :2, :3]).numpy(), np.ones((2, 3), np.float32))


def test_a_tensor_in_more_parts_than_there_is_room_for() -> None:
    huge = nx.zeros(2**45)
    calls: list[Callable[[], Any]] = [lambda: huge.split(1), lambda: huge.unbind(), lambda: list(huge), lambda: huge.tolist()]
    calls += [lambda: nx.zeros(2**45, 0).tolist(), lambda: nx.zeros(3, 2**45, 0, 0).tolist()]
    for call in calls:
        with pytest.raises(MemoryError):
            call()


def test_counts_are_bounded() -> None:
    layer = nx.nn.TransformerEncoderLayer(2, 1, 2)
    data = nx.data.TensorDataset(nx.arange(3))
    calls: list[Callable[[], Any]] = [
        lambda: nx.set_num_threads(100_000),
        lambda: nx.nn.LSTM(1, 1, num_layers=10**6),
        lambda: nx.nn.GRU(1, 1, num_layers=10**6),
        lambda: nx.nn.TransformerEncoder(layer, 10**6),
        lambda: nx.nn.TransformerDecoder(nx.nn.TransformerDecoderLayer(2, 1, 2), 10**6),
        lambda: nx.data.DataLoader(data, num_workers=10**5),
        lambda: nx.data.DataLoader(data, num_workers=1, prefetch_factor=10**9),
        lambda: nx.tensor_split(X, 2**32),
        lambda: nx.tensor_split(X, range(2**40)),
        lambda: nx.tensor_split(X, itertools.count()),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="at most"):
            call()


def test_more_differences_than_elements() -> None:
    for x in (nx.arange(5), nx.rand(5), nx.arange(5) > 2, nx.rand(3, 4)):
        for n in (0, 1, 2, 4, 5, 6, 2**31):
            found = nx.diff(x, n=n)
            expected = np.diff(x.numpy(), n=min(n, 6))
            assert found.shape == expected.shape and found.dtype == x.dtype
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def _members() -> Iterator[tuple[Any, Any]]:
    nan, inf = float("nan"), float("inf")
    yield np.array([1.0, nan, inf, -0.0, 2.0]), np.array([nan, 0.0, inf, inf])
    yield np.arange(24).reshape(2, 3, 4), np.array([[3, 5], [22, 3]])
    yield np.arange(5), np.array([])
    yield np.arange(5), np.array([1.0, 2.5])
    yield np.array([True, False]), np.array([True])
    yield np.array([], dtype="int64"), np.array([1, 2])
    yield np.array([-128, 127, 0], dtype="int8"), np.array([127, -128], dtype="int8")


def test_isin_is_numpys() -> None:
    for elements, among in _members():
        x, y = nx.asarray(elements), nx.asarray(among)
        for invert in (False, True):
            np.testing.assert_array_equal(nx.isin(x, y, invert=invert).numpy(), np.isin(elements, among, invert=invert))
    assert nx.isin(nx.tensor(3), [1, 3]).shape == () and nx.isin(2, nx.tensor([2])).item() is True
    # Comparing all pairs would need operands of 10^11 elements.
    x = nx.arange(300_000)
    assert nx.isin(x, x * 2).sum().item() == 150_000
