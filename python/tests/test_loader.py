"""Iterable datasets, the workers' seeds, and loading without batches."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Iterator
from itertools import islice
from typing import Any

import neurenix as nx
import numpy as np
import pytest

data = nx.data


class Stream(data.IterableDataset):
    """Numbers from 0, divided among workers as PyTorch's documentation recommends."""

    def __init__(self, count: int = 7) -> None:
        self.count = count
        self.readers: list[tuple[int, Any]] = []

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        self.readers.append((threading.get_ident(), info))
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.count, step):
            yield number


def test_a_stream_is_read_by_a_worker() -> None:
    stream = Stream()
    begun: list[int] = []
    loader = data.DataLoader(stream, 3, num_workers=4, worker_init_fn=begun.append, persistent_workers=True)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert begun == [0], "one worker, who stays"
    for thread, info in stream.readers:
        assert thread != threading.get_ident()
        assert (info.id, info.num_workers, info.dataset) == (0, 1, stream)
    assert [batch.item() for batch in data.DataLoader(stream, None, num_workers=2, collate_fn=nx.tensor)] == list(range(7))
    assert data.get_worker_info() is None
    assert list(data.DataLoader(Stream(0), 3, num_workers=2)) == []


def test_reading_a_stream_takes_no_longer_than_the_timeout() -> None:
    release = threading.Event()

    class Stuck(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            release.wait(10)
            yield 1

    try:
        with pytest.raises(RuntimeError, match=r"more than 0\.1 seconds"):
            list(data.DataLoader(Stuck(), 1, num_workers=1, timeout=0.1))
    finally:
        release.set()


def test_a_stream_that_breaks_says_so_behind_what_it_gave() -> None:
    class Broken(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise OSError("no more")

    batches = iter(data.DataLoader(Broken(), 1, num_workers=2))
    assert next(batches).tolist() == [1]
    with pytest.raises(OSError, match="no more"):
        next(batches)


def test_an_endless_stream_is_left() -> None:
    class Endless(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            number = 0
            while True:
                yield number
                number += 1

    for number, batch in enumerate(data.DataLoader(Endless(), 2, num_workers=2)):
        assert batch.tolist() == [2 * number, 2 * number + 1]
        if number == 5:
            break


class Seeds(data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        info = data.get_worker_info()
        assert info is not None
        return info.seed - info.id


def seeds(seed: int, epochs: int, **options: Any) -> list[int]:
    loader = data.DataLoader(Seeds(), None, num_workers=2, generator=nx.Generator(seed), **options)
    return [batch for _ in range(epochs) for batch in loader]


def test_workers_have_seeds() -> None:
    first = seeds(1, 3)
    assert first == seeds(1, 3), "the same in each run"
    assert len(set(first)) == 3, "another for each epoch"
    assert set(seeds(1, 3, persistent_workers=True)) == {first[0]}, "those of workers that stay do too"
    assert not set(first) & set(seeds(2, 3))
    assert all(0 <= seed < 2**63 for seed in first)
    nx.Generator(first[0])


def test_samples_without_batches_are_converted() -> None:
    Pair = namedtuple("Pair", "x y")
    samples = [np.ones(2, np.float32), np.float64(0.5), {"x": np.arange(2), "name": "a"}, Pair(np.ones(1), 3), (1, "b")]

    class Samples(data.Dataset):
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, index: int) -> Any:
            return samples[index]

    array, number, mapping, pair, rest = data.DataLoader(Samples(), batch_size=None)
    assert isinstance(array, nx.Tensor) and array.dtype == nx.float32 and array.tolist() == [1.0, 1.0]
    assert isinstance(number, nx.Tensor) and number.dtype == nx.float64 and number.item() == 0.5
    assert isinstance(mapping["x"], nx.Tensor) and mapping["x"].tolist() == [0, 1] and mapping["name"] == "a"
    assert isinstance(pair, Pair) and isinstance(pair.x, nx.Tensor) and pair.y == 3
    assert rest == [1, "b"]
    words = np.array(["a", "b"])
    assert data.default_convert(words) is words


def test_a_data_set_may_give_whole_batches_alone() -> None:
    class Squares:
        def __len__(self) -> int:
            return 4

        def __getitems__(self, indices: list[int]) -> list[int]:
            return [index * index for index in indices]

    assert [batch.tolist() for batch in data.DataLoader(Squares(), batch_size=2)] == [[0, 1], [4, 9]]


class Arrays:
    """Samples with a NumPy array, a NumPy scalar and a pending tensor."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        array = np.full((2, 3), index, np.float64)
        return {"array": array[:, ::2], "truth": np.array([index > 2]), "count": np.int32(index), "lazy": nx.ones(2) * index}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, lambda samples: [samples[0]["lazy"] * 2, {"whole": (samples[1]["lazy"],)}]])
def test_batches_are_computed(workers: int, collate: Any) -> None:
    for batch in data.DataLoader(Arrays(), 2, num_workers=workers, collate_fn=collate, drop_last=True):
        parts = list(batch.values()) if collate is None else [batch[0], batch[1]["whole"][0]]
        assert len(parts) >= 2 and all(part.is_evaluated for part in parts)
    dataset = data.TensorDataset(nx.rand(5, 2), nx.arange(5) * 2)
    for loader in (data.DataLoader(dataset, 2, shuffle=True), data.DataLoader(dataset, None)):
        assert all(part.is_evaluated for batch in loader for part in batch)
    assert (data.default_collate([nx.rand(2) + 1])).is_evaluated


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [([1.5, 2.5], "float64"), ([1.5, 2], "float64"), ([1, 2.5], "float32"), ([1, 2], "int64"), ([True, False], "bool"),
     ([np.float32(1), np.float32(2)], "float32"), ([np.float64(1), np.float64(2)], "float64")],
)  # fmt: skip
def test_numbers_are_collated_in_their_dtype(numbers: list[Any], dtype: str) -> None:
    batch = data.default_collate(numbers)
    assert batch.dtype.name == dtype and batch.tolist() == numbers


def test_arrays_are_collated_by_numpy() -> None:
    batch = data.default_collate([Arrays()[index] for index in range(4)])
    assert batch["array"].shape == (4, 2, 2) and batch["array"].dtype == nx.float64
    assert batch["array"][:, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert batch["count"].dtype == nx.int32 and batch["count"].tolist() == [0, 1, 2, 3]
    assert batch["truth"].dtype == nx.bool and batch["truth"].flatten().tolist() == [False, False, False, True]
    with pytest.raises(ValueError, match="same shape"):
        data.default_collate([np.ones(2), np.ones(3)])


def test_numbers_of_samples_are_drawn_as_they_are_asked_for() -> None:
    def first(seed: int) -> list[int]:
        sampler = data.RandomSampler(range(7), replacement=True, num_samples=10**10, generator=nx.Generator(seed))
        assert len(sampler) == 10**10
        return list(islice(sampler, 70_000))

    drawn = first(3)
    assert drawn == first(3) != first(4) and set(drawn) == set(range(7))
    assert drawn[:1000] != drawn[1 << 16 :][:1000], "each part is drawn anew"
    sampler = data.RandomSampler(range(7), replacement=True, num_samples=66_000)
    order = iter(sampler)
    begun = [next(order)]
    nx.rand(3)  # Drawing numbers meanwhile does not change the order.
    whole = begun + list(order)
    nx.manual_seed(0)
    assert list(sampler) == whole and len(whole) == 66_000
    assert len(list(data.RandomSampler(range(7), replacement=True, num_samples=9))) == 9
