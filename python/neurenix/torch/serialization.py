"""``torch.serialization``: files. No code in a file is run, so no class in one is ever loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ._functions import load as load, save as save


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Has no effect: ``torch.load`` lists what it reads, and refuses objects of other classes."""


def get_safe_globals() -> list[Any]:
    """Empty."""
    return []


def clear_safe_globals() -> None:
    """Has no effect, as ``add_safe_globals``."""


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Has no effect, as ``add_safe_globals``."""
    yield
