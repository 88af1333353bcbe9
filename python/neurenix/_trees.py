"""Nested lists, tuples and dictionaries of values, as the arguments and results of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# A value that is no container.
LEAF = ("leaf",)


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The values in order, and their structure."""
    values: list[Any] = []
    return values, _structure(value, values)


def _structure(value: Any, values: list[Any]) -> Any:
    if isinstance(value, dict):
        return ("dict", type(value), tuple((key, _structure(each, values)) for key, each in value.items()))
    if isinstance(value, (list, tuple)) and type(value).__iter__ in (list.__iter__, tuple.__iter__):
        return ("sequence", type(value), tuple(_structure(each, values) for each in value))
    values.append(value)
    return LEAF


def unflatten(structure: Any, values: list[Any]) -> Any:
    """Undoes :func:`flatten`."""
    rest = iter(values)
    return _built(structure, rest)


def _built(structure: Any, values: Any) -> Any:
    kind = structure[0]
    if kind == "leaf":
        return next(values)
    if kind == "dict":
        built = {key: _built(each, values) for key, each in structure[2]}
        return built if structure[1] is dict else structure[1](built)
    parts = [_built(each, values) for each in structure[2]]
    return structure[1](*parts) if hasattr(structure[1], "_fields") else structure[1](parts)


def map_values(function: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with other values."""
    values, structure = flatten(value)
    return unflatten(structure, [function(each) for each in values])


def spread(prefix: Any, structure: Any) -> list[Any] | None:
    """A value for each leaf of a structure: a single value stands for a whole part. ``None`` if they do not fit."""
    found: list[Any] = []
    return found if _spread(prefix, structure, found) else None


def _count(structure: Any) -> int:
    if structure[0] == "leaf":
        return 1
    parts = (each for _, each in structure[2]) if structure[0] == "dict" else structure[2]
    return sum(_count(each) for each in parts)


def _spread(prefix: Any, structure: Any, found: list[Any]) -> bool:
    if prefix is None or isinstance(prefix, int):
        found += [prefix] * _count(structure)
        return True
    if structure[0] == "dict":
        keys = [key for key, _ in structure[2]]
        fits = isinstance(prefix, dict) and set(prefix) == set(keys)
        return fits and all(_spread(prefix[key], each, found) for key, each in structure[2])
    if structure[0] == "sequence":
        fits = isinstance(prefix, (list, tuple)) and len(prefix) == len(structure[2])
        return fits and all(_spread(one, each, found) for one, each in zip(prefix, structure[2]))
    return False
