"""Settings that are attributes of modules."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import neurenix as nx


class Precision:
    """``allow_tf32`` is the setting of ``set_float32_matmul_precision``."""

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be rounded to TF32."""
        return nx.get_float32_matmul_precision() == "high"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        nx.set_float32_matmul_precision("high" if allowed else "highest")

    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False
    """False: sums are in float32."""


class _Module(ModuleType, Precision):
    """A module with such settings."""


def with_precision(name: str) -> None:
    """Gives a module the attribute ``allow_tf32``."""
    sys.modules[name].__class__ = _Module


def has(kind: str) -> bool:
    """Whether there is a device of a kind."""
    return any(device.type == kind for device in nx.devices())


class flags:
    """A context manager that changes attributes of a module for a while."""

    def __init__(self, module: str, settings: dict[str, Any]) -> None:
        self._module, self._settings = sys.modules[module], settings

    def __enter__(self) -> None:
        self._before = {name: getattr(self._module, name) for name in self._settings}
        for name, value in self._settings.items():
            setattr(self._module, name, value)

    def __exit__(self, *error: object) -> None:
        for name, value in self._before.items():
            setattr(self._module, name, value)
