"""What PyTorch's older programs call: names before the underscore was added, and arguments before ``reduction``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """The ``reduction`` that two older arguments mean, with PyTorch's warning."""
    wanted = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(f"size_average and reduce are deprecated: pass reduction={wanted!r}", UserWarning, stacklevel=3)
    return wanted


def with_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Accepts ``size_average`` and ``reduce``, by name, beside ``reduction``."""

    @functools.wraps(function)
    def called(*args: Any, size_average: bool | None = None, reduce: bool | None = None, **kwargs: Any) -> Any:
        if size_average is not None or reduce is not None:
            kwargs["reduction"] = reduction_of(size_average, reduce)
        return function(*args, **kwargs)

    return called


def renamed(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """``function`` under its older name, which has no underscore at the end."""
    new = function.__name__
    old = new.removesuffix("_")

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{module}.{old} is deprecated: use {module}.{new}", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    called.__name__ = called.__qualname__ = old
    return called
