"""``torch.compiler``: ``torch.compile`` returns what it is given, so there is nothing to configure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._settings import compile as compile


def is_compiling() -> bool:
    """False: programs take the way that runs without a compiler."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """``fn`` itself, or a decorator that returns its function."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


assume_constant_result = allow_in_graph


def reset() -> None:
    """Has no effect: nothing is compiled."""


def cudagraph_mark_step_begin() -> None:
    """Has no effect: there are no CUDA graphs."""
