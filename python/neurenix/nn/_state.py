"""Loading of module and optimiser states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _engine
from .._engine import Tensor


class IncompatibleKeys(NamedTuple):
    """The names that differ between a state and a module."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def as_value(given: Any) -> Tensor:
    """The values of a tensor of this library, or of another library through NumPy or DLPack."""
    if isinstance(given, Tensor):
        return given.detach()
    for step in ("detach", "cpu"):  # For PyTorch tensors: detached, from any device.
        given = getattr(given, step)() if hasattr(given, step) else given
    return _engine.tensor(given, device="cpu")


def fitting(
    own: Mapping[str, Tensor], state: Mapping[str, Any], strict: bool, module: str
) -> tuple[list[tuple[Tensor, Tensor]], IncompatibleKeys]:
    """Each place with its new value, computed, with its dtype and on its device; and the names that differ. Differing
    names are an error if ``strict``; differing shapes always are.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict: expected a dictionary of tensors by name, got {type(state).__name__}")
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    problems = []
    if strict and unexpected:
        problems.append("Unexpected key(s) in state_dict: " + ", ".join(map(repr, unexpected)) + ".")
    if strict and missing:
        problems.append("Missing key(s) in state_dict: " + ", ".join(map(repr, missing)) + ".")
    values = {name: as_value(state[name]) for name in own if name in state}
    for name, value in values.items():
        if tuple(value.shape) != tuple(own[name].shape):
            given, needed = tuple(value.shape), tuple(own[name].shape)
            problems.append(f"size mismatch for {name}: the state has shape {given}, the model has shape {needed}.")
    if problems:
        text = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in loading state_dict for {module}:\n\t{text}")
    values = {name: value.to(dtype=own[name].dtype, device=own[name].device) for name, value in values.items()}
    _engine.evaluate(list(values.values()))
    return [(own[name], value) for name, value in values.items()], IncompatibleKeys(missing, unexpected)
