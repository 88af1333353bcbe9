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


class NotReady(Exception):
    """A function cannot be recorded yet: it has to run as it is first."""


class Effects:
    """The effects of the function that this thread records, as a context manager."""

    def __init__(self) -> None:
        self.optimizers: list[Any] = []
        # Steps of schedules, which follow those of the optimisers.
        self.calls: list[Callable[[], Any]] = []
        # Dictionaries that steps change, and their contents before.
        self._before: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        # Numbers of optimisers and schedules that the function reads itself, with names for messages.
        self.reads: list[tuple[Callable[[], Any], str]] = []

    def __enter__(self) -> Effects:
        _RECORDING.effects = self
        return self

    def __exit__(self, *error: Any) -> None:
        _RECORDING.effects = None

    def undo(self) -> None:
        """Takes back what steps have changed on the host while the function was recorded."""
        for place, before in reversed(self._before):
            place.clear()
            place.update(before)

    def save(self, *places: dict[Any, Any]) -> None:
        """Remembers dictionaries for :meth:`undo`."""
        self._before += [(place, dict(place)) for place in places]


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


def note_read(look: Callable[[], Any], name: str) -> None:
    """Notes that the function itself reads numbers that change between steps: when they change, it is recorded again."""
    effects = _RECORDING.effects
    if effects is not None:
        effects.reads.append((lambda: repr(look()), name))


def note_change(*places: dict[Any, Any]) -> None:
    """Notes dictionaries that a step changes on the host, and changes back before it ends."""
    effects = _RECORDING.effects
    if effects is not None:
        effects.save(*places)


def repeated(method: _Method) -> _Method:
    """Marks a schedule's method as one that a replay calls again. It changes the schedule and the optimiser's groups."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        effects = _RECORDING.effects
        if effects is None:
            return method(self, *args, **kwargs)
        effects.calls.append(functools.partial(method, self, *args, **kwargs))
        parts = [self]
        for part in parts:
            parts += getattr(part, "_schedulers", ())
        effects.save(*(part.__dict__ for part in parts), *self.optimizer._groups)
        # What it calls is part of it.
        _RECORDING.effects = None
        try:
            return method(self, *args, **kwargs)
        finally:
            _RECORDING.effects = effects

    return call  # type: ignore[return-value]
