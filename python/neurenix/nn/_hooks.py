"""User functions that modules call."""

from __future__ import annotations

import itertools
from typing import Any

_NUMBERS = itertools.count()


class Handle:
    """The handle of a registered hook: ``remove()`` removes the hook."""

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks, self._number = hooks, next(_NUMBERS)

    def remove(self) -> None:
        """Removes the hook."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], hook: Any, prepend: bool, with_kwargs: bool) -> Handle:
    """Adds a hook after the others, or before them."""
    if not callable(hook):
        raise TypeError(f"expected a function as hook, got {type(hook).__name__}")
    handle = Handle(hooks)
    if prepend:
        others = dict(hooks)
        hooks.clear()
        hooks[handle._number] = (hook, with_kwargs)
        hooks.update(others)
    else:
        hooks[handle._number] = (hook, with_kwargs)
    return handle
