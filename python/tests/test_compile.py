"""Compiled functions: threads, methods, attributes."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import neurenix as nx
import numpy as np
import pytest

nn = nx.nn


def test_threads_record_a_model_beside_each_other() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    meeting, met = threading.Barrier(5, timeout=60), threading.Event()

    def forward(x: nx.Tensor) -> nx.Tensor:
        if not met.is_set():
            # All threads are recording, and the main thread computes meanwhile.
            meeting.wait()
            meeting.wait()
        return model(x).softmax(1)

    compiled, x = nx.compile(forward), nx.randn(5, 3)
    results: list[nx.Tensor] = []
    expected = model(x).softmax(1).detach()

    def call() -> None:
        with nx.no_grad():
            results.append(compiled(x))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    meeting.wait()
    (model(x) ** 2).sum().backward()
    derivatives = [parameter.grad for parameter in model.parameters()]
    meeting.wait()
    for thread in threads:
        thread.join()
    met.set()
    assert len(results) == 4 and all(nx.allclose(result, expected) for result in results)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(derivative is not None and bool((derivative != 0).any()) for derivative in derivatives)
    nx.optim.SGD(model.parameters(), lr=0.5).step()
    with nx.no_grad():
        assert nx.allclose(compiled(x), model(x).softmax(1)), "a replay uses the weights as they are now"
        assert not nx.allclose(compiled(x), expected)


def test_pytorchs_options_change_nothing() -> None:
    f = nx.compile(mode="reduce-overhead", fullgraph=True, dynamic=False)(lambda x: x * 2)
    assert f(nx.Tensor([1.0])).tolist() == [2.0]
    with pytest.raises(ValueError, match="mode is 'fast', it must be one of None, 'default'"):
        nx.compile(lambda x: x, mode="fast")
    with pytest.raises(TypeError, match="backend"):
        nx.compile(lambda x: x, backend="inductor")  # type: ignore[call-arg]


def test_threads_draw_beside_a_recording() -> None:
    drawn: list[nx.Tensor] = []

    def noise(x: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
        first = nx.rand(2) + x
        other = threading.Thread(target=lambda: drawn.append(nx.rand(2).evaluate()))
        other.start()
        other.join()
        return first, nx.rand(2) + x

    nx.manual_seed(5)
    first, second = nx.compile(noise)(nx.zeros(2))
    nx.manual_seed(5)
    assert [each.tolist() for each in (drawn[0], first, second)] == [nx.rand(2).tolist() for _ in range(3)]


def test_what_is_held_and_given_back_is_no_constant() -> None:
    w = nx.Tensor([1.0, 2.0])
    compiled = nx.compile(lambda x: (w, w.data + x))
    assert [each.tolist() for each in compiled(nx.ones(2))] == [[1.0, 2.0], [2.0, 3.0]]
    w.fill_(5)
    assert [each.tolist() for each in compiled(nx.ones(2))] == [[5.0, 5.0], [6.0, 6.0]]


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.numpy(force=True),
        lambda x: nx.zeros(0).numpy(),
        lambda x: np.asarray(x),
        lambda x: np.exp(x),
        lambda x: np.sum(x),
        lambda x: np.from_dlpack(x),
        lambda x: x.__dlpack__(max_version=(1, 0)),
    ],
)
def test_a_compiled_function_reads_no_value(read: Callable[[nx.Tensor], object]) -> None:
    def reading(x: nx.Tensor) -> nx.Tensor:
        read(x)
        return x * 2

    x = nx.ones(1)
    with pytest.raises(ValueError, match="the captured function reads the value of a tensor"):
        nx.compile(reading)(x)
    assert reading(x).tolist() == [2.0]


def test_what_is_printed_in_a_compiled_function_has_no_values() -> None:
    texts: list[str] = []

    def shown(x: nx.Tensor) -> nx.Tensor:
        texts.append(repr(x))
        return x * 2

    assert nx.compile(shown)(nx.ones(3)).tolist() == [2.0] * 3
    assert len(texts) == 1 and "shape=(3,)" in texts[0] and "1." not in texts[0]


def double(x: nx.Tensor) -> nx.Tensor:
    return x * 2


@nx.compile
def triple(x: nx.Tensor) -> nx.Tensor:
    """Multiplies by three."""
    return x * 3


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(nx.Tensor([scale]), requires_grad=False)

    @nx.compile
    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return x * self.scale


def test_compiled_functions_are_copied_and_pickled() -> None:
    x = nx.ones(2)
    compiled = nx.compile(double)
    for again in (copy.copy(compiled), copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert again is not compiled and again(x).tolist() == [2.0, 2.0] and again.__name__ == "double"
    for again in (copy.deepcopy(triple), pickle.loads(pickle.dumps(triple))):
        assert again is triple and again(x).tolist() == [3.0, 3.0] and again.__doc__ == "Multiplies by three."
    model = nx.compile(nn.Linear(2, 2))
    copied = copy.deepcopy(model)
    with nx.no_grad():
        model.weight.fill_(0)
        assert nx.allclose(model(x), model.bias) and not nx.allclose(copied(x), copied.bias)
    with pytest.raises(AttributeError, match="__wanted__"):
        model.__wanted__


def test_a_compiled_method_belongs_to_its_object() -> None:
    two, five, x = Scaled(2.0), Scaled(5.0), nx.ones(2)
    assert [model(x).tolist() for model in (two, five, two)] == [[2.0, 2.0], [5.0, 5.0], [2.0, 2.0]]
    two.scale.fill_(3.0)
    assert two(x).tolist() == [3.0, 3.0] and copy.deepcopy(two)(x).tolist() == [3.0, 3.0]
    assert Scaled.forward(five, x).tolist() == [5.0, 5.0]


def test_what_compiled_functions_within_hold_is_not_frozen() -> None:
    w = nx.Tensor([2.0])
    twice = nx.compile(nx.compile(lambda x: x * w))
    assert twice(nx.ones(1)).item() == 2.0
    w.fill_(7)
    assert twice(nx.ones(1)).item() == 7.0
