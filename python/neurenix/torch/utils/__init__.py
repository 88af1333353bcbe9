"""Utilities: ``torch.utils``."""

from __future__ import annotations

import importlib
from typing import Any

from .._missing import message as _message

_PARTS = ("checkpoint", "data", "dlpack", "tensorboard")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(_message(f"torch.utils.{name}"))
