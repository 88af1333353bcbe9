"""Functions of users that optimisers call before and after steps, and when states are saved and loaded."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .. import _effects
from ..nn._hooks import Handle

_KINDS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


class Hooked:
    """Registers hooks, with PyTorch's names. Copies and pickles of an optimiser have none."""

    def _hooks(self, kind: str) -> dict[int, Callable[..., Any]]:
        hooks: dict[int, Callable[..., Any]] = self.__dict__.setdefault(f"_optimizer_{kind}_hooks", {})
        return hooks

    def _add_hook(self, kind: str, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        if not callable(hook):
            raise TypeError(f"expected a function as hook, got {type(hook).__name__}")
        if kind.startswith("step"):
            # Hooks run once for a call, also if a subclass's step calls that of its base class.
            if not _is_hooked(self):
                self.__dict__["_own_step"] = self.__dict__.get("step")
            self.__dict__["step"] = types.MethodType(_step, self)
        return Handle(self._hooks(kind), hook, prepend=prepend)

    def _without_hooks(self) -> dict[str, Any]:
        """The attributes, without hooks."""
        beside = {f"_optimizer_{kind}_hooks" for kind in _KINDS}
        beside |= {"step", "_own_step"} if _is_hooked(self) else set()
        return {name: value for name, value in self.__dict__.items() if name not in beside}

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(optimizer, args, kwargs)`` before each step; a pair that it returns replaces the arguments.

        >>> import neurenix as nx
        >>> optimizer = nx.optim.SGD([nx.nn.Parameter([1.0])])
        >>> handle = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print("step"))
        >>> optimizer.step()
        step
        >>> handle.remove()
        """
        return self._add_hook("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(optimizer, args, kwargs)`` after each step."""
        return self._add_hook("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(optimizer)`` before ``state_dict()``."""
        return self._add_hook("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(optimizer, state_dict)`` after ``state_dict()``; what it returns replaces the state unless
        ``None``.
        """
        return self._add_hook("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(optimizer, state_dict)`` before a state is loaded; what it returns replaces the state unless
        ``None``. The hook may change its shallow copy of the state.
        """
        return self._add_hook("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(optimizer)`` after a state was loaded."""
        return self._add_hook("load_state_dict_post", hook, prepend)


def _step(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A step with its hooks."""
    before, after = self._hooks("step_pre"), self._hooks("step_post")
    if _effects.is_recording() and (before or after):
        raise RuntimeError("compile: the optimizer has step hooks, which a replay would not call: remove them")
    for hook in tuple(before.values()):
        changed = hook(self, args, kwargs)
        if changed is not None:
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RuntimeError(f"a step pre-hook must return None or (args, kwargs), got {changed!r}")
            args, kwargs = changed
    own = self.__dict__["_own_step"]
    result = type(self).step(self, *args, **kwargs) if own is None else own(*args, **kwargs)
    for hook in tuple(after.values()):
        hook(self, args, kwargs)
    return result


def _is_hooked(optimizer: Any) -> bool:
    return getattr(optimizer.__dict__.get("step"), "__func__", None) is _step


def has_step_hooks(optimizer: Any) -> bool:
    """Whether steps of this optimiser call hooks."""
    return bool(optimizer._hooks("step_pre") or optimizer._hooks("step_post"))
