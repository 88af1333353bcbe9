"""Layers whose weights are divided among ranks that all compute the same batch (Shoeybi et al., 2019).

A :class:`ColumnParallelLinear` computes a part of its outputs on each rank, and a :class:`RowParallelLinear` adds up
what the ranks compute from their parts of its inputs. One after the other they need one sum over the ranks in the
forward pass, and one in the backward pass:

>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> from neurenix.distributed.tensor_parallel import ColumnParallelLinear, RowParallelLinear
>>> _ = dist.init_process_group()
>>> up = ColumnParallelLinear(8, 32, gather_output=False)
>>> down = RowParallelLinear(32, 8, input_is_parallel=True)
>>> down(up(nx.ones(4, 8)).relu()).shape
torch.Size([4, 8])
>>> dist.destroy_process_group()

Every rank computes the same loss. The initial weights are the parts of those that rank 0 of the group draws.
:func:`parallelize_module` replaces the layers of a network.
"""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ..nn import functional as F
from ..nn.linear import Linear
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..nn.transformer import MultiheadAttention
from . import functional
from ._groups import group_or_world
from ._parallel_layers import (
    ColumnParallelLinear,
    Divider,
    RowParallelLinear,
    SequenceParallelLayerNorm,
    SequenceParallelRMSNorm,
    VocabParallelEmbedding,
    own_index,
)
from ._parallelize import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    parallelize_module,
)
from ._regions import gather_from_sequence, part_of, scatter_to_sequence

__all__ = [
    "ColumnParallelLinear",
    "ColwiseParallel",
    "ParallelAttention",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleOutput",
    "Replicate",
    "RowParallelLinear",
    "RowwiseParallel",
    "SequenceParallel",
    "SequenceParallelLayerNorm",
    "SequenceParallelRMSNorm",
    "Shard",
    "VocabParallelEmbedding",
    "gather_from_sequence",
    "parallelize_module",
    "scatter_to_sequence",
    "vocab_parallel_cross_entropy",
]


class ParallelAttention(Module):
    """Self-attention of which each rank computes a part of the heads: (N, L, embed_dim) to the same shape, on every
    rank. With ``sequence_parallel`` it takes and returns this rank's positions (N, L / ranks, embed_dim).

    ``num_heads`` and ``num_key_value_heads`` (by default as many) must be divisible by the number of ranks. ``q_proj``,
    ``k_proj`` and ``v_proj`` are column-parallel, ``out_proj`` is row-parallel. Ranks with equal random states drop the
    same attention weights of their heads.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> _ = dist.init_process_group()
    >>> attention = nx.distributed.tensor_parallel.ParallelAttention(8, 2)
    >>> attention(nx.ones(3, 5, 8), is_causal=True).shape
    torch.Size([3, 5, 8])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_key_value_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        process_group: Any = None,
        sequence_parallel: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        groups = num_heads if num_key_value_heads is None else num_key_value_heads
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads or groups < 1 or num_heads % groups:
            raise ValueError(
                f"ParallelAttention: {embed_dim} features, {num_heads} heads and {groups} heads of keys and values do not "
                "divide each other"
            )
        size = embed_dim // num_heads
        width = groups * size
        sizes = ((embed_dim, embed_dim), (embed_dim, width), (embed_dim, width), (embed_dim, embed_dim))
        linears = [Linear(*each, bias=bias, device=device, dtype=dtype) for each in sizes]
        divider = Divider(group_or_world(process_group, "ParallelAttention"))
        self._take(linears, num_heads, groups, dropout, divider, sequence_parallel)

    @classmethod
    def from_attention(
        cls, attention: MultiheadAttention, process_group: Any = None, sequence_parallel: bool = False
    ) -> ParallelAttention:
        """This rank's part of a :class:`neurenix.nn.MultiheadAttention` of queries, keys and values of one width, of
        which rank 0's values count.
        """
        weight = attention.in_proj_weight
        if weight is None or attention.bias_k is not None or attention.add_zero_attn:
            raise NotImplementedError("ParallelAttention: kdim, vdim, add_bias_kv and add_zero_attn are not supported")
        size, bias = attention.embed_dim, attention.in_proj_bias
        linears = []
        for part in range(3):
            linear = Linear(size, size, bias is not None, device=weight.device, dtype=weight.dtype)
            linear.weight = Parameter(weight.detach().narrow(0, part * size, size), weight.requires_grad)
            if bias is not None:
                linear.bias = Parameter(bias.detach().narrow(0, part * size, size), bias.requires_grad)
            linears.append(linear)
        layer = cls.__new__(cls)
        Module.__init__(layer)
        divider = Divider(group_or_world(process_group, "ParallelAttention"))
        heads = attention.num_heads
        layer._take([*linears, attention.out_proj], heads, heads, attention.dropout, divider, sequence_parallel)
        layer.training = attention.training
        return layer

    def _take(
        self, linears: list[Linear], heads: int, groups: int, dropout: float, divider: Divider, sequence_parallel: bool
    ) -> None:
        ranks = divider.group.size()
        if heads % ranks or groups % ranks:
            raise ValueError(f"ParallelAttention: {heads} and {groups} heads cannot be divided among {ranks} ranks")
        self.head_dim, self.dropout = linears[0].out_features // heads, dropout
        self.process_group, self.sequence_parallel = divider.group, sequence_parallel
        for name, linear in zip(("q_proj", "k_proj", "v_proj"), linears, strict=False):
            setattr(self, name, ColumnParallelLinear.from_linear(linear, False, divider=divider))
        self.out_proj = RowParallelLinear.from_linear(
            linears[3], True, sequence_parallel=sequence_parallel, divider=divider
        )

    def forward(self, input: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """(N, L, embed_dim), and a mask (L, L) or (N, 1, L, L) that is true where attention is allowed, or is added."""
        group = self.process_group
        # Once for the three projections.
        shared = gather_from_sequence(input, 1, group) if self.sequence_parallel else functional.copy(input, group)
        query, key, value = (
            F.linear(shared, projection.weight, projection.bias).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        grouped = query.shape[1] != key.shape[1]
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask, dropout, is_causal, enable_gqa=grouped)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


def vocab_parallel_cross_entropy(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_classes: int | None = None,
    group: Any = None,
) -> Tensor:
    """:func:`neurenix.functional.cross_entropy` of scores whose classes are divided among the ranks: this rank's (...,
    C / ranks) against classes (...), to the same loss on every rank. The scores are never gathered.

    ``num_classes`` is C. By default the ranks tell each other how many classes they have, which must be as many on
    each; pass it to save that exchange, or if C is not divisible by the number of ranks.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> from neurenix.distributed.tensor_parallel import vocab_parallel_cross_entropy
    >>> _ = dist.init_process_group()
    >>> round(vocab_parallel_cross_entropy(nx.Tensor([[0.0, 0.0]]), nx.tensor([1])).item(), 4)
    0.6931
    >>> dist.destroy_process_group()
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'vocab_parallel_cross_entropy: reduction is {reduction!r}, it must be "none", "mean" or "sum"')
    group = group_or_world(group, "vocab_parallel_cross_entropy")
    total = _classes(input, group) if num_classes is None else num_classes
    first, length = part_of(total, group)
    if input.shape[-1] != length or tuple(input.shape[:-1]) != tuple(target.shape):
        raise ValueError(
            f"vocab_parallel_cross_entropy: expected scores of shape {(*target.shape, length)} on rank {group.rank()}, got "
            f"{tuple(input.shape)}"
        )
    scores = input.float() if input.itemsize < 4 else input
    with no_grad():
        greatest = functional.all_reduce(scores.detach().amax(-1, keepdim=True), "max", group)
    shifted = scores - greatest
    index, elsewhere = own_index(target, first, length, total, ignore_index)
    chosen = shifted.gather(-1, index.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0.0)
    sums = [shifted.exp().sum(-1), chosen]
    if label_smoothing:
        sums.append(shifted.sum(-1))
    sums = [*functional.all_reduce(_engine.stack(sums), group=group, shared=True)]
    logarithm = sums[0].log()
    loss = logarithm - sums[1]
    if label_smoothing:
        loss = loss * (1.0 - label_smoothing) + (logarithm - sums[2] / total) * label_smoothing
    counted = target != ignore_index
    loss = loss.masked_fill(~counted, 0.0)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / counted.sum().to(loss.dtype)


def _classes(input: Tensor, group: ProcessGroup) -> int:
    """The number of classes, of which every rank has as many."""
    own = input.shape[-1]
    found = [int(each) for each in group._all_gather_bytes(str(own).encode())] if group.size() > 1 else [own]
    if len(set(found)) > 1:
        raise ValueError(f"vocab_parallel_cross_entropy: the ranks have {found} classes: pass num_classes")
    return own * len(found)
