"""The state of optimisers of networks of all kinds, by the names of the original network."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ._flat import Flat
from ._module_state import modules_in, named_parameters
from ._shard import Shard, Unread
from ._split import held
from ._units import unit_of
from .optim import ZeroRedundancyOptimizer


class _Names:
    """The names in a network of what an optimiser updates: single parameters, and vectors of them."""

    def __init__(self, model: Module) -> None:
        self.flats: dict[int, tuple[list[str], Flat]] = {}
        self.single = {id(parameter): name for name, parameter in named_parameters(model)}
        for prefix, module in modules_in(model):
            unit = unit_of(module)
            for flat in () if unit is None else unit.flats:
                self.flats[id(flat.parameter)] = [prefix + item.name for item in flat.items], flat

    def of(self, parameter: Tensor) -> tuple[list[str], Flat | None]:
        if id(parameter) in self.flats:
            return self.flats[id(parameter)]
        if id(parameter) in self.single:
            return [self.single[id(parameter)]], None
        raise ValueError("the optimizer has a parameter that is not in the model")


def _is_like(key: str, value: Any, shape: tuple[int, ...]) -> bool:
    """Whether an optimiser keeps a number for each element of a parameter of this shape."""
    return key != "step" and isinstance(value, Tensor) and tuple(value.shape) == shape


def _own_state(optimizer: Optimizer) -> tuple[dict[str, Any], set[int]]:
    """This rank's state, and the numbers of the parameters that it updates."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"expected one Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        return optimizer._own_state_dict(), set(optimizer._numbers_of())
    return optimizer.state_dict(), {number for number, _ in enumerate(_parameters(optimizer))}


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _groups(names: _Names, optimizer: Optimizer, saved: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of the groups, with the names of their parameters."""
    groups = []
    for group, settings in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        members = [name for parameter in group["params"] for name in names.of(parameter)[0]]
        groups.append({**copy.deepcopy(dict(settings)), "params": members})
    return groups


def full_state(model: Module, optimizer: Optimizer) -> dict[str, Any]:
    """The state for parameters that are not in vectors, on every rank."""
    names, saved = _Names(model), optimizer.state_dict()
    state: dict[str, dict[str, Any]] = {}
    for number, parameter in enumerate(_parameters(optimizer)):
        members, flat = names.of(parameter)
        for key, value in saved["state"].get(number, {}).items():
            if flat is None or not _is_like(key, value, tuple(parameter.shape)):
                values = [value for _ in members]
            else:
                with no_grad():
                    whole = value if flat.parts == 1 else _engine.collective(value, "all_gather", flat.group)
                    values = [view for _, view in flat.views(whole)]
            for name, each in zip(members, values, strict=True):
                state.setdefault(name, {})[key] = each
    return {"state": state, "param_groups": _groups(names, optimizer, saved)}


def sharded_state(model: Module, optimizer: Optimizer) -> dict[str, Any]:
    """See ``checkpoint.get_optimizer_state_dict``."""
    names = _Names(model)
    saved, updated = _own_state(optimizer)
    state: dict[str, dict[str, Any]] = {}
    for number, parameter in enumerate(_parameters(optimizer)):
        members, flat = names.of(parameter)
        parts = [held(parameter)] if flat is None else [part for _, part in flat.ranges()]
        kept = saved["state"].get(number, {})
        for name, part in zip(members, parts, strict=True):
            state[name] = {} if kept else Unread(part if number in updated else None)
        for key, value in kept.items():
            values = [value for _ in members]
            if _is_like(key, value, tuple(parameter.shape)):
                if flat is not None:
                    values = [shard for _, shard in flat.own_parts(value)]
                elif not parts[0].is_whole:
                    values = [Shard(value, parts[0])]
            elif isinstance(value, Tensor) and value.numel() != 1 and not (flat is None and parts[0].is_whole):
                raise ValueError(
                    f"{key} of {members[0]} has shape {tuple(value.shape)}, and the divided parameter "
                    f"{tuple(parameter.shape)}: what other ranks have of it is unknown"
                )
            for name, each in zip(members, values, strict=True):
                state[name][key] = each
    return {"state": state, "param_groups": _groups(names, optimizer, saved)}


def state_to_load(model: Module, optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The state for the parameters that the optimiser has, from one by names."""
    names, by_name = _Names(model), given["state"]
    groups = _own_state(optimizer)[0]["param_groups"]
    if len(groups) != len(given["param_groups"]):
        raise ValueError(f"the state has {len(given['param_groups'])} parameter groups, the optimizer has {len(groups)}")
    for group, new in zip(groups, given["param_groups"], strict=True):
        group.update({key: copy.deepcopy(value) for key, value in new.items() if key != "params"})
    state: dict[int, dict[str, Any]] = {}
    for number, parameter in enumerate(_parameters(optimizer)):
        members, flat = names.of(parameter)
        entries = [by_name.get(name) or {} for name in members]
        if not any(entries):
            continue
        if any(entry.keys() != entries[0].keys() for entry in entries):
            raise ValueError(
                f"the state does not have the same for all of {', '.join(members)}, which the optimizer updates as one vector"
            )
        with no_grad():
            state[number] = {key: _own(key, [entry[key] for entry in entries], parameter, flat) for key in entries[0]}
    return {"state": state, "param_groups": groups}


def _own(key: str, values: list[Any], parameter: Tensor, flat: Flat | None) -> Any:
    """One of the values that an optimiser keeps for a parameter, given those by names."""
    parts = [held(parameter)] if flat is None else [part for _, part in flat.ranges()]
    shapes = [tuple(parameter.shape)] if flat is None else [item.shape for item in flat.items]
    pieces = []
    for value, part, shape in zip(values, parts, shapes, strict=True):
        if isinstance(value, Shard):
            if value.part != part:
                raise ValueError(f"{key} of a parameter is divided in another way: read it with checkpoint.load")
            pieces.append(value.tensor)
        elif _is_like(key, value, shape):
            pieces.append(value.reshape(-1).narrow(0, part.start, part.length))
        else:
            return value
    return pieces[0].reshape(parameter.shape) if flat is None else flat.part_from(pieces)
