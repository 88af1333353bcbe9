"""Datasets, and samplers that set the order of their samples."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

from .. import _engine
from .._engine import Generator, Tensor
from ..random import multinomial


class Dataset:
    """Samples by index: subclasses define ``__getitem__`` and ``__len__``."""

    def __class_getitem__(cls, item: Any) -> type[Dataset]:
        """``Dataset[T]`` is the class itself: the sample type is documentation only."""
        return cls

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement __getitem__()")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """A stream of samples: subclasses define ``__iter__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not implement __iter__()")

    def __add__(self, other: Any) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Samples along the first dimension of tensors of the same length.

    >>> import neurenix as nx
    >>> nx.data.TensorDataset(nx.zeros(3, 2), nx.arange(3))[1]
    (tensor([0., 0.]), tensor(1))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: expected at least one tensor")
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) > 1:
            raise ValueError(f"TensorDataset: the tensors have {lengths} samples, they must have the same number")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def _whole_batch(self, indices: Sequence[int]) -> list[Tensor]:
        """These samples as a batch, gathered in one step."""
        chosen = _engine.tensor(list(indices), dtype="int64", device="cpu")
        return [tensor.index_select(0, chosen.to(tensor.device)) for tensor in self.tensors]


def _method(dataset: Any, name: str) -> Any:
    """A dataset's method that returns several samples, unless a subclass overrides how samples are returned."""
    for cls in type(dataset).__mro__:
        if name in vars(cls):
            return getattr(dataset, name)
        if "__getitem__" in vars(cls) or "__getitems__" in vars(cls):
            return None
    return None


def whole_batches(dataset: Any) -> Any:
    """The dataset's method that returns the batch that ``default_collate`` would make, if it has one."""
    return _method(dataset, "_whole_batch")


def samples_of(dataset: Any, indices: Sequence[Any], one_by_one: Callable[[Sequence[Any]], Iterable[Any]] = iter) -> Any:
    """The samples with these indices. Uses ``__getitems__``, which returns a list, if the dataset defines it."""
    several = _method(dataset, "__getitems__")
    return [dataset[index] for index in one_by_one(indices)] if several is None else several(indices)


class Subset(Dataset):
    """A subset of another dataset.

    >>> import neurenix as nx
    >>> part = nx.data.Subset(["a", "b", "c"], [2, 0])
    >>> len(part), part[0]
    (2, 'c')
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """These samples, one by one."""
        return samples_of(self.dataset, [self.indices[index] for index in indices])

    def _whole_batch(self, indices: Sequence[int]) -> Any:
        """These samples as a batch, or ``None`` if the dataset only returns single samples."""
        inner = whole_batches(self.dataset)
        return None if inner is None else inner([self.indices[index] for index in indices])


class ConcatDataset(Dataset):
    """Several datasets, concatenated.

    >>> import neurenix as nx
    >>> both = nx.data.ConcatDataset([["a", "b"], ["c"]])
    >>> len(both), both[2], both[-3]
    (3, 'c', 'a')
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes: list[int] = []
        for dataset in self.datasets:
            self.cumulative_sizes.append(len(self) + len(dataset))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        index %= len(self)
        number = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[number][index - (self.cumulative_sizes[number - 1] if number else 0)]


class ChainDataset(IterableDataset):
    """Several streams of samples, one after the other.

    >>> import neurenix as nx
    >>> class Count(nx.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1, 2])
    >>> list(Count() + Count())
    [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Random parts of these lengths, or of these shares of 1, without overlap.

    >>> import neurenix as nx
    >>> [len(part) for part in nx.data.random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    total = len(dataset)
    if lengths and all(0 <= length <= 1 for length in lengths) and math.isclose(sum(lengths), 1.0):
        sizes = [math.floor(total * share) for share in lengths]
        for number in range(total - sum(sizes)):
            sizes[number % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if any(size < 0 for size in sizes):
        raise ValueError(f"random_split: the lengths are {list(lengths)}, none may be negative")
    if sum(sizes) != total:
        raise ValueError(f"random_split: the lengths add up to {sum(sizes)}, the dataset has {total} samples")
    order = _engine.randperm(total, generator=generator, device="cpu").tolist()
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [Subset(dataset, order[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


class Sampler:
    """An order of sample indices: subclasses define ``__iter__`` and ``__len__``."""

    def __class_getitem__(cls, item: Any) -> type[Sampler]:
        """``Sampler[int]`` is the class itself: the number type is documentation only."""
        return cls

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not implement __iter__()")


class SequentialSampler(Sampler):
    """All indices in order: 0, 1, 2, ...

    >>> import neurenix as nx
    >>> list(nx.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


_AT_ONCE = 1 << 16
"""The number of sample indices to draw at once."""


def _drawn(total: int, count: int, generator: Generator | None) -> Iterator[int]:
    """``count`` integers below ``total``, drawn on demand."""
    for start in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - start)
        yield from _engine.randint(0, total, (size,), generator=generator, device="cpu").tolist()


class RandomSampler(Sampler):
    """All samples in random order; with ``replacement``, drawn independently.

    >>> import neurenix as nx
    >>> sorted(nx.data.RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples
        if not replacement and self.num_samples > len(data_source):
            raise ValueError(f"RandomSampler: drawing {self.num_samples} of {len(data_source)} samples requires replacement=True")

    def __iter__(self) -> Iterator[int]:
        total = len(self.data_source)
        if not self.replacement:
            drawn = _engine.randperm(total, generator=self.generator, device="cpu")
            return iter(drawn.tolist()[: self.num_samples])
        generator = self.generator
        if self.num_samples > _AT_ONCE:
            # One seed is drawn in advance: other draws from the generator do not change the order.
            seed = _engine.randint(0, 2**62, (1,), generator=generator, device="cpu").item()
            generator = Generator(int(seed))
        return _drawn(total, self.num_samples, generator)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """These samples in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = _engine.randperm(len(self.indices), generator=self.generator, device="cpu").tolist()
        return (self.indices[number] for number in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """``num_samples`` samples drawn by weights, which need not add up to 1.

    >>> import neurenix as nx
    >>> list(nx.data.WeightedRandomSampler([0.0, 1.0, 0.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples < 1:
            raise ValueError(f"num_samples is {num_samples!r}, it must be an integer of at least 1")
        given = weights.tolist() if isinstance(weights, Tensor) else weights
        self.weights = _engine.tensor(given, dtype="float64", device="cpu")
        if self.weights.ndim != 1 or not bool((self.weights >= 0).all()) or not float(self.weights.sum()) > 0:
            raise ValueError("weights must be a vector of non-negative numbers, at least one of them positive")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The indices of a sampler in batches. The last batch may be smaller; ``drop_last`` drops it.

    >>> import neurenix as nx
    >>> list(nx.data.BatchSampler(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size is {batch_size!r}, it must be an integer of at least 1")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)
