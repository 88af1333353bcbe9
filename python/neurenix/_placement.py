"""Handling of steps that a device refuses or fails to compute: run on the CPU, reported to a callback, or errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _engine
from ._engine import Placement

__all__ = [
    "Placement",
    "is_recovery",
    "is_strict_placement",
    "on_fallback",
    "set_recovery",
    "set_strict_placement",
]


def set_strict_placement(strict: bool) -> None:
    """With ``True``, a step without a kernel on its device is a ``RuntimeError``. With ``False``, the default, it is
    planned on the CPU. The setting applies to the whole process, from the next computation on.

    >>> import neurenix as nx
    >>> nx.set_strict_placement(True)
    >>> nx.is_strict_placement()
    True
    >>> nx.set_strict_placement(False)
    """
    _engine.set_strict_placement(strict)


def is_strict_placement() -> bool:
    """Whether placement is strict: see ``set_strict_placement``.

    >>> import neurenix as nx
    >>> nx.is_strict_placement()
    False
    """
    return _engine.is_strict_placement()


def set_recovery(on: bool) -> None:
    """With ``True``, the CPU computes what a device fails to compute, because it is out of memory, was lost, or fails to
    compile or launch a kernel; ``on_fallback`` is told. With ``False``, the default, such a failure is an error, and so
    it is in strict mode. The setting applies to the whole process. Calls of a backend of ``nx.hardware`` always
    recover.

    The operands must be readable: a lost device can be helped only if they are in host memory. A computation that has
    begun to store its results over its operands, such as an optimiser's step, is not repeated: its failure is an error.

    >>> import neurenix as nx
    >>> nx.set_recovery(True)
    >>> nx.is_recovery()
    True
    >>> nx.set_recovery(False)
    """
    _engine.set_recovery(on)


def is_recovery() -> bool:
    """Whether computations of this thread recover: see ``set_recovery``.

    >>> import neurenix as nx
    >>> nx.is_recovery()
    False
    """
    return _engine.is_recovery()


def on_fallback(function: Callable[[Placement], Any] | None) -> Callable[[Placement], Any] | None:
    """Calls ``function`` for every step that is planned on another device than its own, once for each new plan;
    ``None`` removes it. Returns the previous function. The setting applies to the whole process.

    ``function`` is called with a ``Placement`` (``step``, ``wanted``, ``device``, ``reason``) after the computation, on
    the thread that requested it, with no lock held: it may read and compute tensors, including those of the
    computation. If it raises an exception, the call that triggered the computation raises it; the values are still
    available. If the computation itself failed, the exception goes to ``sys.unraisablehook``, and so does a second
    exception after one call.

    >>> import neurenix as nx
    >>> told = []
    >>> before = nx.on_fallback(told.append)
    >>> nx.ones(3, device="cpu").sum().item()  # The CPU never falls back.
    3.0
    >>> nx.on_fallback(before) == told.append, told
    (True, [])
    """
    return _engine.on_fallback(function)
