"""What a compiled function does besides computing: steps of optimisers and schedules, which a replay repeats."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Recording(threading.local):
    def __init__(self) -> None:
        self.effects: Effects | None = None


_RECORDING = _Recording()


class Effects:
    """The effects of the function that this thread records, as a context manager."""

    def __init__(self) -> None:
        self.optimizers: list[Any] = []
        # Steps of schedules, which follow those of the optimisers.
        self.calls: list[Callable[[], Any]] = []
        # Dictionaries that the calls change, and their contents before.
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def __enter__(self) -> Effects:
        _RECORDING.effects = self
        return self

    def __exit__(self, *error: Any) -> None:
        _RECORDING.effects = None

    def undo(self) -> None:
        """Takes the calls back, because the values that they belong to could not be computed."""
        for place, before in reversed(self._before):
            place.clear()
            place.update(before)


def is_recording() -> bool:
    """Whether this thread records a compiled function."""
    return _RECORDING.effects is not None


def note_step(optimizer: Any) -> None:
    """Notes that an optimiser takes a step."""
    effects = _RECORDING.effects
    if effects is None:
        return
    if any(known is optimizer for known in effects.optimizers):
        raise RuntimeError("compile: the function takes two steps of one optimizer: put one step in it, and call it twice")
    if effects.calls:
        raise RuntimeError("compile: the function calls the schedule's step() before the optimizer's: call it afterwards")
    effects.optimizers.append(optimizer)


def repeated(method: _Method) -> _Method:
    """Marks a schedule's method as one that a replay calls again. It changes the schedule and the optimiser's groups."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        effects = _RECORDING.effects
        if effects is None:
            return method(self, *args, **kwargs)
        effects.calls.append(functools.partial(method, self, *args, **kwargs))
        places = [vars(self), *map(vars, getattr(self, "_schedulers", ())), *self.optimizer.param_groups]
        effects._before += [(place, dict(place)) for place in places]
        # What it calls is part of it.
        _RECORDING.effects = None
        try:
            return method(self, *args, **kwargs)
        finally:
            _RECORDING.effects = effects

    return call  # type: ignore[return-value]
