"""State that compiled functions share with other code: optimisers that they read, threads, tensors that begin as one."""

from __future__ import annotations

import gc
import operator
import threading
import weakref
from collections.abc import Callable
from typing import Any

import neurenix as nx
import pytest

nn, optim = nx.nn, nx.optim


def same_calls(make: Callable[[], Callable[..., Any]], calls: int = 5) -> None:
    """Asserts that a compiled function returns what the function returns, call by call."""
    results = []
    for wrap in (lambda f: f, nx.compile):
        nx.manual_seed(1)
        function = wrap(make())
        results.append([function(nx.ones(2) + number).tolist() for number in range(calls)])
    assert results[0] == results[1]


def test_tensors_that_begin_as_one_part() -> None:
    def make() -> Callable[[nx.Tensor], nx.Tensor]:
        a = nx.zeros(2)
        b = a.clone()

        def add(x: nx.Tensor) -> nx.Tensor:
            a.add_(x)
            b.add_(2 * x)
            return a + b

        return add

    same_calls(make)

    def make_equal() -> Callable[[nx.Tensor], nx.Tensor]:
        a = nx.zeros(2)
        b = a.clone()

        def add(x: nx.Tensor) -> nx.Tensor:
            before = a - b
            a.add_(x)
            b.copy_(a)
            return before + b

        def outer(x: nx.Tensor, compiled: Any = nx.compile(add)) -> nx.Tensor:
            result = compiled(x)
            b.add_(1.0)
            return result

        return outer

    expected = [[1.0, 1.0], [2.0, 2.0], [5.0, 5.0], [9.0, 9.0]]
    function = make_equal()
    assert [function(nx.ones(2) + number).tolist() for number in range(4)] == expected


@pytest.mark.parametrize(
    "read",
    [
        lambda o, s: o.param_groups[0]["lr"],
        lambda o, s: getattr(o, "param_" + "groups")[0]["lr"],
        lambda o, s: operator.attrgetter("param_groups")(o)[0]["lr"],
        lambda o, s: vars(o)["_groups"][0]["lr"],
        lambda o, s: s.get_last_lr()[0],
        lambda o, s: s._last_lr[0],
        lambda o, s: s.last_epoch,
        lambda o, s: o.scale,
        lambda o, s: s.gamma,
        lambda o, s: float(len(repr(o))),
    ],
)
def test_numbers_that_the_function_reads_itself_are_seen(read: Callable[[Any, Any], float]) -> None:
    def make() -> Callable[[nx.Tensor], nx.Tensor]:
        a = nn.Parameter(nx.ones(2))
        optimizer = optim.SGD([a], lr=0.5, momentum=0.9)
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        optimizer.scale = 3.0  # type: ignore[attr-defined]

        def step(x: nx.Tensor) -> nx.Tensor:
            optimizer.zero_grad()
            loss = (a * x).sum() * read(optimizer, schedule)
            loss.backward()
            optimizer.step()
            return loss

        compiled = [step]

        def outer(x: nx.Tensor) -> nx.Tensor:
            result = compiled[0](x)
            schedule.step()
            optimizer.scale += 1.0  # type: ignore[attr-defined]
            schedule.gamma += 0.125
            return result

        def start(wrap: Callable[..., Any]) -> Callable[[nx.Tensor], nx.Tensor]:
            compiled[0] = wrap(step)
            return outer

        return start  # type: ignore[return-value]

    results = []
    for wrap in (lambda f: f, nx.compile):
        function = make()(wrap)  # type: ignore[arg-type]
        results.append([function(nx.ones(2) + number).tolist() for number in range(6)])
    assert results[0] == results[1]


def test_changes_that_a_replay_would_not_make_are_errors() -> None:
    a = nn.Parameter(nx.ones(2))
    optimizer = optim.SGD([a], lr=0.5)

    def step() -> None:
        optimizer.zero_grad()
        (a * a).sum().backward()
        optimizer.step()

    def slower() -> None:
        step()
        optimizer.param_groups[0]["lr"] *= 0.5

    def counting() -> None:
        step()
        step.calls += 1  # type: ignore[attr-defined]

    step.calls = 0  # type: ignore[attr-defined]
    step()
    with pytest.raises(RuntimeError, match="param_groups"):
        nx.compile(slower)()
    with pytest.raises(RuntimeError, match="calls changes"):
        nx.compile(counting)()


def test_methods_of_optimizers_that_users_replace_run() -> None:
    class Counting(optim.SGD):
        calls = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.calls += 1
            super().zero_grad(set_to_none)

    a = nn.Parameter(nx.ones(2))
    optimizer = Counting([a], lr=0.5)

    def step(x: nx.Tensor) -> None:
        optimizer.zero_grad()
        (a * x).sum().backward()
        optimizer.step()

    step(nx.ones(2))
    with pytest.raises(RuntimeError, match="calls changes"):
        nx.compile(step)(nx.ones(2))
    plain_step = optim.SGD([a], lr=0.5)
    taken = {"steps": 0}
    original = plain_step.step

    def counted() -> None:
        taken["steps"] += 1
        original()

    plain_step.step = counted  # type: ignore[method-assign]

    def other(x: nx.Tensor) -> None:
        plain_step.zero_grad()
        (a * x).sum().backward()
        plain_step.step()

    other(nx.ones(2))
    with pytest.raises(RuntimeError, match="changes while the function runs"):
        nx.compile(other)(nx.ones(2))


def test_a_failure_in_one_thread_leaves_the_others_alone() -> None:
    embedding, count = nx.randn(5, 3), nx.zeros(())

    @nx.compile
    def add(rows: nx.Tensor) -> nx.Tensor:
        count.add_(embedding[rows].sum() * 0 + 1)
        embedding.mul_(1.0)
        return count + 0

    with nx.no_grad():
        add(nx.tensor([0, 1]))
    failures: list[BaseException] = []

    def work(rows: list[int]) -> None:
        for _ in range(60):
            try:
                with nx.no_grad():
                    add(nx.tensor(rows) + nx.zeros(2, dtype="int64"))
            except IndexError:
                assert rows == [7, 0]
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in ([0, 1], [7, 0], [2, 3])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and count.item() == 121.0


def test_two_optimizers_in_either_order() -> None:
    a, b = nn.Parameter(nx.ones(2)), nn.Parameter(nx.ones(2))
    first, second = optim.SGD([a], lr=0.01), optim.SGD([b], lr=0.01)

    def stepping(*order: optim.Optimizer) -> Callable[[], None]:
        def step() -> None:
            (a * b).sum().backward()
            for each in order:
                each.step()
            for each in order:
                each.zero_grad()

        return nx.compile(step)

    steps = [stepping(first, second), stepping(second, first)]
    for step in steps:
        step()
        step()

    def work(step: Callable[[], None]) -> None:
        for _ in range(200):
            step()

    threads = [threading.Thread(target=work, args=(step,), daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_compiled_functions_are_collected() -> None:
    class Model:
        def __init__(self) -> None:
            self.compiled = nx.compile(self.run)
            self.weight = nx.tensor([2.0])

        def run(self, x: nx.Tensor) -> nx.Tensor:
            return x * self.weight

    model = Model()
    assert model.compiled(nx.tensor([3.0])).item() == 6.0
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
