"""The base class of optimisers: groups of parameters on the engine's update rules."""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import _effects, _engine
from .._autograd import enable_grad, no_grad
from .._engine import Tensor
from ..nn._state import as_value
from ..nn.container import ParameterList
from ..nn.module import Module, zero_gradients
from ..nn.parameter import UninitializedParameter
from ._hooks import Hooked, has_step_hooks
from ._written import Written

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
# PyTorch's implementation options, with their defaults. The engine makes its own choice, except for ``maximize``.
_CHOICES = {"maximize": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None}


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
"""A default of settings that each group must have."""


class Optimizer(Hooked):
    """Updates parameters from their gradients. A user-defined subclass implements ``step`` in Python and stores a
    parameter's state in ``state[p]``.

    ``param_groups`` are dictionaries with ``params`` and settings; changes to both take effect at the next step. A step
    updates all groups, or none if it fails.
    """

    _rule = ""
    # The options among ``_CHOICES`` that the groups have.
    _choices: tuple[str, ...] = ("maximize", "foreach", "capturable", "differentiable")
    # A bool tensor that decides on the device whether the next step is taken, set by GradScaler. The host never reads
    # it.
    _condition: Tensor | None = None

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(f"{type(self).__name__}: expected a list of parameters, got one tensor")
        _refuse_module(params)
        self.defaults = defaults
        self._groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self._groups = [self._checked(group) for group in groups]
        self._native = self._built(self._groups, {})

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups: dictionaries with ``params`` and settings."""
        _effects.note_read(self._numbers, "param_groups")
        return self._groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._groups = groups

    def _numbers(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in group.items() if name != "params"} for group in self._groups]

    # Implemented by the rules.
    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        """A group's settings with the engine's names."""
        return {}

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        group = {**self.defaults, **given}
        params = group["params"]
        _refuse_module(params)
        members = [params] if isinstance(params, Tensor) else [p[1] if isinstance(p, tuple) else p for p in params]
        for parameter in members:
            _refuse_module(parameter)
            if not isinstance(parameter, Tensor):
                raise TypeError(f"expected a tensor to optimize, got {type(parameter).__name__}")
            if isinstance(parameter, UninitializedParameter):
                raise ValueError("a lazy layer has no parameters yet: call the network once before you make the optimizer")
            if not parameter.is_leaf:
                raise ValueError("can't optimize a non-leaf tensor: pass the leaf it was computed from")
        if len({id(parameter) for parameter in members}) != len(members):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters, each of which is updated more than once by"
                " a step; in PyTorch, this will be an error in future",
                stacklevel=4,
            )
        missing = [name for name, value in group.items() if value is required]
        if missing:
            raise ValueError(f"a group of parameters has no value of the required setting {missing[0]}")
        group["params"] = members
        _check_group(group)
        return group

    def _built(self, groups: list[dict[str, Any]], state: Mapping[int, Mapping[str, Any]]) -> _Native | Written:
        """The native optimiser, with the state by parameter number."""
        _check_apart([group["params"] for group in groups])
        native: _Native | Written = Written(groups) if not self._rule else _Native(self._rule, groups, [self._options(group) for group in groups])
        native.put_state(state)
        return native

    def _current(self) -> _Native | Written:
        """The native optimiser for the current groups and their settings."""
        native = self._matching()
        native.set_options([self._options(group) for group in self._groups])
        # These may be others than at the last step.
        _SETTINGS.pop(native, None)
        return native

    def _matching(self) -> _Native | Written:
        """The native optimiser for the parameters of the current groups, with the changes of its state."""
        self._take_changes()
        members = [parameter for group in self._groups for parameter in group["params"]]
        counts = [len(group["params"]) for group in self._groups]
        if counts != self._native.counts or not all(map(operator.is_, members, self._native.parameters)):
            # The lists have been modified: each parameter keeps its state.
            checked = [self._checked(group) for group in self._groups]
            numbers = {id(parameter): number for number, parameter in enumerate(self._native.parameters)}
            known = self._native.state()
            state = {place: known[numbers[id(p)]] for place, p in enumerate(members) if numbers.get(id(p)) in known}
            self._native = self._built(checked, state)
        return self._native

    def _state(self) -> dict[int, dict[str, Tensor]]:
        self._take_changes()
        return self._native.state()

    def _take_changes(self) -> None:
        """Gives the engine the state that the user has changed."""
        given = _GIVEN.get(self._native)
        if given is not None and given.is_changed():
            self._replace_state(given.states)
            _GIVEN[self._native] = _Given(given.states)

    def _replace_state(self, states: Mapping[Tensor, Mapping[str, Any]]) -> None:
        members = [parameter for group in self._groups for parameter in group["params"]]
        by_number = {number: states[p] for number, p in enumerate(members) if p in states}
        self._native = self._built([self._checked(group) for group in self._groups], by_number)

    # Public methods.
    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters with their own settings."""
        native = self._current()
        group = self._checked(param_group)
        _check_apart([native.parameters, group["params"]])
        native.add(group, self._options(group))
        self._groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients, or sets them to zeros."""
        for group in self._groups:
            zero_gradients(group["params"], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. ``closure`` computes the loss and its gradients first."""
        if not self._rule:
            raise NotImplementedError(f"{type(self).__name__} does not implement step()")
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        _effects.note_step(self)
        optimizer, rates = self._stepping()
        with _negated([group for group in self._groups if group.get("maximize")]):
            self._take(optimizer, rates)
            for parameter in self._surplus():
                if _effects.is_recording():
                    raise RuntimeError("compile: the optimizer has duplicate parameters, which a step updates more than once")
                with _alone(parameter, self._groups):
                    self._take(optimizer, rates)
        self._updated()
        return loss

    def _take(self, native: _engine.Optimizer, rates: list[tuple[float, float]]) -> None:
        """Takes the step: with each group's learning rate and weight decay."""
        native.step(rates, self._condition)

    def _surplus(self) -> Sequence[Tensor]:
        """The parameters that a step updates again: once for each duplicate."""
        return self._native.surplus

    def _updated(self) -> None:
        """Called after each update of the parameters."""

    def _is_repeated(self) -> bool:
        """Whether a replay repeats its steps: its class belongs to this package, and none of its methods was replaced."""
        own = type(self).__module__.startswith("neurenix.")
        replaced = any(callable(value) for name, value in vars(self).items() if name not in ("_native", "step"))
        return own and bool(self._rule) and not replaced and ("step" not in vars(self) or has_step_hooks(self))

    def _has_state(self) -> bool:
        """Whether every parameter has its state, so that a step can be recorded."""
        return self._stepping()[0].has_state()

    def _stepping(self) -> tuple[_engine.Optimizer, list[tuple[float, float]]]:
        """The native optimiser, with each group's learning rate and weight decay."""
        native = self._matching()
        assert isinstance(native, _Native)
        _GIVEN.pop(native, None)
        # Nearly always no setting has changed.
        settings = [each for group in self._groups for item in group.items() if item[0] != "params" for each in item]
        known = _SETTINGS.get(native, ())
        if len(settings) != len(known) or not all(map(operator.is_, settings, known)):
            for group in self._groups:
                _check_group(group)
            native.set_options([self._options(group) for group in self._groups])
            _SETTINGS[native] = settings if all(map(_is_fixed, settings)) else ()
        return native.optimizer, [(float(g["lr"]), float(g.get("weight_decay", 0.0))) for g in self._groups]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """The rule's current state for each parameter: a dictionary. What is changed in it until the next step, be it
        an entry or a tensor, takes effect at that step. A step replaces it: read it again afterwards. An assignment to
        ``state`` replaces all.
        """
        native = self._current()
        if _effects.is_recording() and isinstance(native, _Native):
            raise RuntimeError("compile: the function reads the optimizer's state, which its steps change: read it outside")
        if isinstance(native, Written):
            return native.values
        parameters = native.parameters
        if native not in _GIVEN:
            states = {parameters[number]: state for number, state in sorted(native.state().items())}
            _GIVEN[native] = _Given(defaultdict(dict, states))
        return _GIVEN[native].states

    @state.setter
    def state(self, states: Mapping[Tensor, Mapping[str, Any]]) -> None:
        if isinstance(self._native, Written):
            self._native.values = defaultdict(dict, {p: dict(values) for p, values in states.items()})
        else:
            self._matching()
            self._replace_state(states)

    def state_dict(self) -> dict[str, Any]:
        """Settings and state in PyTorch's layout: parameters are numbered in order."""
        for hook in tuple(self._hooks("state_dict_pre").values()):
            hook(self)
        if _effects.is_recording():
            raise RuntimeError("compile: the function reads the optimizer's state, which its steps change: read it outside")
        groups, start = [], 0
        for group in self._groups:
            count = len(group["params"])
            settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            groups.append({**settings, "params": list(range(start, start + count))})
            start += count
        state = {"state": dict(sorted(self._current().state().items())), "param_groups": groups}
        for hook in tuple(self._hooks("state_dict_post").values()):
            changed = hook(self, state)
            state = state if changed is None else changed
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` of this library or of PyTorch. On any error, nothing is changed."""
        hooks = tuple(self._hooks("load_state_dict_pre").values())
        if hooks:
            state_dict = dict(state_dict)
        for hook in hooks:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        given = state_dict["param_groups"]
        if len(given) != len(self._groups):
            raise ValueError(f"the state has {len(given)} parameter groups, the optimizer has {len(self._groups)}")
        groups, order = [], []
        for number, (new, old) in enumerate(zip(given, self._groups, strict=True)):
            if len(new["params"]) != len(old["params"]):
                counts = f"{len(new['params'])} parameters in the state, {len(old['params'])} in the optimizer"
                raise ValueError(f"parameter group {number} differs: {counts}")
            order += new["params"]
            groups.append({**old, **copy.deepcopy({k: v for k, v in new.items() if k != "params"})})
            _check_group(groups[-1])
        # Files store the parameter numbers as strings.
        state = {int(number): values for number, values in state_dict["state"].items()}
        unknown = sorted(set(state) - set(order))
        if unknown:
            raise ValueError(f"the state has parameters {unknown} that belong to none of its groups")
        self._native = self._built(
            groups, {place: state[number] for place, number in enumerate(order) if number in state}
        )
        for old, new in zip(self._groups, groups, strict=True):
            old.update(new)
        for hook in tuple(self._hooks("load_state_dict_post").values()):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        rest = {name: value for name, value in self._without_hooks().items() if name != "_native"}
        return {"rest": rest, "state": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["rest"])
        self._native = self._built(self._groups, state["state"])

    def __repr__(self) -> str:
        _effects.note_read(self._numbers, "param_groups")
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self._groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


def number_dtype() -> _engine.dtype:
    """The dtype of counts of steps, as in PyTorch: ``float64`` if that is the default dtype, else ``float32``."""
    default = _engine.get_default_dtype()
    return default if default.name == "float64" else _engine.dtype("float32")


class _Given:
    """States that the user has read, and may change."""

    def __init__(self, states: defaultdict[Tensor, dict[str, Any]]) -> None:
        self.states = states
        # Kept alive, so that no other value gets the identity of one of them.
        self._values = [dict(state) for state in states.values()]
        self._before = self._look()

    def is_changed(self) -> bool:
        """Whether an entry is another, or has been changed in place."""
        return self._look() != self._before

    def _look(self) -> dict[int, dict[str, tuple[int, int]]]:
        return {
            id(parameter): {name: (id(value), getattr(value, "_version", 0)) for name, value in state.items()}
            for parameter, state in self.states.items()
            if state
        }


# By native optimisers: the states that have been read since the last step.
_GIVEN: weakref.WeakKeyDictionary[_Native | Written, _Given] = weakref.WeakKeyDictionary()


class _Native:
    """An optimiser of the engine, with its parameters and settings. Duplicates among the parameters of a group, which
    the engine does not have, are ``surplus``.
    """

    def __init__(self, rule: str, groups: list[dict[str, Any]], options: list[dict[str, Any]]) -> None:
        self.options = [dict(each) for each in options]
        self.counts = [len(group["params"]) for group in groups]
        self.parameters: list[Tensor] = []
        self.surplus: list[Tensor] = []
        # The places among ``parameters`` of those that the engine has.
        self.places: list[int] = []
        for group in groups:
            self._enter(group["params"])
        self.optimizer = _engine.Optimizer(
            rule, [_native_group(group, each) for group, each in zip(groups, options, strict=True)]
        )

    def _enter(self, members: list[Tensor]) -> None:
        known: set[int] = set()
        for parameter in members:
            if id(parameter) in known:
                self.surplus.append(parameter)
            else:
                self.places.append(len(self.parameters))
            known.add(id(parameter))
            self.parameters.append(parameter)

    def add(self, group: Mapping[str, Any], options: dict[str, Any]) -> None:
        self.optimizer.add_group(_native_group(group, options))
        self.options.append(dict(options))
        self.counts.append(len(group["params"]))
        self._enter(group["params"])

    def set_options(self, options: list[dict[str, Any]]) -> None:
        for number, new in enumerate(options):
            if new != self.options[number]:
                self.optimizer.set_options(number, new)
                self.options[number] = dict(new)

    def state(self) -> dict[int, dict[str, Tensor]]:
        result: dict[int, dict[str, Tensor]] = {}
        for name, tensor in self.optimizer.state().items():
            place, _, key = name.partition(".")
            if key:
                result.setdefault(self.places[int(place)], {})[key] = tensor.to(number_dtype()) if key == "step" else tensor
        return result

    def put_state(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        named: dict[str, Tensor] = {}
        most = 0
        for place, number in enumerate(self.places):
            parameter = self.parameters[number]
            values = {key: value for key, value in state.get(number, {}).items() if value is not None}
            # PyTorch's SGD state has no step count.
            steps = int(values.pop("step", 1)) if values else 0
            if steps == 0 and not values:
                continue
            most = max(most, steps)
            named[f"{place}.step"] = _engine.tensor(steps, dtype="int64", device=parameter.device)
            for key, value in values.items():
                named[f"{place}.{key}"] = as_value(value).to(dtype=parameter.dtype, device=parameter.device)
        if named:
            named["steps"] = _engine.tensor(most, dtype="int64", device="cpu")
            self.optimizer.load_state(named)


def _native_group(
    group: Mapping[str, Any], options: dict[str, Any]
) -> tuple[list[Tensor], float, float, dict[str, Any]]:
    members = list({id(parameter): parameter for parameter in group["params"]}.values())
    return members, float(group["lr"]), float(group.get("weight_decay", 0.0)), options


def _check_apart(groups: list[list[Tensor]]) -> None:
    members = [{id(parameter) for parameter in group} for group in groups]
    if len(set[int]().union(*members)) != sum(map(len, members)):
        raise ValueError("some parameters appear in more than one parameter group")


def _refuse_module(params: Any) -> None:
    # A ParameterList is one: it iterates over its parameters.
    if isinstance(params, Module) and not isinstance(params, ParameterList):
        kind = type(params).__name__
        raise TypeError(f"expected parameters to optimize, got the module {kind}: pass module.parameters()")


# The names and values of the groups' settings at the last step of each native optimiser, if none of the values can change
# by itself. Not an attribute, because compiled functions watch those.
_SETTINGS: weakref.WeakKeyDictionary[_Native | Written, Sequence[Any]] = weakref.WeakKeyDictionary()


def _is_fixed(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_fixed, value))
    return value is None or isinstance(value, (int, float, str))


def _check_group(group: Mapping[str, Any]) -> None:
    for name, text in (("lr", "learning rate"), ("weight_decay", "weight_decay value")):
        given = group.get(name, 0.0)
        try:
            if isinstance(given, (str, bytes)):
                raise TypeError
            value = float(given)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be a number, got {type(given).__name__}") from None
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"Invalid {text}: {value}")
    if group.get("differentiable"):
        raise ValueError("differentiable=True is not supported")


@contextlib.contextmanager
def _alone(parameter: Tensor, groups: list[dict[str, Any]]) -> Iterator[None]:
    """Hides the gradients of all other parameters while a step is taken."""
    kept = [(p, p.grad) for group in groups for p in group["params"] if p is not parameter]
    try:
        for other, _ in kept:
            other.grad = None
        yield
    finally:
        for other, gradient in kept:
            other.grad = gradient


@contextlib.contextmanager
def _negated(groups: list[dict[str, Any]]) -> Iterator[None]:
    """Negates the gradients of these groups while a step is taken."""
    kept = [(p, gradient) for group in groups for p in group["params"] if (gradient := p.grad) is not None]
    try:
        with no_grad():
            for parameter, gradient in kept:
                parameter.grad = -gradient
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


def check_choices(optimizer: Optimizer, choices: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among PyTorch's implementation options: the given ones, and the defaults of others that the
    optimiser has. Refuses what is not supported.
    """
    for name in choices:
        if name not in _CHOICES:
            raise TypeError(f"{type(optimizer).__name__}() got an unexpected keyword argument {name!r}")
    _check_group(choices)
    return {**{name: _CHOICES[name] for name in optimizer._choices}, **choices}
