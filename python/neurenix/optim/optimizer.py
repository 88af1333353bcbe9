"""The base of optimisers: groups of parameters over the engine's update rules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import _engine, _pending
from .._autograd import enable_grad
from .._engine import Tensor
from ..nn.module import as_value, zero_gradients

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
# PyTorch's choices of implementation: the engine makes its own, so only what changes the result is refused.
_CHOICES = ("maximize", "foreach", "capturable", "differentiable", "fused")


class Optimizer:
    """Updates parameters from their gradients.

    ``param_groups`` are dictionaries with ``params`` and settings; changes of settings count from the next step on.
    A rule's settings other than ``lr`` and ``weight_decay`` are constants of the step: changing them plans it anew.
    """

    _rule = ""

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(f"{type(self).__name__}: parameters are given as a list, not as one tensor")
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self._natives: list[_Native] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.param_groups = [self._checked(group) for group in groups]
        self._natives = self._built(self.param_groups, {})

    # What rules define.
    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        """A group's settings by the engine's names."""
        raise NotImplementedError

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        group = {**self.defaults, **given}
        params = group["params"]
        members = [params] if isinstance(params, Tensor) else [p[1] if isinstance(p, tuple) else p for p in params]
        for parameter in members:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"an optimizer takes tensors, not a {type(parameter).__name__}")
            if not parameter.is_leaf:
                raise ValueError("can't optimize a non-leaf tensor: give the tensor it was computed from")
        group["params"] = members
        _check_group(group)
        return group

    def _built(self, groups: list[dict[str, Any]], state: Mapping[int, Mapping[str, Any]]) -> list[_Native]:
        """Native optimisers, one for all groups whose rule is the same, with the state by number of the parameter."""
        natives: list[_Native] = []
        numbers: list[list[int]] = []
        start = 0
        for group in groups:
            numbers.append(list(range(start, start + len(group["params"]))))
            start += len(group["params"])
        seen = [id(parameter) for group in groups for parameter in group["params"]]
        if len(set(seen)) != len(seen):
            raise ValueError("some parameters appear more than once: each would be updated twice")
        for number, group in enumerate(groups):
            options = self._options(group)
            same = next((native for native in natives if native.options == options), None)
            if same is None:
                natives.append(_Native(self._rule, options, number, group, numbers[number]))
            else:
                same.add(number, group, numbers[number])
        for native in natives:
            native.put_state(state)
        return natives

    def _current(self) -> list[_Native]:
        """The native optimisers for the settings as they are now."""
        for native in self._natives:
            if any(self._options(self.param_groups[number]) != native.options for number in native.groups):
                self._natives = self._built(self.param_groups, self._state())
                break
        return self._natives

    def _state(self) -> dict[int, dict[str, Tensor]]:
        return {number: state for native in self._natives for number, state in native.state().items()}

    # What users call.
    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters with settings of their own."""
        groups = [*self.param_groups, self._checked(param_group)]
        self._natives = self._built(groups, self._state())
        self.param_groups.append(groups[-1])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or makes them zeros."""
        for group in self.param_groups:
            zero_gradients(group["params"], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. ``closure`` computes the loss and its gradients first."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            _check_group(group)
        for native in self._current():
            groups = [self.param_groups[number] for number in native.groups]
            native.optimizer.step([(float(group["lr"]), float(group.get("weight_decay", 0.0))) for group in groups])
        _pending.compute()
        return loss

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """What the rule keeps for each parameter, as it is now."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        return {parameters[number]: state for number, state in sorted(self._state().items())}

    def state_dict(self) -> dict[str, Any]:
        """Settings and state in PyTorch's layout: parameters are numbered in order."""
        groups, start = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            groups.append({**settings, "params": list(range(start, start + count))})
            start += count
        return {"state": dict(sorted(self._state().items())), "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Puts back what ``state_dict`` gave, here or in PyTorch. Nothing is changed unless everything fits."""
        given = state_dict["param_groups"]
        if len(given) != len(self.param_groups):
            raise ValueError(f"the state has {len(given)} parameter groups, the optimizer has {len(self.param_groups)}")
        groups, order = [], []
        for number, (new, old) in enumerate(zip(given, self.param_groups, strict=True)):
            if len(new["params"]) != len(old["params"]):
                counts = f"{len(new['params'])} parameters in the state, {len(old['params'])} in the optimizer"
                raise ValueError(f"parameter group {number} differs: {counts}")
            order += new["params"]
            groups.append({**old, **copy.deepcopy({k: v for k, v in new.items() if k != "params"})})
            _check_group(groups[-1])
        # Files of tensors and text have names where PyTorch has numbers.
        state = {int(number): values for number, values in state_dict["state"].items()}
        unknown = sorted(set(state) - set(order))
        if unknown:
            raise ValueError(f"the state has parameters {unknown}, of which its groups know nothing")
        natives = self._built(groups, {place: state[number] for place, number in enumerate(order) if number in state})
        self._natives = natives
        for old, new in zip(self.param_groups, groups, strict=True):
            old.update(new)

    def __getstate__(self) -> dict[str, Any]:
        rest = {name: value for name, value in self.__dict__.items() if name != "_natives"}
        return {"rest": rest, "state": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["rest"])
        self._natives = self._built(self.param_groups, state["state"])

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


class _Native:
    """An optimiser of the engine, and which groups and parameters are its."""

    def __init__(
        self, rule: str, options: Mapping[str, Any], number: int, group: Mapping[str, Any], members: list[int]
    ) -> None:
        self.options, self.groups, self.members = options, [number], list(members)
        self.parameters: list[Tensor] = list(group["params"])
        self.optimizer = _engine.Optimizer(rule, dict(options), [_triple(group)])

    def add(self, number: int, group: Mapping[str, Any], members: list[int]) -> None:
        self.optimizer.add_group(_triple(group))
        self.groups.append(number)
        self.members += members
        self.parameters += group["params"]

    def state(self) -> dict[int, dict[str, Tensor]]:
        result: dict[int, dict[str, Tensor]] = {}
        for name, tensor in self.optimizer.state().items():
            place, _, key = name.partition(".")
            if key:
                # PyTorch keeps counts as float32.
                result.setdefault(self.members[int(place)], {})[key] = tensor.float() if key == "step" else tensor
        return result

    def put_state(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        named: dict[str, Tensor] = {}
        most = 0
        for place, number in enumerate(self.members):
            parameter = self.parameters[place]
            values = {key: value for key, value in state.get(number, {}).items() if value is not None}
            # Rules that count nothing in PyTorch (SGD) have no count in its states.
            steps = int(values.pop("step", 1)) if values else 0
            if steps == 0:
                continue
            most = max(most, steps)
            named[f"{place}.step"] = _engine.tensor(steps, dtype="int64", device=parameter.device)
            for key, value in values.items():
                named[f"{place}.{key}"] = as_value(value).to(dtype=parameter.dtype, device=parameter.device)
        if named:
            named["steps"] = _engine.tensor(most, dtype="int64", device="cpu")
            self.optimizer.load_state(named)


def _triple(group: Mapping[str, Any]) -> tuple[list[Tensor], float, float]:
    return group["params"], float(group["lr"]), float(group.get("weight_decay", 0.0))


def _check_group(group: Mapping[str, Any]) -> None:
    for name, text in (("lr", "learning rate"), ("weight_decay", "weight_decay value")):
        value = float(group.get(name, 0.0))
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"Invalid {text}: {value}")
    for name in ("maximize", "differentiable"):
        if group.get(name):
            raise ValueError(f"{name}=True is not there")


def check_choices(kind: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """PyTorch's choices of implementation among the arguments; what would change the result is refused."""
    for name in choices:
        if name not in _CHOICES:
            raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}")
    _check_group(choices)
    return {}
