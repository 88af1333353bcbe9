"""Values of module and optimiser states."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _engine
from .._complex import tensor as new_tensor
from .._engine import Tensor


class IncompatibleKeys(NamedTuple):
    """The names that differ between a state and a module."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def as_value(given: Any) -> Tensor:
    """The values of a tensor of this library, or of another library through NumPy or DLPack."""
    if isinstance(given, Tensor):
        return given.detach()
    for step in ("detach", "cpu"):  # For PyTorch tensors: detached, from any device.
        given = getattr(given, step)() if hasattr(given, step) else given
    return new_tensor(given, device="cpu")
