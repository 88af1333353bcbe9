"""Python's ``multiprocessing``: tensors are copied between processes. ``spawn`` starts a function in several."""

from __future__ import annotations

import multiprocessing as _multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted: tensors are copied."""


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> list[Any] | None:
    """Calls ``fn(rank, *args)`` in ``nprocs`` processes. If one fails, the others are stopped, and a ``RuntimeError`` says
    which. Without ``join`` the processes are returned.
    """
    context: Any = _multiprocessing.get_context(start_method)
    processes: list[Any] = [context.Process(target=fn, args=(rank, *args), daemon=daemon) for rank in range(nprocs)]
    for process in processes:
        process.start()
    if not join:
        return processes
    from multiprocessing.connection import wait

    running = {process.sentinel: rank for rank, process in enumerate(processes)}
    while running:
        for sentinel in wait(list(running)):
            rank = running.pop(sentinel)
            processes[rank].join()
            if processes[rank].exitcode:
                for process in processes:
                    process.terminate()
                raise RuntimeError(f"process {rank} ended with exit code {processes[rank].exitcode}")
    return None
