"""Parameters of which the ranks of a group have different parts: what looks at all gradients adds up the ranks."""

from __future__ import annotations

from collections.abc import Iterable

from .. import _engine
from .._engine import ProcessGroup, Tensor
from ._shard import Part


def split_over(parameter: Tensor, *groups: ProcessGroup) -> None:
    """Notes that the ranks of these groups have different parts of a parameter."""
    setattr(parameter, "_split_over", groups)


def groups_of(parameter: Tensor) -> tuple[ProcessGroup, ...]:
    """The groups whose ranks have different parts of a parameter."""
    groups: tuple[ProcessGroup, ...] = getattr(parameter, "_split_over", ())
    return groups


def hold(parameter: Tensor, part: Part) -> None:
    """Notes which part of the network's parameter this rank has."""
    setattr(parameter, "_part", part)


def held(parameter: Tensor) -> Part:
    """Which part of the network's parameter this rank has."""
    part: Part | None = getattr(parameter, "_part", None)
    return Part(tuple(parameter.shape)) if part is None else part


def over_all_parts(value: Tensor, parameter: Tensor, op: str) -> Tensor:
    """A number that was computed from this rank's part of a parameter, combined with those of the other parts."""
    for group in groups_of(parameter):
        if group.size() > 1:
            value = _engine.collective(value, "all_reduce", group, op=op)
    return value


def by_groups(parameters: Iterable[Tensor]) -> list[list[int]]:
    """The places of parameters that are split over the same groups, together. The order is the same on all ranks."""
    found: list[tuple[tuple[ProcessGroup, ...], list[int]]] = []
    for place, parameter in enumerate(parameters):
        groups = groups_of(parameter)
        for known, places in found:
            if len(known) == len(groups) and all(a is b for a, b in zip(known, groups)):
                places.append(place)
                break
        else:
            found.append((groups, [place]))
    return [places for _, places in found]
