"""Averages of models with buffers, as PyTorch 2.15."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import pytest
from neurenix.optim import swa_utils

CASES: dict[str, tuple[dict[str, Any], list[int], list[float]]] = {
    "mean": ({}, [10, 13, 16, 19], [1.0, 1.5, 2.0, 2.5]),
    "mean_function": ({"avg_fn": swa_utils.get_swa_avg_fn()}, [10, 13, 16, 19], [1.0, 1.5, 2.0, 2.5]),
    "ema": ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}, [10, 10, 11, 13], [1.0, 1.1, 1.29, 1.561]),
    "ema_function": ({"avg_fn": swa_utils.get_ema_avg_fn(0.9)}, [10, 10, 11, 13], [1.0, 1.1, 1.29, 1.561]),
}


@pytest.mark.parametrize("name", CASES)
def test_counts_of_batches_are_averaged_as_integers(name: str) -> None:
    options, counts, means = CASES[name]
    model: Any = nx.nn.BatchNorm1d(1)
    averaged: Any = swa_utils.AveragedModel(model, use_buffers=True, **options)
    for number, (count, mean) in enumerate(zip(counts, means, strict=True), 1):
        model.num_batches_tracked.fill_(7 * number + 3)
        model.running_mean.fill_(float(number))
        averaged.update_parameters(model)
        assert averaged.module.num_batches_tracked.dtype == nx.int64
        assert averaged.module.num_batches_tracked.item() == count
        assert averaged.module.running_mean.item() == pytest.approx(mean, rel=1e-6)
