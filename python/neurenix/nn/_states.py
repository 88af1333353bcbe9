"""Saving and loading of a module's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import _engine
from .._engine import Tensor
from ._hooks import Handle, checked
from ._state import IncompatibleKeys, as_value
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module

_EXTRA = "_extra_state"
# What ``load_state_dict`` is going to do, so that an error leaves everything as it was.
_Load = tuple[dict[str, Any], str, Tensor, bool]
_PENDING: ContextVar[list[_Load] | None] = ContextVar("pending", default=None)
_ASSIGN: ContextVar[bool] = ContextVar("assign", default=False)


class States:
    """The part of a module that saves and loads its state."""

    _parameters: dict[str, Tensor | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _not_saved: set[str]
    _version = 1

    def get_extra_state(self) -> Any:
        """What the state contains besides tensors: override it together with :meth:`set_extra_state`."""
        raise RuntimeError(f"{type(self).__name__} has an extra state, but does not override get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Restores what :meth:`get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__} has an extra state, but does not override set_extra_state()")

    def _state(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        for kind in (self._parameters, self._buffers):
            for name, tensor in kind.items():
                if tensor is not None and (kind is self._parameters or name not in self._not_saved):
                    yield prefix + name, tensor
        for name, module in self._modules.items():
            if module is not None:
                yield from module._state(f"{prefix}{name}.")

    def _whole_state(self, prefix: str) -> dict[str, Tensor] | None:
        """The state with that of all submodules, if the class says what it is, as those whose parameters are divided
        among ranks do; else None.
        """
        return None if type(self)._state is States._state else dict(self._state(prefix))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Stores the module's own part of the state."""
        for kind in (self._parameters, self._buffers):
            for name, tensor in kind.items():
                if tensor is not None and (kind is self._parameters or name not in self._not_saved):
                    destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not States.get_extra_state:
            destination[prefix + _EXTRA] = self.get_extra_state()

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """The parameters and buffers by name, detached; stored in ``destination`` if given. Entries share storage with
        the module's tensors: copy the state to keep its values. With ``keep_vars``, returns the parameters and buffers
        themselves. ``destination``, ``prefix`` and ``keep_vars`` may be positional.
        """
        for name, value in zip(("destination", "prefix", "keep_vars"), args, strict=False):
            if name == "destination":
                destination = value
            elif name == "prefix":
                prefix = value
            else:
                keep_vars = value
        state: dict[str, Any] = {} if destination is None else destination
        for hook in tuple(self.__dict__.get("_state_dict_pre_hooks", {}).values()):
            hook(self, prefix, keep_vars)
        whole = self._whole_state(prefix)
        if whole is None:
            self._save_to_state_dict(state, prefix, keep_vars)
        else:
            state.update((name, tensor if keep_vars else tensor.detach()) for name, tensor in whole.items())
        for name, module in self._modules.items():
            if module is not None and whole is None:
                module.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook, is_public in tuple(self.__dict__.get("_state_dict_hooks", {}).values()):
            result = hook(self, state, prefix, {"version": self._version})
            if result is not None:
                if is_public:
                    raise RuntimeError("a state_dict post-hook must return None")
                state = result
        return state

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Loads the module's own part of a state. The lists receive names and messages."""
        for hook in tuple(self.__dict__.get("_load_state_dict_pre_hooks", {}).values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        known: set[str] = set()
        loads: list[_Load] = []
        for kind in (self._parameters, self._buffers):
            left_out = self._not_saved if kind is self._buffers else ()
            own = {name: tensor for name, tensor in kind.items() if tensor is not None and name not in left_out}
            known |= own.keys()
            loads += _fitting(kind, own, state_dict, missing_keys, error_msgs, (prefix, _ASSIGN.get()))
        pending = _PENDING.get()
        if pending is None:
            _apply(loads)
        else:
            pending += loads
        if type(self).set_extra_state is not States.set_extra_state:
            if prefix + _EXTRA in state_dict:
                self.set_extra_state(state_dict[prefix + _EXTRA])
            else:
                missing_keys.append(prefix + _EXTRA)
            known.add(_EXTRA)
        for key in state_dict:
            if isinstance(key, str) and key.startswith(prefix):
                name, _, rest = key[len(prefix) :].partition(".")
                if name not in (self._modules if rest else known):
                    unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Loads values into parameters and buffers, converted to their dtype and device. With ``assign``, new
        parameters and buffers with the given values, dtypes and devices replace them.

        Values are tensors of any library that NumPy can read. Missing and unknown names are errors if ``strict``;
        differing shapes always are. On any error, nothing is changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: expected a dictionary of tensors by name, got {type(state_dict).__name__}")
        missing: list[str] = []
        unexpected: list[str] = []
        problems: list[str] = []
        pending: list[_Load] = []
        tokens = _PENDING.set(pending), _ASSIGN.set(assign)
        order: list[tuple[Any, str]] = []
        # PyTorch's states say in it which version of a module wrote them.
        metadata = getattr(state_dict, "_metadata", None) or {}

        def load(module: Any, state: Mapping[str, Any], prefix: str) -> None:
            whole = module._whole_state(prefix)
            if whole is not None:
                pending.extend(_fitting(whole, whole, state, missing, problems, ("", False)))
                unexpected.extend(key for key in state if key not in whole)
                order.extend((each, prefix) for each in module.modules())
                return
            local = dict(metadata.get(prefix[:-1], {}))
            module._load_from_state_dict(state, prefix, local, True, missing, unexpected, problems)
            for name, child in module._modules.items():
                if child is not None:
                    inner = f"{prefix}{name}."
                    load(child, {key: value for key, value in state.items() if str(key).startswith(inner)}, inner)
            order.append((module, prefix))

        try:
            # Hooks may change the state.
            load(self, dict(state_dict), "")
        finally:
            _PENDING.reset(tokens[0])
            _ASSIGN.reset(tokens[1])
        differing = IncompatibleKeys(missing, unexpected)
        texts = []
        if strict and unexpected:
            texts.append("Unexpected key(s) in state_dict: " + ", ".join(map(repr, unexpected)) + ".")
        if strict and missing:
            texts.append("Missing key(s) in state_dict: " + ", ".join(map(repr, missing)) + ".")
        texts += problems
        if texts:
            text = "\n\t".join(texts)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{text}")
        _apply(pending)
        for module, _ in order:
            for hook in tuple(module.__dict__.get("_load_state_dict_post_hooks", {}).values()):
                if hook(module, differing) is not None:
                    raise RuntimeError("a load_state_dict post-hook must return None: change the names in place")
        for module, _ in order:
            module._loaded()
        return differing

    def _loaded(self) -> None:
        """Called after a state was loaded into this module or one that contains it."""

    def _add_state_hook(self, kind: str, hook: Any) -> Handle:
        return Handle(self.__dict__.setdefault(kind, {}), hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(module, prefix, keep_vars)`` before ``state_dict`` saves the module."""
        return self._add_state_hook("_state_dict_pre_hooks", checked(hook))

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict`` has saved the module. It
        changes the state in place.
        """
        return self._add_state_hook("_state_dict_hooks", (checked(hook), True))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Handle:
        """Same as :meth:`register_state_dict_post_hook`, but a state that the hook returns replaces the state."""
        return self._add_state_hook("_state_dict_hooks", (checked(hook), False))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)``
        before ``load_state_dict`` loads the module. It may change the state in place.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Handle:
        """Same as :meth:`register_load_state_dict_pre_hook`; without the module unless ``with_module``."""
        called = _WithModule(checked(hook), self) if with_module else checked(hook)
        return self._add_state_hook("_load_state_dict_pre_hooks", called)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(module, incompatible_keys)`` after ``load_state_dict`` has loaded everything. It may change the
        lists of names in place.
        """
        return self._add_state_hook("_load_state_dict_post_hooks", checked(hook))


def _fitting(
    kind: dict[str, Any],
    own: Mapping[str, Tensor],
    state: Mapping[str, Any],
    missing: list[str],
    problems: list[str],
    options: tuple[str, bool],
) -> list[_Load]:
    """What is to be stored in ``kind`` of a state whose names begin with a prefix; ``options`` are that, and whether new
    tensors are assigned.
    """
    (prefix, assign), loads = options, []
    for name, tensor in own.items():
        key = prefix + name
        if key not in state:
            missing.append(key)
            continue
        value = as_value(state[key])
        if tuple(value.shape) == tuple(tensor.shape):
            loads.append((kind, name, value, assign))
        else:
            given, needed = tuple(value.shape), tuple(tensor.shape)
            problems.append(f"size mismatch for {key}: the state has shape {given}, the model has shape {needed}.")
    return loads


class _WithModule:
    """A hook with its module, of which a copy of the module has a copy."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook, self.module = hook, module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)


def _apply(loads: list[_Load]) -> None:
    """Stores values, after all of them have been computed."""
    values = []
    for kind, name, value, assign in loads:
        own = kind[name]
        values.append(value if assign else value.to(dtype=own.dtype, device=own.device))
    _engine.evaluate(values)
    for (kind, name, _, assign), value in zip(loads, values, strict=True):
        own = kind[name]
        if not assign:
            own.data = value
        elif isinstance(own, Parameter):
            kind[name] = Parameter(value.detach(), requires_grad=own.requires_grad)
        else:
            kind[name] = value.detach()
