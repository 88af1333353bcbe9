"""Functions run as they are: the engine records and fuses every computation anyway. Nothing is compiled from Python's
source, so there are no script files.
"""

from __future__ import annotations

from typing import Any, TypeVar

Given = TypeVar("Given")


def script(obj: Given, *args: Any, **kwargs: Any) -> Given:
    """The function, class or module itself."""
    return obj


def trace(func: Given, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Given:
    """The function or module itself."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with or without parentheses."""
    return drop if callable(drop) else lambda function: function


def unused(fn: Given) -> Given:
    """The function itself."""
    return fn


export = unused


def is_scripting() -> bool:
    """False: Python runs."""
    return False


is_tracing = is_scripting
