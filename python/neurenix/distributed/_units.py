"""Units of a sharded network: modules whose parameters are gathered together."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._compile import _flatten, _unflatten
from .._engine import ProcessGroup, Tensor
from ..nn._lent import lent
from ..nn.module import Module
from ..nn.parameter import Parameter
from ._flat import Flat, FlatParameter, Gathered, Item, MixedPrecision, places
from ._split import groups_of


class ShardingStrategy(enum.Enum):
    """What is divided among the ranks. See :class:`FullyShardedDataParallel`."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3


@dataclass
class Settings:
    """How the parameters of units are divided and gathered."""

    group: ProcessGroup
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    precision: MixedPrecision = field(default_factory=MixedPrecision)
    is_from_rank_0: bool = False
    # Modules whose parameters stay as they are.
    ignored: frozenset[Module] = frozenset()
    # Whether weights are gathered again in the backward pass; by default except for the outermost unit.
    gathers_again: bool | None = None
    # The dtype of floating-point results; None to leave them as they are.
    output_dtype: Any = None


class Unit:
    """A module whose parameters, except those of units inside it, are gathered while it computes. ``owner`` is the
    module that has the flat parameters: a wrapper, or the module itself.
    """

    def __init__(self, owner: Module, module: Module, call: Callable[..., Any], settings: Settings) -> None:
        self.module, self.call, self.settings = module, call, settings
        inner = [unit for _, unit in units_in(module, "")]
        for unit in inner:
            unit.is_outermost = False
        self.is_outermost: bool = True
        # Whether the layers have whole parameters now.
        self.is_open = False
        precision = settings.precision
        is_sharded = settings.strategy is not ShardingStrategy.NO_SHARD
        self.flats = [
            Flat(found, settings.group, is_sharded, precision, settings.is_from_rank_0)
            for found in _by_kind(_own_parameters(module, settings.ignored))
        ]
        # With those of the units inside.
        self.all_flats = [*self.flats, *(flat for unit in inner for flat in unit.flats)]
        for number, flat in enumerate(self.flats):
            owner.register_parameter("flat_param" if number == 0 else f"flat_param_{number}", flat.parameter)
            for item in flat.items:
                for place, name in item.places:
                    place._parameters[name] = None
        if settings.is_from_rank_0 and settings.group.size() > 1:
            buffers = [buffer for _, _, buffer in _own_buffers(module, settings.ignored)]
            if buffers:
                _engine.broadcast_variables(buffers, settings.group)
        if precision.buffer_dtype is not None:
            for place, name, buffer in _own_buffers(module, settings.ignored):
                if buffer.is_floating_point():
                    place._buffers[name] = buffer.to(precision.buffer_dtype)

    def forward(self, args: Any, kwargs: Any) -> Any:
        """Calls the module with gathered parameters, and inputs and results of the dtypes that the settings say."""
        precision = self.settings.precision
        wanted = precision.cast_root_forward_inputs if self.is_outermost else precision.cast_forward_inputs
        args, kwargs = _cast((args, kwargs), precision.param_dtype if wanted else None)
        return _cast(self._called(args, kwargs), self.settings.output_dtype)

    def _called(self, args: Any, kwargs: Any) -> Any:
        if self.is_open:
            return self.call(*args, **kwargs)
        has_gradients = _engine.is_grad_enabled()
        with _entered() as is_entry:
            again = self._gathers_again() or not has_gradients
            wholes = [flat.whole(again) for flat in self.flats]
            result = self._with(wholes, args, kwargs)
            del wholes
        if self.is_outermost and has_gradients:
            for flat in self.all_flats:
                flat.settle_unused()
        is_sharded = self.settings.strategy is not ShardingStrategy.NO_SHARD and self.settings.group.size() > 1
        if is_entry and is_sharded and not _engine.is_recording():
            # Now, so that the backward pass finds intermediate results, and gathers weights again.
            tensors: list[Tensor] = []
            _flatten(result, tensors)
            _engine.evaluate(tensors)
        return result

    def _gathers_again(self) -> bool:
        """Whether the backward pass gathers the weights again."""
        if self.settings.strategy is not ShardingStrategy.FULL_SHARD:
            return False
        again = self.settings.gathers_again
        return not self.is_outermost if again is None else again

    def _with(self, wholes: Sequence[Tensor], args: Any, kwargs: Any) -> Any:
        views = [each for flat, whole in zip(self.flats, wholes, strict=True) for each in flat.views(whole)]
        with lent(places(views)):
            return self.call(*args, **kwargs)

    def is_lent(self) -> bool:
        """Whether the layers have parameters now."""
        items = (item for flat in self.flats for item in flat.items)
        return all(module._parameters[name] is not None for item in items for module, name in item.places)

    # The state.
    def state(self, entries: Callable[[str], Iterator[tuple[str, Tensor]]], prefix: str) -> Iterator[tuple[str, Tensor]]:
        """The module's state, with whole parameters. Every rank must ask for it."""
        with no_grad():
            views = []
            for flat in self.flats:
                for number, (item, view) in enumerate(flat.views(self._in_full(flat))):
                    gathered = Gathered(view)
                    gathered._flat, gathered._number = flat, number
                    views.append((item, gathered))
        with lent(places(views)):
            found = [(name, tensor) for name, tensor in entries(prefix) if not isinstance(tensor, FlatParameter)]
        yield from found

    def _in_full(self, flat: Flat) -> Tensor:
        """All elements, in the dtype of the shards."""
        own = flat.parameter.detach()
        return own if flat.parts == 1 else _engine.collective(own, "all_gather", flat.group)

    def take_up(self) -> None:
        """Stores what a state has brought."""
        for flat in self.flats:
            flat.take_up()

    @contextmanager
    def summoned(self, owner: Module, writeback: bool) -> Iterator[None]:
        """Gives the module whole parameters, which can be changed if ``writeback``, as long as it lasts."""
        with no_grad():
            views = []
            for flat in self.flats:
                for item, view in flat.views(self._in_full(flat)):
                    views.append((item, Parameter(view, flat.parameter.requires_grad)))
        hidden = [(name, each) for name, each in owner._parameters.items() if isinstance(each, FlatParameter)]
        for name, _ in hidden:
            del owner._parameters[name]
        self.is_open = True
        try:
            with lent(places(views)):
                yield
        finally:
            self.is_open = False
            owner._parameters.update(hidden)
        if writeback:
            values = iter(views)
            for flat in self.flats:
                for number in range(len(flat.items)):
                    flat.put(number, next(values)[1])
                flat.take_up()


def _cast(values: Any, dtype: Any) -> Any:
    """The values, with floating-point tensors of this dtype, if it is not None."""
    if dtype is None:
        return values
    tensors: list[Tensor] = []
    shape = _flatten(values, tensors)
    return _unflatten(shape, [each.to(dtype) if each.is_floating_point() else each for each in tensors])


_calls = threading.local()


@contextmanager
def _entered() -> Iterator[bool]:
    """A unit's call: whether it is in no other one's."""
    depth: int = getattr(_calls, "depth", 0)
    _calls.depth = depth + 1
    try:
        yield depth == 0
    finally:
        _calls.depth = depth


def unit_of(module: Module) -> Unit | None:
    """The unit that a wrapper, or a module itself, has."""
    unit: Unit | None = module.__dict__.get("_unit")
    return unit


def is_wrapper(module: Module) -> bool:
    """Whether a module only wraps another one, whose parameters keep their names."""
    unit = unit_of(module)
    return unit is not None and unit.module is not module


def units_in(module: Module, prefix: str) -> Iterator[tuple[str, Unit]]:
    """The units of a module, with the prefixes of their parameters' names, from outside to inside."""
    for _, name, unit in owners_in(module, prefix):
        yield name, unit


def owners_in(module: Module, prefix: str) -> Iterator[tuple[Module, str, Unit]]:
    """The modules that have the units, too."""
    seen: set[Module] = set()

    def walk(module: Module, prefix: str) -> Iterator[tuple[Module, str, Unit]]:
        if module in seen:
            return
        seen.add(module)
        unit = unit_of(module)
        if unit is not None:
            yield module, prefix, unit
        for name, child in module._modules.items():
            if child is not None:
                yield from walk(child, prefix if is_wrapper(module) else f"{prefix}{name}.")

    return walk(module, prefix)


def named_in(module: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """The parameters in a module, by the names that they have without wrappers."""
    seen: set[int] = set()

    def walk(module: Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield prefix + name, parameter
        for name, child in module._modules.items():
            if child is not None:
                yield from walk(child, prefix if is_wrapper(module) else f"{prefix}{name}.")

    return walk(module, prefix)


def _outside_units(
    module: Module, prefix: str, ignored: frozenset[Module], seen: set[Module]
) -> Iterator[tuple[str, Module]]:
    """A module and those in it that belong to no unit yet."""
    if module in seen or module in ignored:
        return
    seen.add(module)
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None and unit_of(child) is None:
            yield from _outside_units(child, f"{prefix}{name}.", ignored, seen)


def _own_parameters(
    module: Module, ignored: frozenset[Module]
) -> Iterable[tuple[str, list[tuple[Module, str]], Tensor]]:
    """The parameters that a new unit takes, with their names and places."""
    found: dict[int, tuple[str, list[tuple[Module, str]], Tensor]] = {}
    for prefix, each in _outside_units(module, "", ignored, set()):
        for name, parameter in each._parameters.items():
            if parameter is None or isinstance(parameter, FlatParameter):
                continue
            if getattr(parameter, "_is_flattened", False):
                raise ValueError(
                    f"FullyShardedDataParallel: {prefix}{name} is shared with a module that is a unit already: shared "
                    "parameters must be in one unit"
                )
            entry = found.setdefault(id(parameter), (prefix + name, [], parameter))
            entry[1].append((each, name))
    for _, _, parameter in found.values():
        if not parameter.is_leaf or not parameter.is_floating_point():
            raise ValueError("FullyShardedDataParallel: parameters must be leaves of a floating-point dtype")
        setattr(parameter, "_is_flattened", True)
    return found.values()


def _by_kind(
    found: Iterable[tuple[str, list[tuple[Module, str]], Tensor]],
) -> list[list[tuple[str, list[tuple[Module, str]], Tensor]]]:
    """Parameters that can share a vector, together."""
    kinds: dict[Any, list[tuple[str, list[tuple[Module, str]], Tensor]]] = {}
    for entry in found:
        parameter = entry[2]
        groups = tuple(map(id, groups_of(parameter)))
        key = (parameter.dtype.name, str(parameter.device), parameter.requires_grad, groups)
        kinds.setdefault(key, []).append(entry)
    return list(kinds.values())


def _own_buffers(module: Module, ignored: frozenset[Module]) -> list[tuple[Module, str, Tensor]]:
    return [
        (each, name, buffer)
        for _, each in _outside_units(module, "", ignored, set())
        for name, buffer in each._buffers.items()
        if buffer is not None
    ]


@contextmanager
def all_summoned(module: Module, recurse: bool, writeback: bool) -> Iterator[None]:
    """Gives the units in a module whole parameters."""
    with ExitStack() as stack:
        for owner, _, unit in owners_in(module, ""):
            if recurse or owner is module:
                stack.enter_context(unit.summoned(owner, writeback))
        yield


@contextmanager
def unsynchronized(module: Module) -> Iterator[None]:
    """Gradients accumulate in each rank, as long as it lasts."""
    flats = [flat for _, unit in units_in(module, "") for flat in unit.flats]
    before = [flat.synchronizes for flat in flats]
    for flat in flats:
        flat.synchronizes = False
    try:
        yield
    finally:
        for flat, value in zip(flats, before, strict=True):
            flat.synchronizes = value
