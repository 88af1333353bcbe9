"""Schedules load the states of PyTorch's schedules."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import neurenix as nx
import pytest

optim = nx.optim


def state(last_epoch: int, rate: float, **settings: Any) -> dict[str, Any]:
    """A ``state_dict`` of a PyTorch schedule with an initial learning rate of 1."""
    own = {"_step_count": last_epoch + 1, "_is_initial": False, "_get_lr_called_within_step": False}
    return {**settings, **own, "base_lrs": [1.0], "last_epoch": last_epoch, "_last_lr": [rate]}


# The schedule is created with other arguments; the state replaces them.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], list[float]]] = [
    ("StepLR", (9,), state(3, 0.5, step_size=2, gamma=0.5), [0.25, 0.25, 0.125]),
    ("MultiStepLR", ([9],), state(3, 0.1, milestones=Counter({2: 1, 4: 1}), gamma=0.1), [0.01, 0.01]),
    ("MultiStepLR", ([9],), state(1, 1.0, milestones=Counter({2: 2, 3: 1}), gamma=0.5), [0.25, 0.125, 0.125]),
    ("ConstantLR", (0.9,), state(1, 0.5, factor=0.5, total_iters=3), [0.5, 1.0, 1.0]),
    ("LinearLR", (0.9,), state(1, 0.625, start_factor=0.5, end_factor=1.0, total_iters=4), [0.75, 0.875, 1.0, 1.0]),
    ("ExponentialLR", (0.9,), state(2, 0.25, gamma=0.5), [0.125, 0.0625]),
    ("CosineAnnealingLR", (9,), state(1, (1 + math.sqrt(0.5)) / 2, T_max=4, eta_min=0.0), [0.5, (1 - math.sqrt(0.5)) / 2]),
    ("CosineAnnealingWarmRestarts", (9,), state(1, 0.5, T_0=2, T_i=2, T_mult=1, eta_min=0.0, T_cur=1), [1.0, 0.5]),
]


@pytest.mark.parametrize(("name", "arguments", "given", "rates"), CASES, ids=[case[0] for case in CASES])
def test_a_state_of_pytorch_goes_on(
    name: str, arguments: tuple[Any, ...], given: dict[str, Any], rates: list[float]
) -> None:
    optimizer = optim.SGD([nx.nn.Parameter([1.0])], lr=1.0)
    schedule = getattr(optim.lr_scheduler, name)(optimizer, *arguments)
    schedule.load_state_dict(given)
    # The learning rate belongs to the optimiser's state.
    optimizer.param_groups[0]["lr"] = given["_last_lr"][0]
    for rate in rates:
        schedule.step()
        assert schedule.get_last_lr() == pytest.approx([rate])
    again = getattr(optim.lr_scheduler, name)(optimizer, *arguments)
    again.load_state_dict(schedule.state_dict())
    assert again.state_dict() == schedule.state_dict()


def test_a_state_of_pytorch_of_several_schedules_goes_on() -> None:
    optimizer = optim.SGD([nx.nn.Parameter([1.0])], lr=1.0)
    parts = [optim.lr_scheduler.ConstantLR(optimizer, 0.9), optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
    schedule = optim.lr_scheduler.SequentialLR(optimizer, parts, [9])
    states = [state(1, 0.5, factor=0.5, total_iters=5), state(-1, 1.0, gamma=0.5)]
    schedule.load_state_dict({"_milestones": [3], "last_epoch": 1, "_last_lr": [0.5], "_schedulers": states})
    optimizer.param_groups[0]["lr"] = 0.5
    rates = []
    for _ in range(4):
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates == pytest.approx([0.5, 1.0, 0.5, 0.25])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        # A factor applies to the rate of the step before, a function of the epoch to the initial rate.
        (lambda o: optim.lr_scheduler.StepLR(o, 1, 0.5), 0.0625),
        (lambda o: optim.lr_scheduler.ExponentialLR(o, 0.5), 0.0625),
        (lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch), 0.03125),
    ],
)
def test_a_group_that_is_added_later_has_a_schedule(make: Any, expected: float) -> None:
    first, second = nx.nn.Parameter(nx.ones(2)), nx.nn.Parameter(nx.ones(2))
    optimizer = optim.SGD([first], lr=1.0)
    schedule = make(optimizer)
    schedule.step()
    optimizer.add_param_group({"params": [second], "lr": 0.125})
    schedule.step()
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == schedule.get_last_lr() == [0.25, expected]


def test_a_setting_that_was_changed_and_restored_between_steps_is_used() -> None:
    def stepped(look: bool) -> list[float]:
        w = nx.nn.Parameter(nx.ones(2))
        optimizer = optim.Adam([w], lr=0.1)
        group = optimizer.param_groups[0]
        betas = group["betas"]
        for number in range(4):
            (w * (number + 1.0)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if look:
                # Reading the state gives the settings to the engine.
                group["betas"] = (0.5, 0.5)
                optimizer.state_dict()
                group["betas"] = betas
        return w.tolist()

    assert stepped(True) == stepped(False)


def test_a_list_of_functions_must_cover_a_group_that_is_added() -> None:
    optimizer = optim.SGD([nx.nn.Parameter(nx.ones(2))], lr=1.0)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0])
    optimizer.add_param_group({"params": [nx.nn.Parameter(nx.ones(2))]})
    with pytest.raises(ValueError, match="LambdaLR: 1 functions for 2 parameter groups"):
        schedule.step()
