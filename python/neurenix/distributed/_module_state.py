"""The state of networks of all kinds, by the names of the original network: this rank's part of each parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._autograd import no_grad
from .._engine import Tensor
from ..nn.module import Module
from ..nn.parallel import DistributedDataParallel
from ._flat import FlatParameter
from ._shard import Shard
from ._split import held
from ._units import is_wrapper, unit_of


def modules_in(model: Module) -> Iterator[tuple[str, Module]]:
    """The modules of a network, each once, with the prefixes that their names have without wrappers."""
    seen: set[Module] = set()

    def walk(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
        if module in seen:
            return
        seen.add(module)
        yield prefix, module
        keeps_name = is_wrapper(module) or isinstance(module, DistributedDataParallel)
        for name, child in module._modules.items():
            if child is not None:
                yield from walk(child, prefix if keeps_name else f"{prefix}{name}.")

    return walk(model, "")


def named_parameters(model: Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters that are not in vectors, each once, by the names that they have without wrappers."""
    seen: set[int] = set()
    for prefix, module in modules_in(model):
        for name, parameter in module._parameters.items():
            if parameter is not None and not isinstance(parameter, FlatParameter) and id(parameter) not in seen:
                seen.add(id(parameter))
                yield prefix + name, parameter


def model_state(model: Module) -> dict[str, Any]:
    """See ``checkpoint.get_model_state_dict``."""
    state: dict[str, Any] = {}
    for name, parameter in named_parameters(model):
        part = held(parameter)
        state[name] = parameter.detach() if part.is_whole else Shard(parameter.detach(), part)
    for prefix, module in modules_in(model):
        unit = unit_of(module)
        for flat in () if unit is None else unit.flats:
            for item, shard in flat.own_parts(flat.parameter.detach()):
                state[prefix + item.name] = shard
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._not_saved:
                state[prefix + name] = buffer.detach()
    return state


def load_model_state(model: Module, state: Mapping[str, Any]) -> None:
    """See ``checkpoint.set_model_state_dict``."""
    own = model_state(model)
    differing = sorted(own.keys() ^ state.keys())
    if differing:
        raise ValueError(f"set_model_state_dict: {differing[0]} is only in one of the state and the network")
    for name, value in own.items():
        given = state[name]
        if isinstance(value, Shard) != isinstance(given, Shard):
            raise ValueError(f"set_model_state_dict: {name} is a Shard in one of the state and the network only")
        if isinstance(value, Shard):
            if value.part != given.part:
                raise ValueError(f"set_model_state_dict: {name} is divided in another way: read it with checkpoint.load")
        elif value.shape != given.shape:
            raise ValueError(f"set_model_state_dict: {name} has shape {tuple(given.shape)}, not {tuple(value.shape)}")
    with no_grad():
        for prefix, module in modules_in(model):
            unit = unit_of(module)
            for flat in () if unit is None else unit.flats:
                names = [prefix + item.name for item in flat.items]
                flat.parameter.data = flat.part_from([state[name].tensor for name in names])
                for name in names:
                    del own[name]
        for name, value in own.items():
            place, given = (each.tensor if isinstance(each, Shard) else each for each in (value, state[name]))
            place.copy_(given.reshape(place.shape))
