"""Compiled functions that read other values than their arguments: changes of these, and values that cannot be watched."""

from __future__ import annotations

import array
import configparser
import contextvars
import copy
import dataclasses
import datetime
import enum
import functools
import importlib
import itertools
import logging
import math
import os
import random
import re
import sys
import threading
import time
import types
import weakref
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional, cast

import neurenix as nx
import numpy as np
import pytest

nn = nx.nn
FACTOR: Any = 2.0
SETTINGS: dict[str, Any] = {"scale": 2.0, "shifts": [1.0, 2.0]}
CONFIG = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0, mask=nx.tensor([1.0])))
OFFSET, X = nx.tensor([1.0]), nx.tensor([3.0])


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
    "an attribute's item": (lambda x: x * vars(CONFIG.inner)["scale"], lambda: setattr(CONFIG.inner, "scale", 9.0)),
    "an ordered item": (lambda x: x * ORDERED["scale"], lambda: put(ORDERED, "scale", 9.0)),
    "an item with a default": (lambda x: x * DEFAULTS["scale"], lambda: put(DEFAULTS, "scale", 9.0)),
    "an element of a queue": (lambda x: x * QUEUE[0], lambda: put(QUEUE, 0, 9.0)),
    "an item of a UserDict": (lambda x: x * USER["scale"], lambda: put(USER, "scale", 9.0)),
    "an item of a class of one's own": (lambda x: x * OWN["scale"], lambda: put(OWN, "scale", 9.0)),
    "the data of a UserDict": (lambda x: x * USER["scale"], lambda: setattr(USER, "data", {"scale": 7.0})),
    "an element of a UserList": (lambda x: x * USER_LIST[0], lambda: put(USER_LIST, 0, 9.0)),
    "an item of a ChainMap": (lambda x: x * CHAIN["scale"], lambda: put(CHAIN, "scale", 9.0)),
    "an item behind it": (lambda x: x * CHAIN["shift"], lambda: put(CHAIN.maps[1], "shift", 9.0)),
    "the maps of a ChainMap": (lambda x: x * CHAIN["shift"], lambda: CHAIN.maps.insert(0, {"shift": 7.0})),
    "an item of a view": (lambda x: x * VIEW["scale"], lambda: put(SETTINGS, "scale", 9.0)),
    "a context's variable": (lambda x: x * VARIABLE.get(), lambda: VARIABLE.set(9.0)),
    "an argument of the program": (lambda x: x + len(sys.argv), lambda: sys.argv.append("another")),
}


class Own(UserDict[str, float]):
    pass


ORDERED, DEFAULTS, QUEUE = OrderedDict(scale=2.0), defaultdict(float, scale=2.0), deque([2.0])
USER, OWN, USER_LIST = UserDict(scale=2.0), Own(scale=2.0), UserList([2.0])
CHAIN, VIEW = ChainMap({"scale": 2.0}, {"shift": 3.0}), types.MappingProxyType(SETTINGS)
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=2.0)


def other(x: nx.Tensor) -> nx.Tensor:
    return x + 1


threshold, TABLE = nn.Threshold(1.0, 20.0), np.array([4.0])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_recorded_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "__defaults__", helper.__defaults__)
    monkeypatch.setitem(globals(), "other", other)
    monkeypatch.setattr(sys, "argv", [*sys.argv])
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


def test_an_equal_number_that_is_another_object_records_nothing() -> None:
    holder = types.SimpleNamespace(_settings={"scale": 2.0}, shift=1.0)
    compiled = nx.compile(lambda x: x * holder._settings["scale"] + holder.shift)
    for text, expected in (("2.0", 7.0), ("2.0", 7.0), ("3.0", 10.0), ("3.0", 10.0), ("2.0", 7.0)):
        holder._settings["scale"], holder.shift = float(text), float("1.0")
        assert compiled(X).item() == expected
    assert sum(map(len, compiled._states.values())) == 2


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
        (lambda x: x * datetime.datetime.now().year, r"datetime\.datetime\.now"),
        (lambda x: x * datetime.datetime.utcnow().year, r"datetime\.datetime\.utcnow"),
        (lambda x: x * datetime.date.today().year, r"datetime\.date\.today"),
        (lambda x: x * Day.today().year, r"datetime\.date\.today"),
        (lambda x: x * NOW().year, "NOW"),
        (lambda x: local_clock(x), r"time\.perf_counter"),
        (lambda x: local_date(x), r"datetime\.datetime\.now"),
        (lambda x: x * float(PARSER["a"]["scale"]), "PARSER"),
        (lambda x: x * WEAK[Own], "WEAK"),
        (lambda x: x * BYTES[0], "BYTES"),
        (lambda x: x * ARRAY[0], "ARRAY"),
        (lambda x: x * float(POLYNOMIAL[0]), "POLYNOMIAL"),
        (lambda x: x * LOCAL.scale, "LOCAL"),
        (lambda x: x * float(os.environ["SCALE"]), r"os\.environ"),
        (lambda x: x * float(os.environ.get("SCALE", 1)), r"os\.environ"),
        (lambda x: x * float(os.getenv("SCALE", "1")), r"os\.getenv"),
    ],
)
def test_what_cannot_be_watched_is_refused_by_name(function: Callable[[nx.Tensor], nx.Tensor], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"may read {name} \("):
        nx.compile(function)(X)


LARGE, LOCAL = np.zeros(10**6), threading.local()
LOCAL.scale = 2.0
Day, NOW = datetime.date, datetime.datetime.now
PARSER, WEAK = configparser.ConfigParser(), weakref.WeakKeyDictionary({Own: 2.0})
BYTES, ARRAY, POLYNOMIAL = bytearray(b"2"), array.array("d", [2.0]), np.poly1d([2.0])


def local_clock(x: nx.Tensor) -> nx.Tensor:
    from time import perf_counter as clock

    return x * clock()


def local_date(x: nx.Tensor) -> nx.Tensor:
    import datetime as dt

    return x * dt.datetime.now().year


LIBRARY = """
class Config:
    def __init__(self):
        self._values = {"scale": 2.0}

    def __getitem__(self, key):
        return self._values[key]

class Lazy:
    def __init__(self):
        self.__dict__["_values"] = {"scale": 2.0}

    def __getattr__(self, name):
        return self._values[name]

class Plain:
    def __init__(self):
        self.scale = 2.0

ITEMS, LAZY, PLAIN = Config(), Lazy(), Plain()
"""


def test_objects_of_libraries_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "configured_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    library: Any = importlib.import_module("configured_library")
    items, lazy, plain = library.ITEMS, library.LAZY, library.PLAIN

    class Derived(library.Config):  # type: ignore[misc]
        pass

    derived = Derived()
    refused: list[tuple[Callable[[nx.Tensor], nx.Tensor], str]] = [
        (lambda x: x * items["scale"], r"items \(a Config\)"),
        (lambda x: x * derived["scale"], r"derived \(a Derived\)"),
        (lambda x: x * lazy.scale, r"lazy \(a Lazy\)"),
        (lambda x: x * library.ITEMS["scale"], r"ITEMS \(a Config\)"),
        (functools.partial(lambda config, x: x * config["scale"], items), r"a Config\)"),
    ]
    for function, name in refused:
        with pytest.raises(RuntimeError, match=f"may read .*{name}"):
            nx.compile(function)(X)
    compiled = nx.compile(lambda x: x * plain.scale)
    assert compiled(X).item() == 6.0
    plain.scale = 5.0
    assert compiled(X).item() == 15.0


@dataclasses.dataclass
class Options:
    scale: float = 2.0
    kind: Kind = dataclasses.field(default_factory=lambda: Kind.TWICE)
    widths: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


class Kind(enum.Enum):
    ONCE = 1
    TWICE = 2


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Pair(NamedTuple):
    first: float
    second: float


OPTIONS, PAIR, MATCH = Options(), Pair(1.0, 2.0), re.match("(.)", "a")
Numbers = list[int]
Maybe = Optional[int]
PLACE, HALF, KIND, ROW = np.s_[0:1], np.float32(0.5), np.dtype("float32"), np.array([1.0, 2.0], "float32")
BY_TWO, DAY = functools.partial(nx.mul, 2.0), datetime.date(2020, 1, 1)
logger = logging.getLogger("neurenix.tests")


@functools.lru_cache
def cached(size: int) -> int:
    return size + 1


def test_ordinary_objects_are_not_refused() -> None:
    def function(x: nx.Tensor) -> nx.Tensor:
        import datetime as dt
        import os.path as paths
        import time

        time.sleep(0)
        print(paths.join("a", "b"), dt.timedelta(1).days, file=sys.stderr)
        if logger.isEnabledFor(logging.DEBUG) or not isinstance(OPTIONS.kind, Kind):
            logger.debug("computed")
        widths: Numbers = OPTIONS.widths
        other = cast(Maybe, cached(len(widths)))
        x = x[PLACE] * math.sqrt(4.0) * OPTIONS.scale * OPTIONS.kind.value + PAIR.first + PAIR[1] + float(HALF)
        assert MATCH is not None and KIND == np.float32 and Kind["ONCE"] is Kind.ONCE and Level.LOW in Level.LOW | Level.HIGH
        day = DAY.year - datetime.timedelta(days=2).days + datetime.datetime(2020, 1, 1).year
        return BY_TWO(x) + float(np.sum(ROW)) + np.prod([2, 3]).item() + len(MATCH[1]) + (other or 0) + day + widths[-1]

    compiled = nx.compile(function)
    plans = compiled(X).tolist() == function(X).tolist() and nx._engine.plan_count()
    assert plans and compiled(X).tolist() == function(X).tolist()
    OPTIONS.widths[-1] = 5
    assert compiled(X).tolist() == function(X).tolist()
    OPTIONS.kind = Kind.ONCE
    assert compiled(X).tolist() == function(X).tolist()


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


def put(container: Any, key: Any, value: Any) -> None:
    container[key] = value


@pytest.mark.parametrize(
    ("held", "function"),
    [
        ({"n": 0}, lambda held, x: (put(held, "n", held["n"] + 1), x * held["n"])[1]),
        ({"h": nx.tensor([1.0])}, lambda held, x: (put(held, "h", held["h"] + x), held["h"] * 1)[1]),
        ({"n": 0, "m": 1}, lambda held, x: x * held.pop("n")),
        ({"n": 0, "m": 1}, lambda held, x: (put(held, "n", held.pop("n")), x * next(iter(held.values())))[1]),
        ([0], lambda held, x: (put(held, 0, held[0] + 1), x * held[0])[1]),
        ([0], lambda held, x: (held.insert(0, 5), x * held[0])[1]),
        ([1, 2], lambda held, x: x * held.pop()),
        (deque([1, 2], 2), lambda held, x: (held.append(3), x * held[0])[1]),
        (deque([1]), lambda held, x: (held.appendleft(3), x * held[0])[1]),
        ({"a", "b"}, lambda held, x: (held.remove("a"), held.add("c"), x * ("a" in held))[2]),
        (OrderedDict(n=0), lambda held, x: (put(held, "n", held["n"] + 1), x * held["n"])[1]),
        (defaultdict(int, n=1), lambda held, x: (put(held, "n", held["n"] + 1), x * held["n"])[1]),
        (UserDict(n=0), lambda held, x: (put(held, "n", held["n"] + 1), x * held["n"])[1]),
    ],
)
def test_a_function_that_changes_elements_is_refused_by_name(held: Any, function: Callable[[Any, nx.Tensor], nx.Tensor]) -> None:
    held = copy.deepcopy(held)
    with pytest.raises(RuntimeError, match="held.* changes while the function runs"):
        nx.compile(lambda x: function(held, x))(X)


def test_elements_may_be_added_behind_those_that_were_there() -> None:
    steps: list[str] = ["first"]
    masks: dict[int, str] = {0: "none"}
    sizes = {7}

    def function(x: nx.Tensor) -> nx.Tensor:
        steps.append("step")
        masks.setdefault(x.shape[0], "made")
        sizes.add(x.shape[0])
        return x * 2

    compiled = nx.compile(function)
    assert [compiled(nx.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert steps == ["first", "step"] and masks == {0: "none", 2: "made"} and sizes == {2, 7}
    # The added entry is watched from now on.
    masks[2] = "changed"
    assert compiled(nx.ones(2)).tolist() == [2.0, 2.0] and steps == ["first", "step", "step"]


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
    assert model.weight.grad.tolist() == [12.0] and len(compiled._states) == 1
    with nx.no_grad(), pytest.raises(RuntimeError, match="calls changes"):
        compiled(X)
