"""What functions save for their gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .._engine import Tensor

__all__ = ["saved_tensors_hooks"]

_Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


class _Current(threading.local):
    def __init__(self) -> None:
        self.hooks: list[_Hooks] = []


current = _Current()
"""The hooks of this thread, the outermost first."""


class saved_tensors_hooks:
    """Within this context, what :meth:`FunctionCtx.save_for_backward` saves is ``pack_hook(tensor)``, and
    ``saved_tensors`` gives ``unpack_hook`` of it.

    That applies to classes derived from ``Function``. The engine decides itself which values of its own operations it
    keeps or computes again; see ``neurenix.utils.checkpoint`` for less memory.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self._hooks = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        current.hooks.append(self._hooks)

    def __exit__(self, *error: Any) -> None:
        current.hooks.pop()
