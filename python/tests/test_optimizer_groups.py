"""Parameter groups: a step updates all or none, settings may change without a new plan, and so may the lists."""

from __future__ import annotations

import neurenix as nx
import numpy as np
import pytest
from neurenix import optim
from neurenix.nn import Parameter


def grown(*parameters: Parameter) -> None:
    for number, parameter in enumerate(parameters):
        parameter.grad = nx.ones(*parameter.shape) * (number + 1.0)


def test_groups_with_rules_of_their_own_are_one_step() -> None:
    a, b = Parameter(nx.zeros(2)), Parameter(nx.zeros(2))
    optimizer = optim.SGD([{"params": [a], "momentum": 0.9}, {"params": [b]}], lr=1.0)
    grown(a, b)
    optimizer.step()
    grown(a, b)
    optimizer.step()
    assert a.tolist() == pytest.approx([-2.9, -2.9]) and b.tolist() == [-4.0, -4.0]
    assert [sorted(state) for state in optimizer.state_dict()["state"].values()] == [["momentum_buffer", "step"], ["step"]]


def test_a_step_that_fails_in_one_group_changes_none() -> None:
    a, b = Parameter(nx.zeros(2)), Parameter(nx.zeros(2))
    optimizer = optim.SGD([{"params": [a], "momentum": 0.9}, {"params": [b]}], lr=1.0)

    def fail(x: np.ndarray) -> np.ndarray:
        raise OSError("gone")

    vector = [("x", nx.float32, "n")], [("y", nx.float32, "n")]
    broken = nx.CustomKernel("broken", inputs=vector[0], outputs=vector[1], sources={}, cpu=fail)
    a.grad = nx.ones(2)
    b.grad = broken(nx.ones(2))
    with pytest.raises(OSError, match="gone"):
        optimizer.step()
    assert a.tolist() == [0.0, 0.0] and b.tolist() == [0.0, 0.0]
    assert optimizer.state_dict()["state"] == {}
    assert a.grad.tolist() == [1.0, 1.0]
    b.grad = nx.ones(2)
    optimizer.step()
    assert a.tolist() == [-1.0, -1.0] and b.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_settings_that_change_give_the_same_numbers(kind: str) -> None:
    """Compares with a new optimiser that starts from the old one's state, so that its settings are constants."""
    first = {"SGD": {"momentum": 0.9}, "RMSprop": {"alpha": 0.9}}.get(kind, {"betas": (0.9, 0.99)})
    second = {"SGD": {"momentum": 0.5}, "RMSprop": {"alpha": 0.5}}.get(kind, {"betas": (0.7, 0.95)})
    make = getattr(optim, kind)
    a, b = Parameter(nx.ones(4)), Parameter(nx.ones(4))
    one, two = make([a], lr=0.1, **first), make([b], lr=0.1, **first)
    for _ in range(2):
        grown(a), grown(b)
        one.step(), two.step()
    for settings in (second, first, second):
        one.param_groups[0].update(settings)
        state = two.state_dict()
        two = make([b], lr=0.1, **settings)
        state["param_groups"][0].update(settings)
        two.load_state_dict(state)
        grown(a), grown(b)
        one.step(), two.step()
        assert a.tolist() == pytest.approx(b.tolist(), rel=1e-6)


def test_a_momentum_that_changes_each_step_is_not_planned_each_time() -> None:
    from neurenix import _engine

    a = Parameter(nx.ones(4))
    optimizer = optim.SGD([a], lr=0.1, momentum=0.95)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=40)
    plans = []
    for _ in range(30):
        grown(a)
        optimizer.step()
        schedule.step()
        plans.append(_engine.plan_count())
    assert plans[-1] == plans[3], plans


def test_a_groups_list_of_parameters_can_change() -> None:
    a, b, c = (Parameter(nx.zeros(1)) for _ in range(3))
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.5)
    grown(a, b)
    optimizer.step()
    optimizer.param_groups[0]["params"] = [b, c]
    grown(a, b, c)
    optimizer.step()
    # b continues with its momentum (2 + 3), c starts, a does not change.
    assert a.tolist() == [-1.0] and b.tolist() == [-5.0] and c.tolist() == [-3.0]
    optimizer.param_groups[0]["params"] = [nx.ones(1).requires_grad_() * 2]
    with pytest.raises(ValueError, match="non-leaf"):
        optimizer.step()


def test_a_schedule_that_has_ended_stays_where_it_is() -> None:
    optimizer = optim.SGD([nx.nn.Parameter([1.0])], lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=3)
    for _ in range(3):
        schedule.step()
    before, group = schedule.state_dict(), dict(optimizer.param_groups[0])
    with pytest.raises(ValueError, match="past the end"):
        schedule.step()
    assert schedule.state_dict() == before
    assert {name: group[name] for name in ("lr", "momentum")} == {
        name: optimizer.param_groups[0][name] for name in ("lr", "momentum")
    }


def test_a_schedule_keeps_its_functions() -> None:
    optimizer = optim.SGD([nx.nn.Parameter([1.0])], lr=1.0)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    # PyTorch stores None for functions, which have no state.
    schedule.load_state_dict({**schedule.state_dict(), "last_epoch": 2, "lr_lambdas": [None]})
    schedule.step()
    assert schedule.get_last_lr() == [0.125]
