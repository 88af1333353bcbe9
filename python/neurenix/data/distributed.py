"""Samples divided among the ranks of a process group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from .. import _engine
from .._engine import Generator
from .dataset import Sampler


class DistributedSampler(Sampler):
    """This rank's part of a dataset: every ``num_replicas``-th index, from ``rank`` on, of all indices in random order.

    The ranks get the same number of samples. Indices from the beginning are repeated to make them even, or with
    ``drop_last`` the last ones are dropped. The order depends on ``seed`` and the epoch only, so it is the same on all
    ranks: call :meth:`set_epoch` before each epoch, otherwise every epoch has the same order. Without ``shuffle`` the
    indices are in order. By default, ``num_replicas`` and ``rank`` are those of the job; 1 and 0 without a
    launcher.

    >>> import neurenix as nx
    >>> list(nx.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    >>> sampler = nx.data.DistributedSampler(range(5), num_replicas=2, rank=1)
    >>> sampler.set_epoch(3)
    >>> len(list(sampler)) == len(sampler) == 3
    True
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ..distributed._groups import group_unless_alone

            group = group_unless_alone(None, "DistributedSampler")
            size, place = (1, 0) if group is None else (group.size(), group.rank())
            num_replicas = size if num_replicas is None else num_replicas
            rank = place if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: rank is {rank}, it must be from 0 to {num_replicas - 1}")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            indices = _engine.randperm(count, generator=Generator(self.seed + self.epoch), device="cpu").tolist()
        else:
            indices = list(range(count))
        if self.total_size > count:
            # A small dataset may have to be repeated more than once.
            indices = (indices * math.ceil(self.total_size / max(count, 1)))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the order depends."""
        self.epoch = epoch
