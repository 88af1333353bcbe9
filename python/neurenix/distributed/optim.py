"""Optimisers whose state is divided among the ranks.

>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> from neurenix.distributed.optim import ZeroRedundancyOptimizer
>>> _ = dist.init_process_group()
>>> model = nx.nn.parallel.DistributedDataParallel(nx.nn.Linear(3, 2))
>>> optimizer = ZeroRedundancyOptimizer(model.parameters(), nx.optim.Adam, lr=0.1)
>>> model(nx.ones(4, 3)).sum().backward()
>>> optimizer.step()
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _effects, _engine
from .._autograd import enable_grad, no_grad
from .._engine import Tensor
from ..optim.optimizer import Optimizer, Params
from ._groups import group_or_world
from ._objects import gather_object

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """Updates each parameter on one of the ranks, which alone keeps the optimiser's state for it, and sends it to the
    others (ZeRO-1: Rajbhandari et al., 2020). All ranks must have equal parameters and gradients, such as those of
    :class:`neurenix.nn.parallel.DistributedDataParallel`.

    ``params`` is a list of tensors or of groups, ``optimizer_class`` the class of the optimiser, and ``defaults`` are
    its settings. The largest parameters are given out first, each to the rank that has the fewest elements.

    :meth:`consolidate_state_dict` brings the whole state to one rank, whose ``state_dict()`` is that of the ordinary
    optimiser. ``parameters_as_bucket_view`` is accepted and changes nothing: what a rank receives is always one piece
    of memory. ``overlap_with_ddp=True`` is refused.
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not supported: call step() after backward()"
            )
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise TypeError(f"ZeroRedundancyOptimizer: optimizer_class is {optimizer_class!r}, it must be an Optimizer")
        self.process_group = group_or_world(process_group, "ZeroRedundancyOptimizer")
        # Not an attribute of its own: an optimiser with a function among its attributes is not recorded.
        self._recipe = (optimizer_class, dict(defaults))
        # An optimiser of all parameters checks the arguments. It never takes a step, so it keeps no state.
        whole = self._made(params)
        self.defaults = whole.defaults
        self._groups = [dict(group) for group in whole._groups]
        # For each group and each of its parameters, the rank that updates it.
        self._owners: list[list[int]] = []
        self._elements = [0] * self.process_group.size()
        for group in self._groups:
            self._give_out(group)
        self._build()

    def _give_out(self, group: Mapping[str, Any]) -> None:
        """Decides which ranks update the parameters of a group."""
        sizes = [parameter.numel() for parameter in group["params"]]
        owners = [0] * len(sizes)
        for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
            owners[place] = self._elements.index(min(self._elements))
            self._elements[owners[place]] += sizes[place]
        self._owners.append(owners)

    def _own(self, group: int) -> list[int]:
        """The places in a group of the parameters that this rank updates."""
        rank = self.process_group.rank()
        return [place for place, owner in enumerate(self._owners[group]) if owner == rank]

    def _own_groups(self) -> list[int]:
        """The groups of which this rank updates parameters, in order."""
        return [number for number in range(len(self._groups)) if self._own(number)]

    def _build(self) -> None:
        """Makes the optimiser of this rank's parameters, or none."""
        groups = []
        for number in self._own_groups():
            members = self._groups[number]["params"]
            groups.append({**self._groups[number], "params": [members[place] for place in self._own(number)]})
        # Under the base class's name for what steps change, so that compiled functions do not watch it.
        self._native: Any = self._made(groups) if groups else None
        # The loop of a compiled function takes the steps of rules that the engine has.
        self._rule = self.optim._rule if self.optim is not None else ""
        if not self._rule:
            self.step = self._step_in_python  # type: ignore[method-assign]

    def _made(self, params: Params) -> Optimizer:
        optimizer_class, defaults = self._recipe
        made: Any = optimizer_class
        optimizer: Optimizer = made(params, **defaults)
        return optimizer

    @property
    def optim(self) -> Optimizer | None:
        """The optimiser of this rank's parameters; None if it has none."""
        optimizer: Optimizer | None = self._native
        return optimizer

    def _synchronized(self) -> Optimizer:
        """The optimiser of this rank's parameters, with the current settings of the groups."""
        assert self.optim is not None
        for inner, number in zip(self.optim._groups, self._own_groups(), strict=True):
            inner.update({name: value for name, value in self._groups[number].items() if name != "params"})
        return self.optim

    # What the base class does with its own parameters, it does with those of this rank.
    def _matching(self) -> Any:
        return self._synchronized()._matching()

    def _current(self) -> Any:
        return self._synchronized()._current()

    def _stepping(self) -> Any:
        # Each step calls it, also in replays of compiled functions.
        _GATHERED.pop(self, None)
        return self._synchronized()._stepping()

    def _take(self, native: Any, rates: Any) -> None:
        inner = self._synchronized()
        inner._condition = self._condition
        try:
            inner._take(native, rates)
        finally:
            inner._condition = None

    def _surplus(self) -> Sequence[Tensor]:
        return self._synchronized()._surplus()

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """The state for each parameter that this rank updates."""
        return {} if self.optim is None else self._synchronized().state

    @state.setter
    def state(self, states: Mapping[Tensor, Mapping[str, Any]]) -> None:
        if self.optim is not None:
            self._synchronized().state = states

    def _step_in_python(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of an optimiser that is written in Python, or of none."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if self._condition is not None and not self._condition.item():
            return loss
        _GATHERED.pop(self, None)
        if self.optim is not None:
            self._synchronized().step()
        self._updated()
        return loss

    def _updated(self) -> None:
        """Gives every rank the parameters that others have updated."""
        if self.process_group.size() == 1:
            return
        pieces: dict[Any, list[Tensor]] = {}
        for group, owners in zip(self._groups, self._owners, strict=True):
            for parameter, owner in zip(group["params"], owners, strict=True):
                pieces.setdefault((owner, parameter.dtype.name, str(parameter.device)), []).append(parameter)
        with no_grad():
            for (owner, *_), parameters in pieces.items():
                flat = _engine.cat([parameter.detach().reshape(-1) for parameter in parameters], 0)
                flat = _engine.collective(flat, "broadcast", self.process_group, peer=owner)
                start = 0
                for parameter in parameters if owner != self.process_group.rank() else []:
                    parameter.copy_(flat.narrow(0, start, parameter.numel()).reshape(parameter.shape))
                    start += parameter.numel()

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters with their own settings. Every rank must add the same ones."""
        whole = self._made([dict(param_group)])
        group = dict(whole._groups[0])
        known = {id(parameter) for each in self._groups for parameter in each["params"]}
        if any(id(parameter) in known for parameter in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        before = None if self.optim is None else self._numbered(self.optim)
        self._groups.append(group)
        self._give_out(group)
        _GATHERED.pop(self, None)
        self.__dict__.pop("step", None)
        self._build()
        if before and self.optim is not None:
            self._load(before)

    # The state, by the numbers that the parameters have among all.
    def _numbers_of(self) -> list[int]:
        """The number of each of this rank's parameters."""
        numbers, start = [], 0
        for number, group in enumerate(self._groups):
            numbers += [start + place for place in self._own(number)]
            start += len(group["params"])
        return numbers

    def _numbered(self, optimizer: Optimizer) -> dict[int, Any]:
        numbers = self._numbers_of()
        return {numbers[place]: values for place, values in optimizer.state_dict()["state"].items()}

    def _load(self, state: Mapping[int, Any]) -> None:
        """Gives this rank's optimiser what concerns its parameters."""
        optimizer = self._synchronized()
        places = {number: place for place, number in enumerate(self._numbers_of())}
        own = {places[number]: values for number, values in state.items() if number in places}
        optimizer.load_state_dict({"state": own, "param_groups": optimizer.state_dict()["param_groups"]})

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings the state of all ranks to rank ``to``, on the host. Every rank calls it."""
        own = {} if self.optim is None else self._numbered(self._synchronized())
        host = {
            number: {name: value.cpu() if isinstance(value, Tensor) else value for name, value in values.items()}
            for number, values in own.items()
        }
        group = self.process_group
        receives = group.ranks[group.rank()] == to
        parts: list[Any] = [None] * group.size()
        gather_object(host, parts if receives else None, to, group)
        _GATHERED.pop(self, None)
        if receives:
            _GATHERED[self] = {number: values for part in parts for number, values in part.items()}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as that of the ordinary optimiser, on the rank to which :meth:`consolidate_state_dict` has
        brought it after the last step.
        """
        if _effects.is_recording():
            raise RuntimeError("compile: the function reads the optimizer's state, which its steps change: read it outside")
        gathered = _GATHERED.get(self)
        if gathered is None:
            rank = self.process_group.ranks[self.process_group.rank()]
            raise RuntimeError(
                "ZeroRedundancyOptimizer: this rank does not have the whole state: call "
                f"consolidate_state_dict(to={rank}) on every rank first"
            )
        return {"state": dict(sorted(gathered.items())), "param_groups": self._settings()}

    def _own_state_dict(self) -> dict[str, Any]:
        """The state for the parameters that this rank updates."""
        own = {} if self.optim is None else self._numbered(self._synchronized())
        return {"state": own, "param_groups": self._settings()}

    def _settings(self) -> list[dict[str, Any]]:
        """The groups, with numbers for parameters."""
        groups, start = [], 0
        for group in self._groups:
            count = len(group["params"])
            settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            groups.append({**settings, "params": list(range(start, start + count))})
            start += count
        return groups

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a whole state, of this class or of the ordinary optimiser. Every rank calls it, and keeps its
        part."""
        given = state_dict["param_groups"]
        counts = [[len(group["params"]) for group in groups] for groups in (given, self._groups)]
        if counts[0] != counts[1]:
            raise ValueError(f"the state has parameter groups of {counts[0]} parameters, the optimizer of {counts[1]}")
        # Files store the parameter numbers as strings, and states may number parameters in another way.
        order = {number: place for place, number in enumerate(each for group in given for each in group["params"])}
        unknown = sorted(int(number) for number in state_dict["state"] if int(number) not in order)
        if unknown:
            raise ValueError(f"the state has parameters {unknown} that belong to none of its groups")
        for group, new in zip(self._groups, given, strict=True):
            group.update({name: copy.deepcopy(value) for name, value in new.items() if name != "params"})
        _GATHERED.pop(self, None)
        if self.optim is not None:
            self._load({order[int(number)]: values for number, values in state_dict["state"].items()})

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("ZeroRedundancyOptimizer: a process group cannot be pickled: save state_dict()")


# The whole state on the rank that has it, until the next step. Not an attribute, because compiled functions watch
# those.
_GATHERED: weakref.WeakKeyDictionary[ZeroRedundancyOptimizer, dict[int, Any]] = weakref.WeakKeyDictionary()
