"""What happens to steps that a device refuses: planned on the CPU, told to a function, or errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _engine
from ._engine import Placement

__all__ = ["Placement", "is_strict_placement", "on_fallback", "set_strict_placement"]


def set_strict_placement(strict: bool) -> None:
    """With ``True``, a step that its device has no kernel for is a ``RuntimeError``; with ``False``, as at the start, it
    is planned on the CPU. It counts for the whole process, from the next computation on.

    >>> import neurenix as nx
    >>> nx.set_strict_placement(True)
    >>> nx.is_strict_placement()
    True
    >>> nx.set_strict_placement(False)
    """
    _engine.set_strict_placement(strict)


def is_strict_placement() -> bool:
    """What ``set_strict_placement`` set.

    >>> import neurenix as nx
    >>> nx.is_strict_placement()
    False
    """
    return _engine.is_strict_placement()


def on_fallback(function: Callable[[Placement], Any] | None) -> Callable[[Placement], Any] | None:
    """Calls ``function`` for every step that is planned on another device than its own, once for each new plan; ``None``
    ends it. Gives the function that was set before. There is one for the process.

    It is called with a ``Placement`` (``step``, ``wanted``, ``device``, ``reason``) behind the computation, on the thread
    that asked for it, when nothing is locked: it may read and compute tensors, those of the computation too. What it
    raises comes out of the call that computed; the values are there all the same. Behind a computation that failed itself
    it goes to ``sys.unraisablehook``, and so does what it raises a second time behind one call.

    >>> import neurenix as nx
    >>> told = []
    >>> before = nx.on_fallback(told.append)
    >>> nx.ones(3, device="cpu").sum().item()  # The CPU does everything itself.
    3.0
    >>> nx.on_fallback(before) == told.append, told
    (True, [])
    """
    return _engine.on_fallback(function)
