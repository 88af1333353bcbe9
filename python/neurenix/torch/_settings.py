"""Settings of PyTorch's namespace: most are hints that have no effect here, because the engine does not need them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import neurenix as nx

from .. import _engine

strided = "strided"
contiguous_format, preserve_format = "contiguous_format", "preserve_format"
channels_last, channels_last_3d = "channels_last", "channels_last_3d"
"""Layouts: the engine chooses them itself."""


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype, from a constructor such as ``FloatTensor`` or its name."""
    if isinstance(t, str):
        from . import _types

        t = getattr(_types, t.rpartition(".")[2])
    nx.set_default_dtype(t.dtype)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: every result is deterministic for a given device and number of processes."""


def are_deterministic_algorithms_enabled() -> bool:
    """True: every result is deterministic."""
    return True


def set_flush_denormal(mode: bool) -> bool:
    """False: subnormal numbers are kept."""
    return False


def set_num_interop_threads(threads: int) -> None:
    """Accepted: one evaluation runs at a time."""


def get_num_threads() -> int:
    """The number of threads for CPU computation."""
    return _threads if _threads is not None else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_threads: int | None = None


def set_num_threads(threads: int) -> None:
    """Sets the number of threads for CPU computation."""
    global _threads
    nx.set_num_threads(threads)
    _threads = threads


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """``model``, a function or a module, itself: the engine records and fuses every computation anyway.
    ``neurenix.compile`` also replays a function without running Python, under conditions that PyTorch does not make.
    """
    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    return decorated if model is None else model


__all__ = [
    "are_deterministic_algorithms_enabled", "channels_last", "channels_last_3d", "compile", "contiguous_format", "get_num_threads",
    "preserve_format", "set_default_tensor_type", "set_flush_denormal", "set_num_interop_threads", "set_num_threads", "strided",
    "use_deterministic_algorithms",
]  # fmt: skip
