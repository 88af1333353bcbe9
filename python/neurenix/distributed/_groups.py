"""Process groups."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

from .. import _engine
from .._engine import ProcessGroup


class GroupMember:
    """Names of groups: the job's (``WORLD``), and what :func:`new_group` gives to ranks that are not in the group."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


# What new_group has made, to close it with the job's group.
_made: list[ProcessGroup] = []
# The job's timeout in seconds.
_job_timeout = [1800.0]


def is_available() -> bool:
    """Whether this package has process groups. It does."""
    return True


def is_initialized() -> bool:
    """Whether :func:`init_process_group` was called."""
    return GroupMember.WORLD is not None


def is_mpi_available() -> bool:
    """Whether an MPI library is found."""
    return _engine.has_mpi()


def is_gloo_available() -> bool:
    """Whether processes can be connected by sockets, as PyTorch's Gloo does. They can."""
    return True


def is_nccl_available() -> bool:
    """Whether NCCL is found, which carries the tensors of NVIDIA GPUs."""
    return _engine.has_nccl()


def is_torchelastic_launched() -> bool:
    """Whether ``torchrun`` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    **others: Any,
) -> ProcessGroup:
    """Connects the processes of the job, and returns the group of all.

    ``backend`` is what carries bytes on the host: ``"mpi"``, or ``"tcp"``, which PyTorch calls ``"gloo"``. The default,
    and ``"nccl"``, is MPI if its launcher started this process and otherwise TCP. Tensors on NVIDIA GPUs always travel
    by NCCL if it is found. ``init_method`` may be ``"env://"`` (the default: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``
    and ``MASTER_PORT``, or the variables of mpirun and SLURM) or ``"tcp://HOST:PORT"``. A rank that waits longer than
    ``timeout`` (a ``timedelta`` or seconds; 30 minutes) for another one raises ``RuntimeError``.
    """
    if is_initialized():
        raise RuntimeError("the process group is initialised already: call destroy_process_group() first")
    unknown = set(others) - {"device_id", "group_name", "pg_options", "store"}
    if unknown:
        raise TypeError(f"init_process_group: unknown argument {min(unknown)!r}")
    if others.get("store") is not None:
        raise NotImplementedError("init_process_group: store: pass init_method='tcp://HOST:PORT'")
    kind = _host_backend(backend, "init_process_group")
    address, port = None, None
    if init_method not in (None, "env://"):
        url = urlparse(str(init_method))
        if url.scheme != "tcp" or url.hostname is None or url.port is None:
            raise ValueError(f"init_process_group: init_method must be 'env://' or 'tcp://HOST:PORT', not {init_method!r}")
        address, port = url.hostname, url.port
    seconds = _seconds(timeout)
    GroupMember.WORLD = _engine.init_world(
        backend=kind,
        timeout=seconds,
        rank=None if rank < 0 else rank,
        world_size=None if world_size < 0 else world_size,
        master_addr=address,
        master_port=port,
    )
    _job_timeout[0] = 1800.0 if seconds is None else seconds
    # A process that ends without leaving looks as if it had failed, and the others would stop.
    atexit.unregister(destroy_process_group)
    atexit.register(destroy_process_group)
    return GroupMember.WORLD


def _host_backend(backend: str | None, caller: str) -> str | None:
    """What PyTorch's names of backends say about the host, if anything."""
    kinds = {name.rsplit(":", 1)[-1] for name in (backend or "").lower().split(",")} - {"nccl", ""}
    if len(kinds) > 1:
        raise ValueError(f"{caller}: the host has one backend, not {backend!r}: pass 'mpi' or 'gloo'")
    return min(kinds) if kinds else None


def _seconds(timeout: timedelta | float | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Closes a group; without an argument all of them, and the connections. The end of the process does so, too."""
    if group is not None and group is not GroupMember.WORLD:
        group._close()
        return
    if GroupMember.WORLD is not None:
        GroupMember.WORLD = None
        for made in _made:
            made._close()
        _made.clear()
        _engine.end_world()


def group_or_world(group: Any, caller: str) -> ProcessGroup:
    """The group that an argument means."""
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"{caller}: this process is not in the group")
    if group is None:
        if GroupMember.WORLD is None:
            raise ValueError(f"{caller}: call init_process_group() first")
        return GroupMember.WORLD
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{caller}: group must be a ProcessGroup, not {type(group).__name__}")
    return group


# What launchers call the number of processes.
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def group_unless_alone(group: Any, caller: str) -> ProcessGroup | None:
    """As :func:`group_or_world`, but None without :func:`init_process_group` if no launcher has started other
    processes.
    """
    if group is None and GroupMember.WORLD is None and all(os.environ.get(name, "1") == "1" for name in _SIZES):
        return None
    return group_or_world(group, caller)


def place(rank: int | None, group_rank: int | None, group: ProcessGroup, caller: str, name: str) -> int:
    """A rank's number in the group, given its rank in the job or in the group."""
    if (rank is None) == (group_rank is None):
        raise ValueError(f"{caller}: pass {name} or group_{name}")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{caller}: the group has no rank {group_rank}: use 0 to {group.size() - 1}")
        return group_rank
    if rank not in group.ranks:
        raise ValueError(f"{caller}: rank {rank} is not in the group, which has {group.ranks}")
    return group.ranks.index(rank)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks of the job (all by default), in ascending order, or with ``sort_ranks=False`` in that of
    the list. Ranks that are not in it get ``GroupMember.NON_GROUP_MEMBER``.

    It has the job's backend and timeout: another ``backend`` or ``timeout`` is an error. ``pg_options``,
    ``use_local_synchronization``, ``group_desc`` and ``device_id`` are accepted and change nothing.
    """
    world = group_or_world(None, "new_group")
    kind = _host_backend(backend, "new_group")
    if kind not in (None, world.name(), "gloo" if world.name() == "tcp" else None):
        raise NotImplementedError(f"new_group: backend: the job's is {world.name()!r}, and groups have no other one")
    if timeout is not None and _seconds(timeout) != _job_timeout[0]:
        raise NotImplementedError("new_group: timeout: pass it to init_process_group(), groups have no other one")
    chosen = list(range(world.size())) if ranks is None else [int(rank) for rank in ranks]
    group = world._subgroup(sorted(chosen) if sort_ranks else chosen)
    if group is None:
        return GroupMember.NON_GROUP_MEMBER
    _made.append(group)
    return group


def get_rank(group: Any = None) -> int:
    """This process's rank in the group, or -1 if it is not in it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else group_or_world(group, "get_rank").rank()


def get_world_size(group: Any = None) -> int:
    """The number of the group's members, or -1 if this process is not in it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else group_or_world(group, "get_world_size").size()


def get_backend(group: Any = None) -> str:
    """What carries bytes between the members on the host: ``"tcp"`` or ``"mpi"``."""
    return group_or_world(group, "get_backend").name()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The members' ranks in the job."""
    return group_or_world(group, "get_process_group_ranks").ranks


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in the group of a rank of the job."""
    return place(global_rank, None, group_or_world(group, "get_group_rank"), "get_group_rank", "global_rank")


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the job of a member of the group."""
    return group_or_world(group, "get_global_rank").ranks[group_rank]
