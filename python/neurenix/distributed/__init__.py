"""Training by several processes: PyTorch's ``torch.distributed``, on the engine's collectives.

A launcher starts the processes: ``neurenix launch``, ``torchrun``, ``mpirun`` or ``srun``. Each calls
:func:`init_process_group`, which reads what the launcher tells it. Without a launcher there is one process, and
everything works as if the group had one member.

>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> group = dist.init_process_group()
>>> dist.get_rank(), dist.get_world_size()
(0, 1)
>>> x = nx.tensor([1.0, 2.0])
>>> dist.all_reduce(x)
>>> x.tolist()
[1.0, 2.0]
>>> dist.destroy_process_group()

Collectives run when they are called, in the same order on every rank. Those of this module write their result into
their arguments and record no gradients, as in PyTorch; those of :mod:`neurenix.distributed.functional` return it, and
have gradients.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .._engine import ProcessGroup
from ._collectives import (
    ReduceOp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from ._groups import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)
from ._objects import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from .device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    from . import checkpoint as checkpoint, fsdp as fsdp, functional as functional, optim as optim
    from . import tensor_parallel as tensor_parallel

# Loaded on first use: they need the layers.
_MODULES = ("checkpoint", "fsdp", "functional", "optim", "tensor_parallel")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DeviceMesh",
    "GroupMember",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_device_mesh",
    "init_process_group",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]
