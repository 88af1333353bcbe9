"""Pending values that a forward pass changes besides its result, such as running means."""

from __future__ import annotations

import threading
import weakref

from . import _engine
from ._engine import Tensor


class _Waiting(threading.local):
    def __init__(self) -> None:
        # Keyed by identity, because tensor equality is elementwise.
        self.places: dict[int, weakref.ref[Tensor]] = {}


_WAITING = _Waiting()


def computed_with_step(*tensors: Tensor) -> None:
    """Registers values to compute at the optimiser's next step, before they change again, or when they are read."""
    places = _WAITING.places
    if any(id(tensor) in places for tensor in tensors):
        # Forward passes without a step in between: do not let the pending graph grow without bound.
        compute()
    places.update((id(tensor), weakref.ref(tensor)) for tensor in tensors)


def compute() -> None:
    """Computes everything that is pending."""
    places = [place() for place in _WAITING.places.values()]
    _WAITING.places.clear()
    waiting = [place for place in places if place is not None and not place.is_evaluated]
    if waiting:
        _engine.evaluate(waiting)
