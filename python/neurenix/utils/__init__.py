"""Utilities that are not about layers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# First: checkpoint and nn.utils need each other.
from .. import nn as _nn  # noqa: F401
from . import checkpoint as checkpoint
from . import dlpack as dlpack

if TYPE_CHECKING:
    from . import tensorboard as tensorboard

__all__ = ["checkpoint", "dlpack", "tensorboard"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: most programs write no event files.
    if name == "tensorboard":
        return importlib.import_module(f"{__name__}.tensorboard")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
