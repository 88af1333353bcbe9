"""Pending work is bounded: memory stays flat however long a loop goes on without reading, and its peak is that of a loop
which computes every step."""

from __future__ import annotations

import gc
from collections.abc import Callable

import neurenix as nx
import neurenix.nn.functional as F
import numpy as np
import pytest
from neurenix import nn, optim

CPU = nx.Device("cpu")
STEPS = 1000


def used(step: Callable[[], object], steps: int) -> tuple[int, int]:
    """Bytes in use after some steps, and the most of them while they ran."""
    for _ in range(10):
        step()
    gc.collect()
    CPU.reset_peak_memory()
    for _ in range(steps):
        step()
    memory = CPU.memory()
    return memory["allocated"], memory["peak"]


def check(loop: Callable[[bool], Callable[[], object]], steps: int) -> None:
    """``loop`` makes a step that computes all that it makes, or leaves it pending."""
    gc.collect()
    start = CPU.memory()["allocated"]
    _, expected = used(loop(True), 10)
    gc.collect()
    assert CPU.memory()["allocated"] == start
    short, _ = used(loop(False), 20)
    gc.collect()
    assert CPU.memory()["allocated"] == start
    step = loop(False)
    allocated, peak = used(step, steps)
    assert peak - start <= 1.1 * (expected - start), (peak - start, expected - start)
    assert allocated - start <= 1.1 * (expected - start), (allocated - start, short - start)


def batches(rows: int, width: int) -> Callable[[], nx.Tensor]:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((rows, width), dtype=np.float32)
    return lambda: nx.from_numpy(data)


def test_an_average_of_weights() -> None:
    def loop(evaluated: bool) -> Callable[[], object]:
        model, x = nn.Linear(512, 512, bias=False), nx.randn(2, 512).evaluate()
        optimizer = optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        averages = [p.detach().clone() for p in model.parameters()]

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            with nx.no_grad():
                for i, p in enumerate(model.parameters()):
                    averages[i] = averages[i] * 0.99 + p.detach() * 0.01
            if evaluated:
                nx.evaluate(averages)

        return step

    check(loop, 60)


@pytest.mark.parametrize("late", [False, True])
def test_a_sum_of_losses(late: bool) -> None:
    def loop(evaluated: bool) -> Callable[[], object]:
        model, x = nn.Linear(8, 2000), nx.randn(64, 8).evaluate()
        y = nx.randint(0, 2000, (64,)).evaluate()
        optimizer = optim.SGD(model.parameters(), lr=1e-3)
        total = [nx.zeros(())]

        def step() -> None:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if not late:
                total[0] += loss.detach()
            loss.backward()
            optimizer.step()
            if late:
                total[0] += loss.detach()
            if evaluated:
                total[0].item()

        return step

    check(loop, 60)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_accumulated_gradients(count: int) -> None:
    def loop(evaluated: bool) -> Callable[[], object]:
        model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
        optimizer = optim.SGD(model.parameters(), lr=1e-3)
        batch = batches(1024, 32)

        def step() -> None:
            optimizer.zero_grad()
            for _ in range(count):
                loss = (model(batch()) ** 2).mean() / count
                loss.backward()
                if evaluated:
                    nx.evaluate([p.grad for p in model.parameters()])
            optimizer.step()

        return step

    check(loop, 5)


@pytest.mark.parametrize("kept", ["sum", "list"])
def test_a_validation_loop(kept: str) -> None:
    def loop(evaluated: bool) -> Callable[[], object]:
        model = nn.Sequential(nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 10))
        batch, y = batches(256, 256), nx.randint(0, 10, (256,)).evaluate()
        total = [nx.zeros(())]

        def step() -> None:
            with nx.no_grad():
                losses = [F.cross_entropy(model(batch()), y) for _ in range(4)]
                if kept == "sum":
                    total[0] += sum(losses)
                else:
                    total.extend(losses)
                    del total[1:-100]
            if evaluated:
                nx.evaluate(total)

        return step

    check(loop, 60)


def test_a_gradient_that_nobody_reads_frees_its_leaf() -> None:
    """A leaf holds its gradient, which holds the leaf until it is computed."""
    gc.collect()
    start = CPU.memory()["allocated"]
    for _ in range(STEPS):
        t = nx.rand(1000).requires_grad_()
        (t * t).sum().backward()
    del t
    assert CPU.memory()["allocated"] - start < 1 << 20


def test_what_is_read_before_backward_keeps_what_the_gradient_needs() -> None:
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))])
    x = nx.randn(512, 64).evaluate()
    nx.evaluate(list(model.parameters()))
    start = CPU.memory()["allocated"]
    loss = (model(x) ** 2).mean()
    loss.item()
    activation = 512 * 64 * 4
    # Of each layer the input of its activation, the input of the next product, and the mask.
    assert CPU.memory()["allocated"] - start <= 4 * 3 * activation + activation
    loss.backward()
    nx.evaluate([p.grad for p in model.parameters()])
    gradients = sum(p.nbytes for p in model.parameters())
    del loss
    assert CPU.memory()["allocated"] - start <= 1.1 * gradients


def test_one_element_is_written_in_place() -> None:
    x = nx.zeros(100)
    before = CPU.memory()["allocations"]
    for k in range(1000):
        x[k % 100] = float(k)
    # The vector itself, computed at the first of them.
    assert CPU.memory()["allocations"] - before == 1
    assert x.tolist() == [900.0 + k for k in range(100)]


@pytest.mark.parametrize("dtype", [nx.float32, nx.int32, nx.bfloat16, nx.bool, nx.uint8])
def test_one_element_and_who_sees_it(dtype: nx.dtype) -> None:
    x = nx.zeros((2, 3), dtype=dtype)
    old, row, pending = x.clone().evaluate(), x[1], x + x
    alias = nx.Tensor(x)
    array = x.float().numpy()
    x[1, -1] = 1
    x[-2, 0] = nx.tensor(1, dtype=dtype)
    x[0, 1] = x[1, 2]
    assert x.to(nx.int64).tolist() == [[1, 1, 0], [0, 0, 1]]
    for other in (old, alias, row, pending):
        assert not other.to(nx.bool).any().item()
    assert not array.any()
    # Repeated elements are several.
    wide = nx.zeros((3, 1), dtype=dtype).evaluate().expand(3, 4)
    wide[0, 1] = 1
    assert wide.to(nx.int64).sum().item() == 1
    for wrong in ((2, 0), (0, 3), (0, -4)):
        with pytest.raises(IndexError):
            x[wrong] = 1
    counts = nx.zeros((5, 5), dtype=nx.int32)
    expected = np.zeros((5, 5), dtype=np.int32)
    for k in range(100):
        counts[k % 5, k % 3] += 1
        expected[k % 5, k % 3] += 1
    assert counts.tolist() == expected.tolist()


def test_one_element_of_what_takes_part_in_gradients() -> None:
    x = nx.zeros(3)
    w = nx.tensor(2.0, requires_grad=True)
    x[1] = w * 3
    x.sum().backward()
    assert w.grad is not None and w.grad.item() == 3.0
    leaf = nx.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError):
        leaf[0] = 1.0
    with nx.no_grad():
        leaf[0] = 1.0
    assert leaf.tolist() == [1.0, 0.0, 0.0] and leaf.requires_grad
