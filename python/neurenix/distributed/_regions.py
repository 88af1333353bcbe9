"""Changes of how a tensor is divided among the ranks of a tensor-parallel group, with the gradients of one loss.

In tensor parallelism all ranks compute the same loss. A tensor that every rank has in full has the whole gradient on
every rank; a tensor that is divided has on each rank the gradient of its part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from . import functional
from ._gradient import with_gradient
from ._groups import group_or_world


def part_of(size: int, group: ProcessGroup) -> tuple[int, int]:
    """The first index and the number of indices that this rank has of a dimension: as ``chunk`` divides, all parts but
    the last ones are equal.
    """
    length = math.ceil(size / group.size())
    first = min(group.rank() * length, size)
    return first, min(first + length, size) - first


def _along(dim: int, tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Collectives divide and join along the first dimension."""
    if dim % tensor.ndim == 0:
        return function(tensor)
    return function(tensor.movedim(dim, 0)).movedim(0, dim)


def _joined(tensor: Tensor, dim: int, size: int, group: ProcessGroup) -> Tensor:
    """The ranks' parts, joined to a dimension of this size."""
    length = math.ceil(size / group.size())
    fill = length - tensor.shape[dim]

    def join(rows: Tensor) -> Tensor:
        if fill:
            zeros = _engine.zeros((fill, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
            rows = _engine.cat([rows, zeros], 0)
        # Only the last parts are filled up, so what is too much is at the end.
        return functional.all_gather(rows, group).narrow(0, 0, size)

    return _along(dim, tensor, join)


def own_part(tensor: Tensor, dim: int, group: ProcessGroup) -> Tensor:
    """This rank's part of a tensor that every rank has. The gradients of all parts come back together."""
    if group.size() == 1:
        return tensor
    size = tensor.shape[dim]
    first, length = part_of(size, group)
    with no_grad():
        part = tensor.detach().narrow(dim, first, length)
    return with_gradient(part, tensor, lambda gradient: _joined(gradient, dim, size, group))


def whole(tensor: Tensor, dim: int, group: ProcessGroup, size: int | None = None) -> Tensor:
    """The ranks' parts of a tensor, joined, for ranks that go on with the same computation. The gradient is that of
    this rank's part. ``size`` is that of the dimension, by default a multiple of this rank's.
    """
    if group.size() == 1:
        return tensor
    total = tensor.shape[dim] * group.size() if size is None else size
    first, length = part_of(total, group)
    with no_grad():
        joined = _joined(tensor.detach(), dim, total, group)
    return with_gradient(joined, tensor, lambda gradient: gradient.narrow(dim, first, length))


def _check_divisible(tensor: Tensor, dim: int, group: ProcessGroup, caller: str) -> None:
    if tensor.shape[dim] % group.size():
        raise ValueError(
            f"{caller}: dimension {dim} of shape {tuple(tensor.shape)} cannot be divided among {group.size()} ranks"
        )


def scatter_to_sequence(input: Tensor, dim: int = 1, group: Any = None, shared: bool = False) -> Tensor:
    """Divides the positions of a sequence (N, L, ...) among the ranks: (N, L / ranks, ...). Each rank has a summand, of
    whose sum it gets its part; with ``shared`` every rank has the same tensor. The gradient is that of all parts,
    joined.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> from neurenix.distributed.tensor_parallel import gather_from_sequence, scatter_to_sequence
    >>> _ = dist.init_process_group()
    >>> part = scatter_to_sequence(nx.ones(2, 4, 3))
    >>> part.shape, gather_from_sequence(part).shape
    (torch.Size([2, 4, 3]), torch.Size([2, 4, 3]))
    >>> dist.destroy_process_group()
    """
    group = group_or_world(group, "scatter_to_sequence")
    _check_divisible(input, dim, group, "scatter_to_sequence")
    if shared or group.size() == 1:
        return own_part(input, dim, group)
    return _along(dim, input, lambda rows: functional.reduce_scatter(rows, group=group))


def gather_from_sequence(input: Tensor, dim: int = 1, group: Any = None, shared: bool = False) -> Tensor:
    """Joins the positions that the ranks have of a sequence: (N, L / ranks, ...) to (N, L, ...). Each rank then
    computes a part of what follows, and the gradient is the sum over the ranks; with ``shared`` every rank computes the
    same, and the gradient is that of this rank's part.
    """
    group = group_or_world(group, "gather_from_sequence")
    if shared or group.size() == 1:
        return whole(input, dim, group)
    return _along(dim, input, lambda rows: functional.all_gather(rows, group))
