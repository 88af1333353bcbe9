"""Collectives that return their results and have gradients.

All ranks must compute the gradients too, because a gradient is a collective. They are those of the sum of the ranks'
losses. Where every rank computes the same loss from the same result, as in tensor parallelism, pass ``shared=True`` to
:func:`all_reduce`.
"""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from ._collectives import ReduceOp, _reduction, joined
from ._gradient import with_hook
from ._groups import group_or_world, place

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "copy", "receive", "reduce", "reduce_scatter", "send"]


def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None, shared: bool = False) -> Tensor:
    """The combination over all ranks. Sums and averages have gradients.

    With ``shared`` the gradient is that of one loss, which every rank computes: it is passed on as it is.
    """
    group = group_or_world(group, "all_reduce")
    name, mean = _reduction(op, "all_reduce")
    result = _engine.collective(tensor, "all_reduce", group, op=name, shared=shared)
    return result / group.size() if mean else result


def reduce_scatter(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The combination over all ranks; each gets the part of its number, along the first dimension."""
    group = group_or_world(group, "reduce_scatter")
    name, mean = _reduction(op, "reduce_scatter")
    result = _engine.collective(tensor, "reduce_scatter", group, op=name)
    return result / group.size() if mean else result


def all_gather(tensor: Tensor, group: Any = None) -> Tensor:
    """The ranks' tensors, joined along the first dimension."""
    return joined(tensor, group_or_world(group, "all_gather"))


def all_to_all(tensor: Tensor, group: Any = None) -> Tensor:
    """Part ``i``, along the first dimension, goes to rank ``i``; part ``j`` of the result is from rank ``j``."""
    return _engine.collective(tensor, "all_to_all", group_or_world(group, "all_to_all"))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank ``src``."""
    group = group_or_world(group, "broadcast")
    return _engine.collective(tensor, "broadcast", group, peer=place(src, None, group, "broadcast", "src"))


def reduce(tensor: Tensor, dst: int, group: Any = None) -> Tensor:
    """The sum of the ranks' tensors on rank ``dst``, zeros on the others."""
    group = group_or_world(group, "reduce")
    return _engine.collective(tensor, "reduce", group, peer=place(dst, None, group, "reduce", "dst"))


def send(tensor: Tensor, dst: int, group: Any = None) -> Tensor:
    """Sends a tensor to a rank that receives it. Returns zeros: add them to the loss, so that the gradient comes
    back.

    Order sends and receives so that each meets its partner: on GPUs a send waits for its receive.
    """
    group = group_or_world(group, "send")
    return _engine.collective(tensor, "send", group, peer=place(dst, None, group, "send", "dst"))


def receive(like: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor that a rank sends, of the shape and dtype of ``like``. If ``like`` requires gradients, the gradient is
    sent back. :func:`send` says how to order them.
    """
    group = group_or_world(group, "receive")
    return _engine.collective(like, "receive", group, peer=place(src, None, group, "receive", "src"))


def copy(tensor: Tensor, group: Any = None) -> Tensor:
    """The tensor itself, whose gradient is summed over the ranks: what each computes a part of the result from."""
    group = group_or_world(group, "copy")
    if group.size() == 1:
        return tensor
    return with_hook(tensor, lambda gradient: _engine.collective(gradient, "all_reduce", group))
