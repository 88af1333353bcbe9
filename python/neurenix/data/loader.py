"""Batches of samples, prepared in advance by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from .. import _engine
from .._engine import Generator, Tensor
from .dataset import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, whole_batches


def default_collate(batch: list[Any]) -> Any:
    """Samples as one batch: tensors, arrays and numbers are stacked; dictionaries and sequences part by part.

    >>> default_collate([(1.0, 2), (3.0, 4)])
    [tensor([1., 3.]), tensor([2, 4])]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _engine.stack(batch)
    if isinstance(first, (bool, int, float)):
        return _engine.tensor(batch, device="cpu")
    if hasattr(first, "__array_interface__"):
        return _engine.stack([_engine.tensor(each, device="cpu") for each in batch])
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate([each[key] for each in batch]) for key in first}
    if isinstance(first, (list, tuple)):
        if any(len(each) != len(first) for each in batch):
            raise RuntimeError("each sample of a batch must have the same number of parts")
        parts = [default_collate(list(part)) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    raise TypeError(f"default_collate: a batch of {type(first).__name__} is unknown: give collate_fn")


class DataLoader:
    """Batches of a data set, each epoch anew.

    ``num_workers`` threads prepare ``num_workers * prefetch_factor`` batches in advance; with 0 each batch is made when
    it is asked for. ``pin_memory`` is accepted: the engine stages copies to devices itself.

    >>> import neurenix as nx
    >>> dataset = nx.data.TensorDataset(nx.arange(5))
    >>> [x.tolist() for (x,) in nx.data.DataLoader(dataset, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        *,
        prefetch_factor: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_workers < 0 or (prefetch_factor is not None and prefetch_factor < 1):
            raise ValueError("DataLoader: num_workers is at least 0 and prefetch_factor at least 1")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: give sampler or shuffle, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler takes the place of batch_size, shuffle, sampler and drop_last")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"DataLoader: batch_size is {batch_size!r}: it is a whole number of at least 1, or None")
        self._in_order = isinstance(dataset, IterableDataset)
        if self._in_order and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset comes in its own order, without shuffle and samplers")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.prefetch_factor = num_workers, 2 if prefetch_factor is None else prefetch_factor
        self.collate_fn, self.pin_memory, self.generator = collate_fn, pin_memory, generator
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if not self._in_order:
            if sampler is None:
                self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_sampler is None and batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __len__(self) -> int:
        if self._in_order:
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._in_order:
            tasks: Iterator[Any] = self._streamed()
            make: Callable[[Any], Any] = self._collated
        else:
            tasks = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
            make = self._fetched
        if self.num_workers == 0:
            return map(make, tasks)
        return self._prefetched(make, tasks)

    def _streamed(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def _fetched(self, indices: Any) -> Any:
        if self.batch_sampler is None:
            return self._collated(self.dataset[indices])
        whole = whole_batches(self.dataset) if self.collate_fn is None else None
        batch = None if whole is None else whole(indices)
        return self._collated([self.dataset[index] for index in indices]) if batch is None else batch

    def _collated(self, samples: Any) -> Any:
        if self.collate_fn is not None:
            return self.collate_fn(samples)
        return samples if self.batch_size is None and self.batch_sampler is None else default_collate(samples)

    def _prefetched(self, make: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        pool = ThreadPoolExecutor(self.num_workers, "neurenix-data")
        try:
            for task in islice(tasks, self.num_workers * self.prefetch_factor):
                waiting.append(pool.submit(make, task))
            while waiting:
                batch = waiting.popleft().result()
                for task in islice(tasks, 1):
                    waiting.append(pool.submit(make, task))
                yield batch
        finally:
            # Also when the loop is left early, or a sample raises.
            pool.shutdown(wait=True, cancel_futures=True)
