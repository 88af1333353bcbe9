"""cuDNN is not used. ``allow_tf32`` has an effect; ``benchmark`` and the others are hints."""

from __future__ import annotations

from typing import Any

from ._settings import flags as _flags
from ._settings import has as _has
from ._settings import with_precision as _with_precision

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = True


def is_available() -> bool:
    """Whether there is an NVIDIA GPU."""
    return _has("cuda")


def version() -> None:
    """None: cuDNN is not used."""


def flags(**settings: Any) -> _flags:
    """A context manager that changes these settings for a while."""
    return _flags(__name__, settings)


_with_precision(__name__)
