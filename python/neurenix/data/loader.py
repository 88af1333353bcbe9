"""Batches of samples, prepared in advance by threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from itertools import islice, repeat
from typing import Any, NamedTuple

from .. import _engine
from .._complex import tensor as new_tensor
from .._engine import Generator, Tensor
from .dataset import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, samples_of, whole_batches


def default_collate(batch: list[Any]) -> Any:
    """Collates samples into one batch: tensors, arrays and numbers are stacked, Python's floats as ``float64``;
    dictionaries and sequences are collated part by part.

    >>> default_collate([(1.0, 2), (3.0, 4)])
    [tensor([1., 3.], dtype=float64), tensor([2, 4])]
    """
    return _computed(_collate(batch))


def _collate(batch: list[Any]) -> Any:
    first = batch[0]
    if isinstance(first, Tensor):
        return _engine.stack(batch)
    if isinstance(first, float):
        return new_tensor(batch, dtype="float64", device="cpu")
    if isinstance(first, (bool, int)):
        return new_tensor(batch, device="cpu")
    if hasattr(first, "__array_interface__"):
        import numpy

        return new_tensor(numpy.stack(batch), device="cpu")
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: _collate([each[key] for each in batch]) for key in first}
    if isinstance(first, (list, tuple)):
        if any(len(each) != len(first) for each in batch):
            raise RuntimeError("each sample of a batch must have the same number of parts")
        parts = [_collate(list(part)) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    raise TypeError(f"default_collate: cannot collate {type(first).__name__}; pass collate_fn")


def _tensors(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch, also in lists, tuples and dictionaries."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _tensors(part)
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from _tensors(part)


def _computed(batch: Any) -> Any:
    """A batch whose tensors are computed, so that the work that makes them is not planned again with each step of a
    model.
    """
    _engine.evaluate(list(_tensors(batch)))
    return batch


def default_convert(data: Any) -> Any:
    """A single sample, not a batch: its arrays and NumPy numbers become tensors; the rest is unchanged.

    >>> import numpy as np
    >>> default_convert({"x": np.array([1, 2]), "name": "a"})
    {'x': tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if hasattr(data, "__array_interface__"):
        # Not numeric: text, times, objects.
        return data if data.dtype.kind in "SUOMm" else new_tensor(data, device="cpu")
    if isinstance(data, Mapping):
        return {key: default_convert(data[key]) for key in data}
    if isinstance(data, (list, tuple)):
        parts = [default_convert(part) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    return data


class WorkerInfo(NamedTuple):
    """The result of :func:`get_worker_info`."""

    id: int
    num_workers: int
    #: Differs for each worker and, unless ``persistent_workers`` is set, for each epoch; the same in every run. Workers
    #: share the default generator; use ``nx.Generator(get_worker_info().seed)`` for a worker's own.
    seed: int
    dataset: Any


#: Each worker is a thread, and each prefetched batch takes memory.
_MOST_WORKERS, _MOST_PREFETCHED = 1024, 1 << 16

#: Marks the end of a stream.
_END = object()


class _Worker(threading.local):
    info: WorkerInfo | None = None
    #: Set when the loader's batches are no longer needed.
    stopped: threading.Event | None = None


_WORKER = _Worker()


def get_worker_info() -> WorkerInfo | None:
    """Information about the worker that runs on this thread; ``None`` outside workers."""
    return _WORKER.info


def _while_wanted(indices: Iterable[Any]) -> Iterator[Any]:
    """The indices of a batch, or a stream's samples, until the worker is stopped."""
    for index in indices:
        if _WORKER.stopped is not None and _WORKER.stopped.is_set():
            raise CancelledError
        yield index


class _Workers:
    """Numbered threads, started when first needed."""

    def __init__(self, loader: DataLoader) -> None:
        self.error: BaseException | None = None
        self._numbers, self._lock, self._stopped = iter(range(loader.num_workers)), threading.Lock(), threading.Event()
        # A stream has a single worker, and sees a worker count of 1: a dataset that divides itself among workers gives
        # it everything.
        count = 1 if loader._in_order else loader.num_workers
        function, dataset, base = loader.worker_init_fn, loader.dataset, loader._next_seed()

        def begin() -> None:
            with self._lock:
                number = next(self._numbers)
            _WORKER.info, _WORKER.stopped = WorkerInfo(number, count, base + number, dataset), self._stopped
            if function is not None:
                try:
                    function(number)
                except BaseException as error:  # Raised where the batches are requested.
                    self.error = error

        self._pool = ThreadPoolExecutor(count, "neurenix-data", begin)

    def submit(self, make: Callable[[Any], Any], task: Any) -> Future[Any]:
        def work() -> Any:
            if self.error is not None:
                raise self.error
            return make(task)

        return self._pool.submit(work)

    def stop(self, wait: bool) -> None:
        """Stops the threads, each after its current sample."""
        self._stopped.set()
        self._pool.shutdown(wait=wait, cancel_futures=True)


class DataLoader:
    """Batches of a dataset, one iteration per epoch.

    ``num_workers`` threads prepare ``num_workers * prefetch_factor`` batches in advance; with 0, each batch is made on
    demand. The tensors of a batch are computed. ``worker_init_fn(number)`` is called in each thread before its first
    batch; ``timeout`` is the number of seconds after which a batch is an error, 0 for no limit; ``persistent_workers``
    keeps the threads for the next epoch. One thread reads and batches a dataset that is a stream, whatever the number
    of workers.

    Workers are threads, so ``multiprocessing_context`` has no effect; nor has ``pin_memory``, because the engine stages
    copies to devices itself. Batches always come in order.

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
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0 or (prefetch_factor is not None and prefetch_factor < 1):
            raise ValueError("DataLoader: num_workers must be at least 0, and prefetch_factor at least 1")
        if num_workers > _MOST_WORKERS or (prefetch_factor or 1) > _MOST_PREFETCHED:
            raise ValueError(
                f"DataLoader: num_workers must be at most {_MOST_WORKERS}, and prefetch_factor at most {_MOST_PREFETCHED}, "
                f"got {num_workers} and {prefetch_factor}"
            )
        if timeout < 0:
            raise ValueError(f"DataLoader: timeout is {timeout}, it must not be negative")
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers or timeout):
            raise ValueError("DataLoader: prefetch_factor, persistent_workers and timeout require num_workers of at least 1")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: pass sampler or shuffle, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: batch_sampler cannot be combined with batch_size, shuffle, sampler or drop_last")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"DataLoader: batch_size is {batch_size!r}, it must be None or an integer of at least 1")
        self._in_order = isinstance(dataset, IterableDataset)
        if self._in_order and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset does not support shuffle or samplers")
        if not (self._in_order or hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")):
            raise TypeError(
                f"DataLoader: expected a sequence, a Dataset or an IterableDataset, got {type(dataset).__name__}"
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.prefetch_factor = num_workers, 2 if prefetch_factor is None else prefetch_factor
        self.collate_fn, self.pin_memory, self.generator = collate_fn, pin_memory, generator
        self.timeout, self.worker_init_fn, self.persistent_workers = timeout, worker_init_fn, persistent_workers
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        self._workers: _Workers | None = None
        self._epochs = 0
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
            batches = map(self._collated, self._streamed())
            # Everything, including the dataset's ``__iter__``, runs in the worker.
            return batches if self.num_workers == 0 else self._prefetched(lambda _: next(batches, _END), repeat(None))
        tasks = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        return map(self._fetched, tasks) if self.num_workers == 0 else self._prefetched(self._fetched, tasks)

    def _next_seed(self) -> int:
        """The seed of an epoch's workers. It draws no random numbers, so shuffling is the same for any number of
        workers.
        """
        import random

        self._epochs += 1
        state = _engine.get_rng_state() if self.generator is None else self.generator.get_state()
        return random.Random(f"{state} {self._epochs}").getrandbits(62)

    def _streamed(self) -> Iterator[Any]:
        samples = _while_wanted(self.dataset)
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
        return self._collated(samples_of(self.dataset, indices, _while_wanted)) if batch is None else _computed(batch)

    def _collated(self, samples: Any) -> Any:
        if self.collate_fn is not None:
            return _computed(self.collate_fn(samples))
        is_one = self.batch_size is None and self.batch_sampler is None
        return _computed(default_convert(samples)) if is_one else default_collate(samples)

    def _prefetched(self, make: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        workers, self._workers = self._workers or _Workers(self), None
        ended = left = False
        try:
            for task in islice(tasks, self.num_workers * self.prefetch_factor):
                waiting.append(workers.submit(make, task))
            while waiting:
                left = True
                if not wait([waiting[0]], self.timeout or None).done:
                    raise RuntimeError(f"DataLoader: a batch took more than {self.timeout} seconds")
                left = False
                batch = waiting.popleft().result()
                if batch is _END:
                    break
                for task in islice(tasks, 1):
                    waiting.append(workers.submit(make, task))
                yield batch
            ended = True
        finally:
            # Also runs when the loop is left early, or a sample raises.
            if ended and self.persistent_workers and self._workers is None:
                self._workers = workers
            else:
                # After a timeout, or Ctrl-C during a wait, do not wait for the pending batch.
                workers.stop(wait=not left)
