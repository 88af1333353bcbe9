"""Datasets, batches, a progress bar, and training history.

>>> import neurenix as nx
>>> train, test = nx.data.digits()
>>> len(train) + len(test)
1797
"""

from typing import Any

from .. import _engine
from ._progress import progress
from .dataset import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from .distributed import DistributedSampler
from .history import History
from .loader import DataLoader, default_collate, default_convert, get_worker_info


def digits(device: Any = None) -> tuple[TensorDataset, TensorDataset]:
    """The bundled handwritten digits: a training set and a test set of images and labels, on ``device`` or the default one."""
    where = _engine.get_default_device() if device is None else device
    train_inputs, train_labels, test_inputs, test_labels = (each.to(device=where) for each in _engine.digits())
    return TensorDataset(train_inputs, train_labels), TensorDataset(test_inputs, test_labels)


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "History",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "digits",
    "get_worker_info",
    "progress",
    "random_split",
]
