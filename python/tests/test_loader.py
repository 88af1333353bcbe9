"""Streams, the workers' seeds, and samples that come one by one."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import neurenix as nx
import numpy as np
import pytest

data = nx.data


class Stream(data.IterableDataset):
    """Numbers from 0, divided among workers as PyTorch's documents say."""

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
