"""Compiled training steps: a replay does what the function does, bit for bit."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import neurenix as nx
import numpy as np
import pytest

nn, optim = nx.nn, nx.optim

Step = Callable[[nx.Tensor, nx.Tensor], Any]


class Setting:
    """A model, its optimiser and a step."""

    def __init__(self, make: Callable[["Setting"], Step]) -> None:
        nx.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        self.optimizer: optim.Optimizer = optim.Adam(self.model.parameters(), lr=0.01)
        self.scaler = nx.amp.GradScaler(init_scale=8.0, growth_interval=2)
        self.schedule: Any = None
        self.step = make(self)

    def loss(self, x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        return nn.functional.cross_entropy(self.model(x), y)

    def state(self) -> list[Any]:
        gradients = [plain_values(p.grad) for p in self.model.parameters()]
        values = plain_values(self.model.state_dict())
        kept = plain_values(self.optimizer.state_dict()["state"])
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [gradients, values, kept, rates, self.scaler.state_dict()]


def batches(count: int, rows: int = 8) -> Iterator[tuple[nx.Tensor, nx.Tensor]]:
    random = np.random.default_rng(5)
    for _ in range(count):
        yield nx.tensor(random.normal(size=(rows, 6)).astype("float32")), nx.tensor(random.integers(0, 3, rows))


def plain(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        s.optimizer.zero_grad()
        loss = s.loss(x, y)
        loss.backward()
        s.optimizer.step()
        return loss

    return step


def with_optimizer(make: Callable[[Any], optim.Optimizer]) -> Callable[[Setting], Step]:
    def made(s: Setting) -> Step:
        s.optimizer = make(s.model)
        return plain(s)

    return made


def zeros_at_the_end(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> dict[str, Any]:
        loss = s.loss(x, y)
        loss.backward()
        s.optimizer.step()
        s.optimizer.zero_grad()
        return {"loss": loss, "kind": "last", "both": [loss * 2, 1]}

    return step


def zeros_instead_of_none(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> None:
        s.optimizer.zero_grad(set_to_none=False)
        s.loss(x, y).backward()
        s.optimizer.step()

    return step


def clipped(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
        s.optimizer.zero_grad()
        loss = s.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(s.model.parameters(), 0.1)
        s.optimizer.step()
        return loss, norm

    return step


def accumulated(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> None:
        s.optimizer.zero_grad()
        for part in range(2):
            (s.loss(x[4 * part : 4 * part + 4], y[4 * part : 4 * part + 4]) / 2).backward()
        s.optimizer.step()

    return step


def scaled(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        s.optimizer.zero_grad()
        loss = s.loss(x, y)
        s.scaler.scale(loss).backward()
        s.scaler.unscale_(s.optimizer)
        nn.utils.clip_grad_norm_(s.model.parameters(), 1.0)
        s.scaler.step(s.optimizer)
        s.scaler.update()
        return loss

    return step


def scheduled(make: Callable[[optim.Optimizer], Any]) -> Callable[[Setting], Step]:
    def made(s: Setting) -> Step:
        s.optimizer = optim.SGD(s.model.parameters(), lr=0.1, momentum=0.9)
        s.schedule = make(s.optimizer)

        def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
            s.optimizer.zero_grad()
            loss = s.loss(x, y)
            loss.backward()
            s.optimizer.step()
            s.schedule.step()
            return loss

        return step

    return made


def by_hand(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        loss = s.loss(x, y)
        loss.backward()
        with nx.no_grad():
            for parameter in s.model.parameters():
                parameter.mul_(0.99)
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return loss

    return step


def changed_before_the_step(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        s.optimizer.zero_grad()
        loss = s.loss(x, y)
        loss.backward()
        with nx.no_grad():
            for parameter in s.model.parameters():
                parameter.mul_(0.99)
        s.optimizer.step()
        return loss

    return step


def by_two_optimizers(s: Setting) -> Step:
    other = optim.SGD(s.model.parameters(), lr=0.01, momentum=0.5)

    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        s.optimizer.zero_grad()
        loss = s.loss(x, y)
        loss.backward()
        s.optimizer.step()
        other.step()
        return loss

    return step


def in_half_precision(s: Setting) -> Step:
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        s.optimizer.zero_grad()
        with nx.autocast("cpu", dtype="bfloat16"):
            loss = s.loss(x, y)
        loss.backward()
        s.optimizer.step()
        return loss

    return step


def two_groups(model: Any) -> optim.Optimizer:
    parameters = list(model.parameters())
    return optim.AdamW([{"params": parameters[:2], "lr": 0.02}, {"params": parameters[2:], "weight_decay": 0.1}], lr=0.01)


SETTINGS: dict[str, Callable[[Setting], Step]] = {
    "plain": plain,
    "zero_grad at the end": zeros_at_the_end,
    "zeros": zeros_instead_of_none,
    "clipped": clipped,
    "accumulated": accumulated,
    "scaled": scaled,
    "by hand": by_hand,
    "changed before the step": changed_before_the_step,
    "two optimizers": by_two_optimizers,
    "bfloat16": in_half_precision,
    "groups": with_optimizer(two_groups),
    "SGD": with_optimizer(lambda m: optim.SGD(m.parameters(), lr=0.1)),
    "Nesterov": with_optimizer(lambda m: optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)),
    "NAdam": with_optimizer(lambda m: optim.NAdam(m.parameters())),
    "RMSprop": with_optimizer(lambda m: optim.RMSprop(m.parameters(), momentum=0.5, centered=True)),
    "Adagrad": with_optimizer(lambda m: optim.Adagrad(m.parameters(), lr_decay=0.1)),
    "StepLR": scheduled(lambda o: optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.5)),
    "OneCycleLR": scheduled(lambda o: optim.lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=20)),
    "SequentialLR": scheduled(
        lambda o: optim.lr_scheduler.SequentialLR(
            o,
            [optim.lr_scheduler.LinearLR(o, total_iters=3), optim.lr_scheduler.ExponentialLR(o, gamma=0.9)],
            milestones=[3],
        )
    ),
}


def plain_values(value: Any) -> Any:
    """With the bits of tensors and numbers: -0.0 equals 0.0."""
    if isinstance(value, nx.Tensor):
        return value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {key: plain_values(each) for key, each in value.items()}
    return [plain_values(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", SETTINGS)
def test_a_compiled_step_is_the_step_bit_for_bit(name: str) -> None:
    results: list[list[Any]] = []
    for is_compiled in (False, True):
        setting = Setting(SETTINGS[name])
        function = nx.compile(setting.step) if is_compiled else setting.step
        nx.manual_seed(7)
        seen: list[Any] = []
        for number, (x, y) in enumerate(batches(7)):
            if number == 4 and setting.schedule is None:
                setting.optimizer.param_groups[0]["lr"] = 0.003
            if name == "scaled" and number == 5:
                x = x * float("inf")
            seen.append(plain_values(function(x, y)))
            if number % 3 == 2 or number == 6:
                seen.append(setting.state())
        results.append(seen)
    for number, (expected, actual) in enumerate(zip(*results, strict=True)):
        assert actual == expected, f"{name}: entry {number}"


@pytest.mark.parametrize("name", ["plain", "scaled", "OneCycleLR", "SequentialLR"])
def test_a_step_is_recorded_once(name: str) -> None:
    compiled = nx.compile(Setting(SETTINGS[name]).step)
    counts = []
    for x, y in batches(6):
        compiled(x, y)
        counts.append(sum(len(state.variants) for states in compiled._states.values() for state in states))
    # The first call makes the optimiser's state. The second finds gradients, as do all later ones.
    assert counts == [0, 1, 1, 1, 1, 1]


def test_parts_of_a_step_are_compiled_separately() -> None:
    results = []
    for wrap in (lambda f: f, nx.compile):
        setting = Setting(plain)

        def add(x: nx.Tensor, y: nx.Tensor, setting: Setting = setting) -> nx.Tensor:
            loss = setting.loss(x, y)
            loss.backward()
            return loss

        def update(setting: Setting = setting) -> None:
            setting.optimizer.step()
            setting.optimizer.zero_grad()

        add, update = wrap(add), wrap(update)
        nx.manual_seed(7)
        seen: list[Any] = []
        for x, y in batches(5):
            seen += [add(x, y).item(), add(x * 2, y).item()]
            update()
        results.append([seen, setting.state()])
    assert results[0] == results[1]


def test_what_changes_outside_is_seen() -> None:
    states = []
    for wrap in (lambda f: f, nx.compile):
        setting = Setting(plain)
        step = wrap(setting.step)
        for number, (x, y) in enumerate(batches(10)):
            if number == 3:
                setting.model[0].weight.requires_grad_(False)
            if number == 5:
                setting.model.eval()
            if number == 6:
                setting.optimizer.param_groups[0]["betas"] = (0.5, 0.9)
            if number == 7:
                with nx.no_grad():
                    setting.model[4].bias.fill_(0.25)
            if number == 8:
                setting.optimizer.load_state_dict(setting.optimizer.state_dict())
            if number == 9:
                setting.optimizer.param_groups[0]["weight_decay"] = 0.1
            step(x, y)
        states.append(setting.state())
    assert states[0] == states[1]


def test_a_skipped_step_changes_nothing() -> None:
    setting = Setting(scaled)
    compiled = nx.compile(setting.step)
    (x, y), *rest = batches(4)
    for batch in ((x, y), *rest):
        compiled(*batch)
    before = setting.state()
    compiled(x * float("inf"), y)
    after = setting.state()
    assert before[2] == after[2] and before[1]["0.weight"] == after[1]["0.weight"]
    assert after[4]["scale"] == before[4]["scale"] / 2


def test_what_a_step_cannot_do_is_an_error() -> None:
    (x, y), *_ = batches(1)

    def twice(s: Setting) -> Step:
        step = plain(s)
        return lambda x, y: (step(x, y), step(x, y))

    def uses_after_update(s: Setting) -> Step:
        step = plain(s)
        return lambda x, y: (step(x, y), s.loss(x, y))

    def reads(s: Setting) -> Step:
        step = plain(s)
        return lambda x, y: step(x, y).item()

    def graph(s: Setting) -> Step:
        step = plain(s)
        return lambda x, y: (step(x, y), s.model[0].weight * 2)

    def schedule_first(s: Setting) -> Step:
        schedule, step = optim.lr_scheduler.StepLR(s.optimizer, 1), plain(s)
        return lambda x, y: (schedule.step(), step(x, y))

    def state(s: Setting) -> Step:
        step = plain(s)
        return lambda x, y: (step(x, y), [each["step"] for each in s.optimizer.state.values()])

    def hooks(s: Setting) -> Step:
        s.model[0].weight.register_hook(lambda gradient: gradient * 2)
        return plain(s)

    def two_updates(s: Setting) -> Step:
        step = plain(s)

        def run(x: nx.Tensor, y: nx.Tensor) -> None:
            step(x, y)
            s.optimizer.step()

        return run

    messages = {
        twice: "uses a parameter after it has updated it",
        two_updates: "takes two steps of one optimizer",
        uses_after_update: "uses a parameter after it has updated it",
        reads: "reads the value of a tensor",
        graph: "uses a parameter after it has updated it",
        schedule_first: "before the optimizer's",
        state: "reads the optimizer's state",
        hooks: "has hooks",
    }
    for make, message in messages.items():
        setting = Setting(make)
        setting.optimizer.zero_grad()
        setting.loss(x, y).backward()
        setting.optimizer.step()
        before = setting.state()
        with pytest.raises((RuntimeError, ValueError), match=message):
            nx.compile(setting.step)(x, y)
            pytest.fail(f"{make.__name__} was recorded")
        assert setting.state() == before, make.__name__


def test_a_failed_step_changes_nothing() -> None:
    setting = Setting(plain)
    setting.model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3))
    setting.optimizer = optim.Adam(setting.model.parameters())
    compiled = nx.compile(setting.step)
    tokens, y = nx.tensor([[0, 1], [2, 3]]), nx.tensor([0, 2])
    for _ in range(3):
        compiled(tokens, y)
    before = setting.state()
    with pytest.raises(IndexError):
        compiled(tokens + 7, y)
    assert setting.state() == before
    compiled(tokens, y)
    assert setting.state() != before


def test_threads_take_steps_and_read_meanwhile() -> None:
    setting = Setting(plain)
    setting.model.eval()
    compiled = nx.compile(setting.step)
    given = list(batches(1))[0]
    for _ in range(3):
        compiled(*given)
    failures: list[BaseException] = []

    def work(read: bool) -> None:
        try:
            for _ in range(30):
                values = setting.model[0].weight.sum().item() if read else compiled(*given).item()
                assert np.isfinite(values)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert int(setting.optimizer.state_dict()["state"][0]["step"]) == 63


def test_a_resumed_optimizer_with_a_new_scaler() -> None:
    (x, y), *_ = batches(1)
    setting = Setting(scaled)
    setting.step(x, y)
    setting.scaler = nx.amp.GradScaler(init_scale=4.0)
    compiled = nx.compile(setting.step)
    for _ in range(3):
        compiled(x, y)
    setting.optimizer.load_state_dict(copy.deepcopy(setting.optimizer.state_dict()))
    for _ in range(3):
        compiled(x, y)
    assert int(setting.optimizer.state_dict()["state"][0]["step"]) == 7
