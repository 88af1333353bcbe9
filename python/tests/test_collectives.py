"""Collectives: which ranks get what, what is refused before anything travels, and groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest

CASES = [
    *((2, name) for name in ("gathered_objects", "refused_before_anything_travels", "arguments_of_groups")),
    (2, "results_in_views"),
    (4, "meshes_of_several_axes"),
]


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


def refused_before_anything_travels() -> None:
    """A rank that does not take part would otherwise wait."""
    whole = nx.tensor([1, 2])
    if dist.get_rank() == 0:
        for call in (
            lambda: dist.all_reduce(whole, dist.ReduceOp.AVG),
            lambda: dist.reduce(whole, 0, dist.ReduceOp.AVG),
            lambda: dist.reduce_scatter_tensor(nx.tensor([0]), whole, dist.ReduceOp.AVG),
        ):
            with pytest.raises(TypeError, match="mean of int64 numbers"):
                call()
        for wrong in (nx.ones(2, dtype=nx.int32), nx.ones(3)):
            with pytest.raises(ValueError, match="receive 2 elements of float32"):
                dist.scatter(nx.zeros(2), [wrong, wrong], 0)
    dist.all_reduce(whole)
    assert whole.tolist() == [2, 4]


def arguments_of_groups() -> None:
    rank = dist.get_rank()
    group, as_given = dist.new_group([1, 0]), dist.new_group([1, 0], sort_ranks=False)
    assert (group.ranks, dist.get_rank(group)) == ([0, 1], rank)
    assert (as_given.ranks, dist.get_rank(as_given)) == ([1, 0], 1 - rank)
    # That of the job: see on_ranks.py.
    dist.new_group(timeout=timedelta(seconds=60), backend="cpu:gloo,cuda:nccl")
    for wrong in ({"timeout": 1.0}, {"timeout": timedelta(minutes=5)}, {"backend": "mpi"}):
        with pytest.raises(NotImplementedError, match=next(iter(wrong))):
            dist.new_group([0, 1], **wrong)


def meshes_of_several_axes() -> None:
    rank = dist.get_rank()
    mesh = dist.init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("data", "pipeline", "tensor"))
    part = mesh["data", "pipeline"]
    assert part.mesh.tolist() == [[rank % 2], [rank % 2 + 2]] and part.mesh_dim_names == ("data", "pipeline")
    assert part.get_coordinate() == [rank // 2, 0] and part.get_group("data") is mesh.get_group("data")
    swapped = mesh["pipeline", "data"]
    assert swapped.mesh.tolist() == [[rank % 2, rank % 2 + 2]] and swapped.get_coordinate() == [0, rank // 2]
    assert swapped["data"].mesh.tolist() == [rank % 2, rank % 2 + 2]
    assert mesh["tensor", "data", "pipeline"].mesh.tolist() == [[[0], [2]], [[1], [3]]]
    for wrong in (("data", "data"), (0, 1), "depth", ("data", "depth")):
        with pytest.raises(KeyError, match="DeviceMesh"):
            mesh[wrong]


def results_in_views() -> None:
    """Collectives write through views, as every operation in place does."""
    rank = dist.get_rank()
    x = nx.ones(2, 2)
    dist.all_reduce(x[0])
    assert x.tolist() == [[2.0, 2.0], [1.0, 1.0]]
    rows = nx.zeros(2, 2)
    dist.all_gather(list(rows.unbind()), nx.full((2,), float(rank + 1)))
    assert rows.tolist() == [[1.0, 1.0], [2.0, 2.0]]
    weight = nx.nn.Parameter(nx.full((2,), float(rank + 5)))
    dist.broadcast(weight.data, 0)
    assert weight.tolist() == [5.0, 5.0] and weight.requires_grad
    dist.all_reduce(weight.detach())
    assert weight.tolist() == [10.0, 10.0]
