"""User functions that modules and optimisers call."""

from __future__ import annotations

import itertools
from typing import Any

_NUMBERS = itertools.count()


class Handle:
    """The handle of a registered hook: ``remove()`` removes the hook.

    The hook is stored in ``hooks`` under the handle's ``id``, and each of ``marks`` that is true in its dictionary.
    """

    def __init__(
        self, hooks: dict[int, Any], hook: Any, *marks: tuple[dict[int, bool], bool], prepend: bool = False
    ) -> None:
        self.id = next(_NUMBERS)
        self._places: list[dict[int, Any]] = [hooks, *(place for place, _ in marks)]
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)
        for place, is_marked in marks:
            if is_marked:
                place[self.id] = True

    def remove(self) -> None:
        """Removes the hook."""
        for place in self._places:
            place.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def checked(hook: Any) -> Any:
    """The hook, which must be callable."""
    if not callable(hook):
        raise TypeError(f"expected a function as hook, got {type(hook).__name__}")
    return hook
