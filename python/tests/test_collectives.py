"""Collectives: which ranks get what, what is refused before anything travels, and groups."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest

CASES = [*((2, name) for name in ("gathered_objects",))]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


class Probe:
    """Notes on which ranks it is unpickled."""

    places: list[tuple[int, int]] = []

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.values = rank, nx.full((size,), float(rank))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Probe.places.append((self.rank, dist.get_rank()))


def gathered_objects() -> None:
    """Of different sizes, also empty ones, and only where they are wanted."""
    rank = dist.get_rank()
    found: list[Any] = [None, None]
    dist.gather_object(Probe(rank, 1 + 200_000 * rank), found if rank == 1 else None, dst=1)
    assert Probe.places == ([(0, 1), (1, 1)] if rank == 1 else [])
    if rank == 1:
        assert [each.values.shape for each in found] == [(1,), (200_001,)] and found[1].values.sum().item() == 200_001.0
    Probe.places.clear()
    box = [Probe(rank, 1)]
    dist.broadcast_object_list(box, src=0)
    assert box[0].rank == 0 and Probe.places == [(0, rank)]
