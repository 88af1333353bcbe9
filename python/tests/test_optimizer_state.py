"""Changes of the state of optimisers, and PyTorch's options of their groups, as PyTorch 2.15."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import neurenix as nx
import pytest
from neurenix import optim
from neurenix.nn import Parameter


def step(optimizer: Any) -> None:
    optimizer.zero_grad()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    nx.cat([(p * p).reshape(-1) for p in parameters]).sum().backward()
    optimizer.step()


def clear_buffer(optimizer: Any, p: Any) -> None:
    optimizer.state[p]["momentum_buffer"].zero_()


def assign_buffer(optimizer: Any, p: Any) -> None:
    optimizer.state[p]["momentum_buffer"] = nx.tensor([5.0, 5.0])


def clear_all(optimizer: Any, p: Any) -> None:
    optimizer.state.clear()


def delete_one(optimizer: Any, p: Any) -> None:
    del optimizer.state[p]


def change_twice(optimizer: Any, p: Any) -> None:
    state = optimizer.state[p]
    optimizer.state_dict()
    state["momentum_buffer"].mul_(2)
    assert len(optimizer.state) == 2
    state["momentum_buffer"][0] = 1


def replace_all(optimizer: Any, p: Any) -> None:
    optimizer.state = defaultdict(dict, {p: {"momentum_buffer": nx.tensor([1.0, 1.0])}})


def restart(optimizer: Any, p: Any) -> None:
    optimizer.state[p]["step"].zero_()


def clear_mean(optimizer: Any, p: Any) -> None:
    optimizer.state[p]["exp_avg"].zero_()


# Two steps, a change, and three more.
EDITS: list[tuple[str, Callable[[Any, Any], None], list[float], float]] = [
    ("SGD", clear_buffer, [0.0285, 0.057], -1.7413),
    ("SGD", assign_buffer, [-0.867, -0.8385], -1.7413),
    ("SGD", clear_all, [0.0285, 0.057], 0.0856),
    ("SGD", delete_one, [0.0285, 0.057], -1.7413),
    ("SGD", change_twice, [-0.1506, -2.3787], -1.7413),
    ("SGD", replace_all, [-0.1506, -0.1221], 0.0856),
    ("Adam", clear_mean, [0.6585, 1.6493], 2.5018),
    ("Adam", restart, [0.4109, 1.4028], 2.5018),
    ("Adam", clear_all, [0.5026, 1.5009], 2.5005),
    ("ASGD", clear_all, [0.3277, 0.6553], 0.983),
]


@pytest.mark.parametrize(("name", "edit", "first", "second"), EDITS)
def test_changes_of_the_state(name: str, edit: Callable[[Any, Any], None], first: list[float], second: float) -> None:
    p, q = Parameter([1.0, 2.0]), Parameter([3.0])
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(optim, name)([p, q], lr=0.1, **options)
    step(optimizer)
    step(optimizer)
    edit(optimizer, p)
    for _ in range(3):
        step(optimizer)
    assert p.tolist() == pytest.approx(first, abs=6e-5) and q.item() == pytest.approx(second, abs=6e-5)


def test_a_copy_has_the_changes() -> None:
    p = Parameter([1.0, 2.0])
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    step(optimizer)
    clear_buffer(optimizer, p)
    copied = copy.deepcopy(optimizer)
    step(optimizer)
    step(copied)
    assert copied.param_groups[0]["params"][0].tolist() == p.tolist() == pytest.approx([0.64, 1.28])


def test_a_first_state() -> None:
    p = Parameter([1.0, 2.0])
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    assert optimizer.state[p] == {}
    optimizer.state[p]["momentum_buffer"] = nx.tensor([1.0, 1.0])
    step(optimizer)
    assert p.tolist() == pytest.approx([0.71, 1.51])


def test_options_are_in_the_groups() -> None:
    four = {"maximize": False, "foreach": None, "capturable": False, "differentiable": False}
    assert optim.Adam([Parameter([1.0])]).param_groups[0].items() >= {**four, "fused": None}.items()
    assert optim.RMSprop([Parameter([1.0])]).param_groups[0].items() >= four.items()
    group = optim.SGD([Parameter([1.0])], foreach=True, maximize=True).param_groups[0]
    assert group["foreach"] is True and group["maximize"] is True and "capturable" not in group
    optimizer = optim.SGD([Parameter([1.0])], lr=0.5)
    optimizer.param_groups[0]["maximize"] = True
    step(optimizer)
    assert optimizer.param_groups[0]["params"][0].item() == 2.0


def test_adam_with_decoupled_weight_decay() -> None:
    p, q = Parameter([1.0, 2.0]), Parameter([1.0, 2.0])
    decoupled = optim.Adam([p], lr=0.1, weight_decay=0.1, decoupled_weight_decay=True)
    adamw = optim.AdamW([q], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        step(decoupled)
        step(adamw)
    assert p.tolist() == pytest.approx([0.6751, 1.64437], abs=6e-6)
    assert q.tolist() == pytest.approx(p.tolist(), rel=1e-6)
    assert adamw.param_groups[0]["decoupled_weight_decay"] is True
    with pytest.raises(TypeError, match="decoupled_weight_decay"):
        optim.AdamW([p], decoupled_weight_decay=True)


@pytest.mark.parametrize("kind", [optim.SGD, optim.ASGD])
def test_duplicates_are_updated_twice_with_a_warning(kind: Any) -> None:
    p, q = Parameter([1.0, 2.0]), Parameter([1.0, 2.0])
    options = {"lambd": 0.0} if kind is optim.ASGD else {}
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = kind([p, q, p], lr=0.1, **options)
    for each in (p, q):
        (each * each).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert p.tolist() == pytest.approx([0.6, 1.2]) and q.tolist() == pytest.approx([0.8, 1.6])
    assert q.grad is not None
    assert q.grad.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [p]})
