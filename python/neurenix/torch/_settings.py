"""Settings of PyTorch's namespace: most are hints that have no effect here, because the engine does not need them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import neurenix as nx

from .. import _engine
from ..func import vmap as vmap

strided = "strided"
contiguous_format, preserve_format = "contiguous_format", "preserve_format"
channels_last, channels_last_3d = "channels_last", "channels_last_3d"
legacy_contiguous_format = contiguous_format
"""Layouts: the engine chooses them itself."""
dtype = _engine.dtype
layout = memory_format = str
"""The types of dtypes, and of layouts."""
OutOfMemoryError = MemoryError
"""What is raised if a device or the system has no memory left."""


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype and device, from a constructor such as ``FloatTensor`` or its name, such as
    ``"torch.cuda.FloatTensor"``.
    """
    if isinstance(t, str):
        from . import _types, cuda

        module, _, name = t.rpartition(".")
        t = getattr(cuda if module == "torch.cuda" else _types, name)
    if not t.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    global _device_of_type
    if t.device is not None:
        nx.set_default_device(t.device)
        _device_of_type = nx.get_default_device()
    elif _device_of_type is not None:
        # A device of ``set_default_device`` stays.
        if nx.get_default_device() == _device_of_type:
            nx.set_default_device("cpu")
        _device_of_type = None
    nx.set_default_dtype(t.dtype)


_device_of_type: _engine.Device | None = None
"""The default device that ``set_default_tensor_type`` chose."""


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: the setting changes nothing, because there are no other algorithms to choose."""


def are_deterministic_algorithms_enabled() -> bool:
    """True: the setting changes nothing."""
    return True


def set_flush_denormal(mode: bool) -> bool:
    """False: subnormal numbers are kept."""
    return False


def set_num_interop_threads(threads: int) -> None:
    """Accepted: one evaluation runs at a time."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """The number of threads for CPU computation: that of ``set_num_threads`` or of the environment variable
    ``OMP_NUM_THREADS``, else one for each core.
    """
    return _threads if _threads is not None else _cores()


_threads: int | None = None


def set_num_threads(threads: int) -> None:
    """Sets the number of threads for CPU computation."""
    global _threads
    nx.set_num_threads(threads)
    _threads = threads


_given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
if _given.isdecimal() and int(_given) > 0:
    set_num_threads(min(int(_given), _cores()))


def get_num_interop_threads() -> int:
    """1: one evaluation runs at a time."""
    return 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Accepted: every result is deterministic."""


def get_deterministic_debug_mode() -> int:
    """2: every result is deterministic."""
    return 2


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False: every result is deterministic."""
    return False


def set_warn_always(b: bool) -> None:
    """Accepted: each warning is subject to Python's filters."""


def is_warn_always_enabled() -> bool:
    """False: each warning is subject to Python's filters."""
    return False


def initial_seed() -> int:
    """The seed of the random numbers; in a worker of a loader, the worker's own."""
    from ..data import get_worker_info

    worker = get_worker_info()
    return int(nx.get_rng_state()[0]) if worker is None else worker.seed


def seed() -> int:
    """Sets a seed from the system's source of randomness, and returns it."""
    chosen = int.from_bytes(os.urandom(8), "little")
    nx.manual_seed(chosen)
    return chosen


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether this thread is within ``autocast``."""
    return _engine.autocast_dtype() is not None


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of ``autocast`` here, or the one that it has by default."""
    chosen = _engine.autocast_dtype()
    return (nx.bfloat16 if device_type == "cpu" else nx.float16) if chosen is None else _engine.dtype(chosen)


def get_autocast_gpu_dtype() -> Any:
    """``get_autocast_dtype`` of GPUs."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> Any:
    """``get_autocast_dtype`` of the CPU."""
    return get_autocast_dtype("cpu")


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
    "OutOfMemoryError", "are_deterministic_algorithms_enabled", "channels_last", "channels_last_3d", "compile",
    "contiguous_format", "dtype", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "get_deterministic_debug_mode", "get_num_interop_threads", "get_num_threads", "initial_seed", "is_autocast_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled", "layout", "legacy_contiguous_format",
    "memory_format", "preserve_format", "seed", "set_default_tensor_type", "set_deterministic_debug_mode",
    "set_flush_denormal", "set_num_interop_threads", "set_num_threads", "set_warn_always", "strided",
    "use_deterministic_algorithms", "vmap",
]  # fmt: skip
