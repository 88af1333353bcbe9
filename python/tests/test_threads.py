"""Models, compiled functions and loaders used by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
from neurenix import amp, data, nn, optim

THREADS = 4


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Calls ``work`` for each number in its own thread, all started together, and returns the results."""
    begun = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS

    def run(number: int) -> None:
        begun.wait()
        try:
            results[number] = work(number)
        except BaseException as error:  # Raised below, in the calling thread.
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def test_one_model_computes_for_several_threads() -> None:
    model, inputs = network(), nx.randn(THREADS, 5, 6)
    nx.evaluate([inputs, *model.parameters()])
    expected = [model(x).tolist() for x in inputs]
    for _ in range(5):
        assert in_threads(lambda number: model(inputs[number]).tolist()) == expected


def test_a_compiled_model_computes_for_several_threads() -> None:
    model, inputs = network(), nx.randn(THREADS, 5, 6)
    with nx.no_grad():
        expected = [model(x).numpy() for x in inputs]
    compiled = nx.compile(model)
    with nx.no_grad():
        compiled(inputs[0]).evaluate()

    def work(number: int) -> list[np.ndarray]:
        with nx.no_grad():
            return [compiled(inputs[number]).numpy() for _ in range(10)]

    for number, results in enumerate(in_threads(work)):
        for result in results:
            np.testing.assert_allclose(result, expected[number], rtol=1e-5, atol=1e-6)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_models_of_their_own_train_in_threads_as_they_do_alone() -> None:
    inputs, targets, start = nx.randn(20, 6), nx.randn(20, 3), network().state_dict()
    nx.evaluate([inputs, targets, *start.values()])

    def train(_number: int) -> list[object]:
        model = network()
        model.load_state_dict(start)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return [value.tolist() for value in model.state_dict().values()]

    alone = train(0)
    assert in_threads(train) == [alone] * THREADS


class Products(data.Dataset):
    """Returns each sample with the dtype in which it was multiplied."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[nx.Tensor, str]:
        x = nx.full((2, 2), float(index))
        return x, (x @ x).dtype.name


def test_autocast_is_for_the_thread_that_asks_and_not_for_workers() -> None:
    for workers, expected in ((0, "bfloat16"), (2, "float32")):
        loader = data.DataLoader(Products(), batch_size=4, num_workers=workers)
        seen = []
        with amp.autocast("cpu", nx.bfloat16):
            for batch, dtypes in loader:
                assert dtypes == [expected] * 4
                product = batch @ batch
                assert product.dtype == nx.bfloat16
                seen += product[:, 0, 0].float().tolist()
        assert seen == [2.0 * index * index for index in range(8)]
        assert not amp.is_autocast_enabled()


def test_a_loader_serves_several_threads() -> None:
    dataset = data.TensorDataset(nx.arange(30))
    expected = [batch.tolist() for (batch,) in data.DataLoader(dataset, batch_size=4)]
    loader = data.DataLoader(dataset, batch_size=4, num_workers=2)
    assert in_threads(lambda _number: [batch.tolist() for (batch,) in loader]) == [expected] * THREADS
