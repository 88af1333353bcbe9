"""Python objects between processes, by pickle. Only use them among processes that you trust."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ._groups import group_or_world, place


def _gathered_at(own: bytes, root: int, group: ProcessGroup) -> list[bytes] | None:
    """The bytes of every rank, on one of them; None on the others."""
    lengths = [int(each) for each in group._all_gather_bytes(str(len(own)).encode())]
    with no_grad():
        if group.rank() != root:
            _engine.collective(_tensor(np.frombuffer(own, np.uint8)), "send", group, peer=root)
            return None
        found = []
        for rank, length in enumerate(lengths):
            if rank == root:
                found.append(own)
                continue
            room = _tensor(np.zeros(length, np.uint8))
            found.append(_engine.collective(room, "receive", group, peer=rank).numpy().tobytes())
        return found


def _tensor(values: Any) -> Tensor:
    return _engine.tensor(values, dtype="uint8", device="cpu")


def _of_root(obj: Any, root: int, group: ProcessGroup) -> Any:
    """The object of one rank, on all of them."""
    return pickle.loads(group._all_gather_bytes(pickle.dumps(obj) if group.rank() == root else b"")[root])


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Stores every rank's object in the list, which has as many entries as there are ranks."""
    group = group_or_world(group, "all_gather_object")
    if len(object_list) != group.size():
        raise ValueError(f"all_gather_object: the list must have {group.size()} entries")
    object_list[:] = [pickle.loads(part) for part in group._all_gather_bytes(pickle.dumps(obj))]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Stores every rank's object in the list of rank ``dst`` (0 by default). Objects travel to that rank only."""
    group = group_or_world(group, "gather_object")
    root = place(group.ranks[0] if dst is None and group_dst is None else dst, group_dst, group, "gather_object", "dst")
    parts = _gathered_at(pickle.dumps(obj), root, group)
    if parts is None:
        return
    if object_gather_list is None or len(object_gather_list) != group.size():
        raise ValueError(f"gather_object: rank dst must pass a list of {group.size()} entries")
    object_gather_list[:] = map(pickle.loads, parts)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Replaces the list's objects by those of rank ``src`` (0 by default)."""
    group = group_or_world(group, "broadcast_object_list")
    root = place(
        group.ranks[0] if src is None and group_src is None else src, group_src, group, "broadcast_object_list", "src"
    )
    found = _of_root(list(object_list), root, group)
    if len(found) != len(object_list):
        raise ValueError(f"broadcast_object_list: rank {root} has {len(found)} objects, not {len(object_list)}")
    object_list[:] = found


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Stores this rank's object of the list of rank ``src`` in the first entry of the output list."""
    group = group_or_world(group, "scatter_object_list")
    root = place(
        group.ranks[0] if src is None and group_src is None else src, group_src, group, "scatter_object_list", "src"
    )
    found = _of_root(scatter_object_input_list, root, group)
    if found is None or len(found) != group.size():
        raise ValueError(f"scatter_object_list: rank src must pass {group.size()} objects")
    scatter_object_output_list[0] = found[group.rank()]
