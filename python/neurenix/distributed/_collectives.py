"""Collectives that write into their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ._groups import group_or_world, place


class ReduceOp:
    """How elements are combined."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"


class Work:
    """What ``async_op=True`` returns. Collectives run when they are called, and a GPU goes on by itself, so there is
    nothing to wait for.
    """

    def wait(self, timeout: Any = None) -> bool:
        """Returns True."""
        return True

    def is_completed(self) -> bool:
        """Returns True."""
        return True


def _done(async_op: bool) -> Work | None:
    return Work() if async_op else None


def _reduction(op: str, caller: str) -> tuple[str, bool]:
    """The engine's name of a reduction, and whether its result is divided by the number of ranks."""
    if op == ReduceOp.AVG:
        return "sum", True
    if op not in ("sum", "product", "min", "max"):
        raise ValueError(f"{caller}: op must be one of ReduceOp, not {op!r}")
    return op, False


def _check_mean(tensor: Tensor, op: str, caller: str) -> None:
    """Before anything travels: the result could not be stored."""
    if op == ReduceOp.AVG and not tensor.is_floating_point():
        raise TypeError(f"{caller}: the mean of {tensor.dtype.name} numbers is not one: convert the tensor, or use SUM")


def combined(kind: str, tensor: Tensor, op: str, group: ProcessGroup, caller: str) -> Tensor:
    """A collective that combines elements."""
    name, mean = _reduction(op, caller)
    result = _engine.collective(tensor, kind, group, op=name)
    return result / group.size() if mean else result


def joined(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The ranks' tensors, joined along the first dimension: for a scalar, a vector."""
    return _engine.collective(tensor if tensor.dim() else tensor.reshape(1), "all_gather", group)


def _store(target: Tensor, value: Tensor, caller: str) -> None:
    if target.numel() != value.numel():
        raise ValueError(f"{caller}: {tuple(value.shape)} elements do not fit a tensor of shape {tuple(target.shape)}")
    _engine.store_result(target, value)


def _check_list(tensors: Sequence[Tensor] | None, group: ProcessGroup, caller: str) -> Sequence[Tensor]:
    if tensors is None or len(tensors) != group.size():
        raise ValueError(f"{caller}: pass a list of {group.size()} tensors, one for each rank")
    return tensors


def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Replaces the tensor by its combination over all ranks."""
    group = group_or_world(group, "all_reduce")
    _check_mean(tensor, op, "all_reduce")
    with no_grad():
        _store(tensor, combined("all_reduce", tensor, op, group, "all_reduce"), "all_reduce")
    return _done(async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """As :func:`all_reduce`, but only rank ``dst`` gets the result. The others keep their tensors."""
    group = group_or_world(group, "reduce")
    root = place(dst, group_dst, group, "reduce", "dst")
    _check_mean(tensor, op, "reduce")
    with no_grad():
        result = combined("all_reduce", tensor, op, group, "reduce")
        if group.rank() == root:
            _store(tensor, result, "reduce")
    return _done(async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Gives every rank the tensor of rank ``src``."""
    group = group_or_world(group, "broadcast")
    root = place(src, group_src, group, "broadcast", "src")
    with no_grad():
        _store(tensor, _engine.collective(tensor, "broadcast", group, peer=root), "broadcast")
    return _done(async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Stores the ranks' tensors, all of one shape, in the tensors of the list."""
    group = group_or_world(group, "all_gather")
    _check_list(tensor_list, group, "all_gather")
    with no_grad():
        for target, part in zip(tensor_list, joined(tensor, group).chunk(group.size()), strict=True):
            _store(target, part, "all_gather")
    return _done(async_op)


def all_gather_into_tensor(output: Tensor, input: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Stores the ranks' tensors in one tensor: joined along the first dimension, or stacked."""
    group = group_or_world(group, "all_gather_into_tensor")
    with no_grad():
        _store(output, joined(input, group), "all_gather_into_tensor")
    return _done(async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Stores the ranks' tensors in the list of rank ``dst`` (0 by default)."""
    group = group_or_world(group, "gather")
    root = place(group.ranks[0] if dst is None and group_dst is None else dst, group_dst, group, "gather", "dst")
    if group.rank() == root:
        _check_list(gather_list, group, "gather")
    elif gather_list:
        raise ValueError("gather: only rank dst passes gather_list")
    with no_grad():
        parts = joined(tensor, group).chunk(group.size())
        for target, part in zip(gather_list or [], parts, strict=False):
            _store(target, part, "gather")
    return _done(async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combines the ranks' tensors, and stores the part of this rank's number, along the first dimension."""
    group = group_or_world(group, "reduce_scatter_tensor")
    _check_mean(input, op, "reduce_scatter_tensor")
    with no_grad():
        _store(output, combined("reduce_scatter", input, op, group, "reduce_scatter_tensor"), "reduce_scatter_tensor")
    return _done(async_op)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """As :func:`reduce_scatter_tensor`, with the parts in a list."""
    group = group_or_world(group, "reduce_scatter")
    parts = [part.reshape(1, -1) for part in _check_list(input_list, group, "reduce_scatter")]
    return reduce_scatter_tensor(output, _engine.cat(parts, 0), op, group, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Part ``i`` of the input, along the first dimension, goes to rank ``i``; part ``j`` of the output is from rank ``j``.
    The parts are equal.
    """
    group = group_or_world(group, "all_to_all_single")
    for sizes in (output_split_sizes, input_split_sizes):
        if sizes and len(set(sizes)) > 1:
            raise NotImplementedError("all_to_all_single: parts of different sizes: pad them")
    with no_grad():
        _store(output, _engine.collective(input, "all_to_all", group), "all_to_all_single")
    return _done(async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Sends each rank a tensor of a list, and stores what arrives in another list. All are of one shape."""
    group = group_or_world(group, "all_to_all")
    parts = [part.reshape(1, -1) for part in _check_list(input_tensor_list, group, "all_to_all")]
    _check_list(output_tensor_list, group, "all_to_all")
    with no_grad():
        arrived = _engine.collective(_engine.cat(parts, 0), "all_to_all", group)
        for target, part in zip(output_tensor_list, arrived.chunk(group.size()), strict=True):
            _store(target, part, "all_to_all")
    return _done(async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Gives each rank a tensor of the list of rank ``src`` (0 by default)."""
    group = group_or_world(group, "scatter")
    root = place(group.ranks[0] if src is None and group_src is None else src, group_src, group, "scatter", "src")
    with no_grad():
        if group.rank() == root:
            for part in _check_list(scatter_list, group, "scatter"):
                if part.dtype != tensor.dtype or part.numel() != tensor.numel():
                    raise ValueError(
                        f"scatter: the ranks receive {tensor.numel()} elements of {tensor.dtype.name}, and the list has "
                        f"{part.numel()} of {part.dtype.name}"
                    )
            all_parts = _engine.cat([part.reshape(1, -1) for part in scatter_list or []], 0)
        elif scatter_list:
            raise ValueError("scatter: only rank src passes scatter_list")
        else:
            rows = tensor.new_zeros((1, tensor.numel()))
            all_parts = _engine.cat([rows] * group.size(), 0)
        own = _engine.collective(all_parts, "broadcast", group, peer=root)[group.rank()]
        _store(tensor, own, "scatter")
    return _done(async_op)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to a rank that receives it. Tensors between two ranks arrive in order; ``tag`` is ignored.

    Order sends and receives so that each meets its partner: on GPUs a send waits for its receive.
    """
    group = group_or_world(group, "send")
    with no_grad():
        _engine.collective(tensor, "send", group, peer=place(dst, group_dst, group, "send", "dst"))


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Stores what a rank sends, and returns that rank. :func:`send` says how to order them."""
    group = group_or_world(group, "recv")
    peer = place(src, group_src, group, "recv", "src")
    with no_grad():
        _store(tensor, _engine.collective(tensor, "receive", group, peer=peer), "recv")
    return group.ranks[peer]


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until every rank has called it."""
    group_or_world(group, "barrier")._barrier()
    return _done(async_op)
