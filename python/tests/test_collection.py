"""The garbage collector finds reference cycles through tensors."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import neurenix as nx
import pytest

nn = nx.nn


class Witness:
    """Freed together with the objects that refer to it."""


def test_a_leaf_whose_hook_refers_to_it_is_collected() -> None:
    for kind in (lambda: nx.ones(2).requires_grad_(), lambda: nn.Parameter(nx.ones(2))):
        leaf, witness = kind(), Witness()
        leaf.register_hook(lambda gradient, leaf=leaf, witness=witness: gradient * 2)
        (leaf * 3).sum().backward()
        assert leaf.grad.tolist() == [6.0, 6.0]
        gone = weakref.ref(witness)
        del witness
        gc.collect()
        assert gone() is not None, "the leaf is there, and its hook"
        (leaf * 3).sum().backward()
        assert leaf.grad.tolist() == [12.0, 12.0]
        del leaf
        gc.collect()
        assert gone() is None


def test_a_result_whose_hook_refers_to_it_is_collected() -> None:
    x, witness, seen = nx.ones(2).requires_grad_(), Witness(), []
    y = x * 2
    y.register_hook(lambda gradient, y=y, witness=witness: seen.append(y.tolist()))
    loss = (y * 3).sum()
    gone = weakref.ref(witness)
    del witness, y
    # The graph must still call the hook after a garbage collection.
    gc.collect()
    loss.backward()
    assert seen == [[2.0, 2.0]] and x.grad.tolist() == [6.0, 6.0]
    del loss
    gc.collect()
    assert gone() is None


def test_a_trainer_that_its_models_hooks_refer_to_is_collected() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Linear(2, 1)
            self.optimizer = nx.optim.Adam(self.model.parameters())
            self.norms: list[float] = []
            self.handles = [each.register_hook(self.note) for each in self.model.parameters()]
            self.model.register_forward_hook(lambda module, given, result: self.norms.append(0.0))

        def note(self, gradient: nx.Tensor) -> None:
            self.norms.append(gradient.norm().item())

        def step(self) -> None:
            self.model(nx.ones(3, 2)).sum().backward()
            self.optimizer.step()

    trainer = Trainer()
    for _ in range(2):
        trainer.step()
        gc.collect()
    assert len(trainer.norms) == 6
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None


def test_what_shares_a_tensor_keeps_its_hooks() -> None:
    leaf, calls = nx.ones(2).requires_grad_(), []
    leaf.register_hook(lambda gradient, leaf=leaf: calls.append(1))
    values, loss = leaf.data, (leaf * 2).sum()
    del leaf
    gc.collect()
    loss.backward()
    assert calls == [1] and values.tolist() == [1.0, 1.0]


def test_a_removed_hook_is_forgotten() -> None:
    leaf, witness = nx.ones(2).requires_grad_(), Witness()
    handle = leaf.register_hook(lambda gradient, witness=witness: None)
    gone = weakref.ref(witness)
    del witness
    handle.remove()
    assert gone() is None
    handle.remove()
    other = nx.ones(2).requires_grad_()
    late = other.register_hook(lambda gradient: None)
    del other
    late.remove()


def test_collecting_beside_computations_changes_nothing() -> None:
    """Threads compute with hooks while another thread collects garbage."""
    stop, failures = threading.Event(), []

    def train() -> None:
        try:
            for _ in range(30):
                calls: list[Any] = []
                leaf = nx.ones(50).requires_grad_()
                leaf.register_hook(lambda gradient, leaf=leaf, calls=calls: calls.append(leaf) or gradient * 2)
                for _ in range(2):
                    (leaf * 3).exp().sum().backward()
                assert len(calls) == 2 and leaf.grad is not None
                (leaf * 1).sum().backward()
                assert len(calls) == 3
        except BaseException as error:
            failures.append(error)

    def collect() -> None:
        while not stop.is_set():
            gc.collect()

    collector = threading.Thread(target=collect)
    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in (collector, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    collector.join()
    assert not failures


@pytest.mark.parametrize("kind", [nx.Tensor, nn.Parameter])
def test_the_collector_knows_the_classes(kind: type) -> None:
    assert kind.__flags__ & (1 << 14)
