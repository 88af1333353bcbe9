"""The state of optimisers of sharded networks, by the names of the original network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ._flat import Flat, FlatParameter
from ._units import named_in, units_in
from .checkpoint import Shard


def _named(model: Module) -> dict[int, str]:
    """The names of parameters that are not divided."""
    return {id(each): name for name, each in named_in(model, "") if not isinstance(each, FlatParameter)}


def _flats(model: Module) -> dict[int, tuple[str, Flat]]:
    return {id(flat.parameter): (prefix, flat) for prefix, unit in units_in(model, "") for flat in unit.flats}


def _by_name(
    model: Module, optimizer: Optimizer, of_flat: Callable[[str, Flat, Tensor], dict[str, Any]]
) -> dict[str, Any]:
    """The state and the groups by names. ``of_flat`` gives the entries of one tensor of the state of a flat
    parameter."""
    flats, named = _flats(model), _named(model)
    state: dict[str, dict[str, Any]] = {}
    groups = []
    whole = optimizer.state_dict()
    number = 0
    for group, saved in zip(optimizer.param_groups, whole["param_groups"], strict=True):
        names: list[str] = []
        for parameter in group["params"]:
            values = whole["state"].get(number, {})
            number += 1
            if id(parameter) in flats:
                prefix, flat = flats[id(parameter)]
                names += [prefix + item.name for item in flat.items]
                for key, value in values.items():
                    is_divided = isinstance(value, Tensor) and value.shape == parameter.shape
                    for item in flat.items:
                        if not is_divided:
                            state.setdefault(prefix + item.name, {})[key] = value
                    if is_divided:
                        for name, entry in of_flat(prefix, flat, value).items():
                            state.setdefault(name, {})[key] = entry
            elif id(parameter) in named:
                names.append(named[id(parameter)])
                state[named[id(parameter)]] = dict(values)
            else:
                raise ValueError("optim_state_dict: the optimizer has a parameter that is not in the model")
        groups.append({**{key: copy.deepcopy(value) for key, value in saved.items() if key != "params"}, "params": names})
    return {"state": state, "param_groups": groups}


def full_state(model: Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state for whole parameters."""

    def entries(prefix: str, flat: Flat, value: Tensor) -> dict[str, Any]:
        with no_grad():
            whole = value if flat.parts == 1 else _engine.collective(value, "all_gather", flat.group)
            return {prefix + item.name: view for item, view in flat.views(whole)}

    return _by_name(model, optimizer, entries)


def sharded_state(model: Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state for this rank's parts."""

    def entries(prefix: str, flat: Flat, value: Tensor) -> dict[str, Any]:
        return {prefix + item.name: part for item, part in flat.own_parts(value)}

    return _by_name(model, optimizer, entries)


def state_to_load(model: Module, optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The state for the parameters that the optimiser has, from one by names."""
    flats, named = _flats(model), _named(model)
    by_name, state = given["state"], {}
    groups = optimizer.state_dict()["param_groups"]
    if len(groups) != len(given["param_groups"]):
        raise ValueError(f"the state has {len(given['param_groups'])} parameter groups, the optimizer has {len(groups)}")
    for group, new in zip(groups, given["param_groups"], strict=True):
        group.update({key: copy.deepcopy(value) for key, value in new.items() if key != "params"})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        if id(parameter) not in flats:
            if named.get(id(parameter)) in by_name:
                state[number] = dict(by_name[named[id(parameter)]])
            continue
        prefix, flat = flats[id(parameter)]
        entries = [by_name.get(prefix + item.name) for item in flat.items]
        if any(entry is None for entry in entries):
            continue
        state[number] = {key: _own(flat, key, [entry[key] for entry in entries]) for key in entries[0]}
    return {"state": state, "param_groups": groups}


def _own(flat: Flat, key: str, values: list[Any]) -> Any:
    """This rank's part of one of the values that an optimiser keeps, given those of all items."""
    with no_grad():
        if all(isinstance(value, Shard) for value in values):
            return flat.part_from([value.tensor for value in values])
        shapes = zip(values, (item.shape for item in flat.items), strict=True)
        if key != "step" and all(isinstance(value, Tensor) and tuple(value.shape) == shape for value, shape in shapes):
            return flat.part_of(values)
        return values[0]
