"""Compiled functions and what they read besides their arguments: changes of it, and what cannot be watched."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest

nn = nx.nn
FACTOR: Any = 2.0
SETTINGS: dict[str, Any] = {"scale": 2.0, "shifts": [1.0, 2.0]}
OFFSET = nx.tensor([1.0])
CONFIG = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0, mask=nx.tensor([1.0])))
X = nx.tensor([3.0])


def helper(x: nx.Tensor, power: float = 1.0) -> nx.Tensor:
    return x**power * FACTOR


def config() -> Any:
    return CONFIG


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FACTOR", "OFFSET"):
        monkeypatch.setitem(globals(), name, globals()[name])
    monkeypatch.setitem(SETTINGS, "scale", 2.0)
    monkeypatch.setitem(SETTINGS, "shifts", [1.0, 2.0])
    monkeypatch.setitem(globals(), "CONFIG", types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0, mask=nx.tensor([1.0]))))


def set_global(value: Any) -> None:
    globals()["FACTOR"] = value


CHANGES: dict[str, tuple[Callable[[nx.Tensor], nx.Tensor], Callable[[], Any]]] = {
    "a global": (lambda x: x * FACTOR, lambda: set_global(5.0)),
    "its type": (lambda x: x / 2 // FACTOR if isinstance(FACTOR, float) else x, lambda: set_global(2)),
    "the sign of zero": (lambda x: x / FACTOR, lambda: set_global(-0.0)),
    "a global of a helper": (lambda x: helper(x), lambda: set_global(5.0)),
    "a default": (lambda x: helper(x), lambda: setattr(helper, "__defaults__", (2.0,))),
    "a helper": (lambda x: other(x), lambda: globals().update(other=lambda x: x - 1)),
    "an item": (lambda x: x * SETTINGS["scale"], lambda: SETTINGS.update(scale=7.0)),
    "an element of an item": (lambda x: x + SETTINGS["shifts"][1], lambda: SETTINGS["shifts"].append(3.0) or SETTINGS["shifts"].pop(1)),
    "an attribute": (lambda x: x * CONFIG.inner.scale, lambda: setattr(CONFIG.inner, "scale", 9.0)),
    "an object": (lambda x: x * CONFIG.inner.scale, lambda: setattr(CONFIG, "inner", types.SimpleNamespace(scale=4.0))),
    "through a function": (lambda x: x * config().inner.scale, lambda: setattr(CONFIG.inner, "scale", 9.0)),
    "by getattr": (lambda x: x * getattr(CONFIG.inner, "sca" + "le"), lambda: setattr(CONFIG.inner, "scale", 9.0)),
    "by a name that is not there": (lambda x: x * getattr(CONFIG.inner, "extra", 1.0), lambda: setattr(CONFIG.inner, "extra", 3.0)),
    "a tensor in a global": (lambda x: x + OFFSET, lambda: globals().update(OFFSET=nx.tensor([8.0]))),
    "a tensor changed in place": (lambda x: x + OFFSET, lambda: OFFSET.add_(3.0)),
    "a tensor in an attribute, changed in place": (lambda x: x * CONFIG.inner.mask, lambda: CONFIG.inner.mask.mul_(3.0)),
    "a module's number": (lambda x: x * threshold.threshold + threshold(x), lambda: setattr(threshold, "threshold", 10.0)),
    "an array": (lambda x: x * float(TABLE[0]), lambda: TABLE.__setitem__(0, 6.0)),
}


def other(x: nx.Tensor) -> nx.Tensor:
    return x + 1


threshold = nn.Threshold(1.0, 20.0)
TABLE = np.array([4.0])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_recorded_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "__defaults__", helper.__defaults__)
    monkeypatch.setitem(globals(), "other", other)
    threshold.threshold, TABLE[0] = 1.0, 4.0
    OFFSET.fill_(1.0)
    function, change = CHANGES[name]
    compiled = nx.compile(function)
    assert compiled(X).tolist() == function(X).tolist()
    plans = nx._engine.plan_count()
    assert compiled(X).tolist() == compiled(X).tolist() and nx._engine.plan_count() == plans
    change()
    assert compiled(X).tolist() == function(X).tolist()


def test_closures_partials_and_methods_are_watched() -> None:
    scale = 2.0

    class Model:
        shift = 1.0

        def __init__(self) -> None:
            self.parts = [types.SimpleNamespace(weight=2.0)]

        @property
        def doubled(self) -> float:
            return 2 * self.parts[0].weight

        def run(self, x: nx.Tensor) -> nx.Tensor:
            return x * self.doubled + self.shift

    model = Model()
    functions: list[Callable[[nx.Tensor], nx.Tensor]] = [
        lambda x: x * scale,
        functools.partial(lambda model, x: model.run(x), model),
        model.run,
        lambda x: (lambda y: y + scale)(model.run(x)),
    ]
    compiled = [nx.compile(function) for function in functions]

    def check() -> None:
        for _ in range(2):
            assert [each(X).tolist() for each in compiled] == [each(X).tolist() for each in functions]

    check()
    scale = 3.0
    check()
    model.parts[0].weight = 5.0
    check()
    Model.shift = 4.0
    check()
    model.shift = 6.0
    check()
    model.run = lambda x: x - 1  # type: ignore[method-assign]
    functions[2] = compiled[2].__wrapped__
    check()


def test_layers_are_watched_and_earlier_recordings_found_again() -> None:
    model = nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.0), nn.LeakyReLU(0.5), nn.BatchNorm1d(2)).eval()
    compiled, x = nx.compile(model), nx.tensor([[-2.0], [1.0]])

    def check() -> None:
        with nx.no_grad():
            assert compiled(x).tolist() == model(x).tolist()

    check()
    model[2].negative_slope = 0.25
    check()
    model[3].eps = 0.5
    check()
    model[2] = nn.ReLU()
    check()
    handle = model[0].register_forward_hook(lambda module, given, result: result * 3)
    check()
    handle.remove()
    model[0].weight = nn.Parameter([[1.0], [2.0]])
    check()
    plans = nx._engine.plan_count()
    for slope in (0.5, 0.25, 0.5):
        model[2] = nn.LeakyReLU(slope)
        check()
    assert nx._engine.plan_count() <= plans + 4
    seen: list[float] = []
    alternating = nx.compile(lambda x: (seen.append(FACTOR), x * FACTOR)[1])
    for value in (2.0, 3.0, 2.0, 3.0):
        set_global(value)
        assert alternating(X).item() == 3.0 * value
    assert len(set(seen)) == 2


def test_what_a_base_class_reads_is_watched() -> None:
    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.settings = {"factor": 2.0}
            self.buffers_by_size: dict[int, nx.Tensor] = {1: nx.tensor([1.0])}

        def forward(self, x: nx.Tensor) -> nx.Tensor:
            return x * self.settings["factor"] + self.buffers_by_size[1]

    class Derived(Base):
        def forward(self, x: nx.Tensor) -> nx.Tensor:
            return super().forward(x) + 1

    model = Derived()
    compiled = nx.compile(model)
    assert compiled(X).item() == model(X).item() == 8.0
    model.settings["factor"] = 3.0
    assert compiled(X).item() == model(X).item() == 11.0
    model.buffers_by_size[1].add_(5.0)
    assert compiled(X).item() == model(X).item() == 16.0
    model.buffers_by_size[1] = nx.tensor([0.0])
    assert compiled(X).item() == model(X).item() == 10.0


RNG, GENERATOR, COUNTER = random.Random(1), np.random.default_rng(1), itertools.count()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x * random.random(), "random"),
        (lambda x: x * RNG.random(), "RNG"),
        (lambda x: x * GENERATOR.random(), "GENERATOR"),
        (lambda x: x * np.random.rand(), "numpy.random"),
        (lambda x: x * next(COUNTER), "COUNTER"),
        (lambda x: x * time.time(), "time.time"),
        (lambda x: x * float(LARGE[0]), "LARGE"),
    ],
)
def test_what_cannot_be_watched_is_refused_by_name(function: Callable[[nx.Tensor], nx.Tensor], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"may read {name} \("):
        nx.compile(function)(X)


LARGE = np.zeros(10**6)


def test_a_function_that_changes_what_it_reads_is_refused_by_name() -> None:
    class Counting:
        steps = 0

        def __call__(self, x: nx.Tensor) -> nx.Tensor:
            self.steps += 1
            return x * self.steps

    class Noting:
        def __call__(self, x: nx.Tensor) -> nx.Tensor:
            self.last = x * 2
            return self.last

    with pytest.raises(RuntimeError, match=r"Counting\.steps changes|steps changes"):
        nx.compile(Counting())(X)
    with pytest.raises(RuntimeError, match="last changes"):
        nx.compile(Noting())(X)


def test_a_function_through_which_gradients_flow_may_change_what_it_reads() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.calls = nn.Parameter([2.0]), 0

        def forward(self, x: nx.Tensor) -> nx.Tensor:
            self.calls += 1
            return x * self.weight * self.calls

    model = Model()
    compiled = nx.compile(model)
    assert [compiled(X).item() for _ in range(3)] == [6.0, 12.0, 18.0]
    compiled(X).backward()
    assert model.weight.grad.tolist() == [12.0] and len(compiled._recordings) == 1
    with nx.no_grad(), pytest.raises(RuntimeError, match="calls changes"):
        compiled(X)


def test_compiled_functions_are_collected() -> None:
    class Model:
        def __init__(self) -> None:
            self.compiled = nx.compile(self.run)
            self.weight = nx.tensor([2.0])

        def run(self, x: nx.Tensor) -> nx.Tensor:
            return x * self.weight

    model = Model()
    assert model.compiled(X).item() == 6.0
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
