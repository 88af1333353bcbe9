"""Layers whose weights are divided among the ranks of a tensor-parallel group."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ..nn import functional as F
from ..nn.linear import Embedding, Linear
from ..nn.module import Module
from ..nn.normalization import LayerNorm, RMSNorm
from ..nn.parameter import Parameter
from . import functional
from ._groups import group_or_world
from ._memory import copied
from ._regions import gather_from_sequence, own_part, part_of, scatter_to_sequence, whole
from ._shard import Part
from ._split import hold, split_over


class Divider:
    """Divides parameters among the ranks of a group. Parameters that layers share stay shared."""

    def __init__(self, group: ProcessGroup, is_from_rank_0: bool = True) -> None:
        self.group, self.is_from_rank_0 = group, is_from_rank_0
        self._made: dict[tuple[int, int | None], tuple[Tensor, Parameter]] = {}

    def part(self, parameter: Tensor, dim: int) -> Parameter:
        """This rank's part along a dimension."""
        size = parameter.shape[dim]
        first, length = part_of(size, self.group)
        # On every rank, if the last one has nothing.
        if math.ceil(size / self.group.size()) * (self.group.size() - 1) >= size:
            raise ValueError(f"tensor_parallel: a dimension of {size} cannot be divided among {self.group.size()} ranks")
        made = self._taken(parameter, dim, lambda whole: whole.narrow(dim, first, length))
        if self.group.size() > 1:
            split_over(made, self.group)
            shape = tuple(parameter.shape)
            offset = tuple(first if at == dim % len(shape) else 0 for at in range(len(shape)))
            hold(made, Part(shape, offset, tuple(made.shape)))
        return made

    def same(self, parameter: Tensor) -> Parameter:
        """A parameter that every rank has."""
        return self._taken(parameter, None, lambda whole: whole)

    def _taken(self, parameter: Tensor, dim: int | None, part: Any) -> Parameter:
        key = (id(parameter), dim)
        if key not in self._made:
            with no_grad():
                values = parameter.detach()
                if self.is_from_rank_0 and self.group.size() > 1:
                    values = _engine.collective(values, "broadcast", self.group)
                self._made[key] = (parameter, Parameter(copied(part(values)), parameter.requires_grad))
        return self._made[key][1]

    def divided(self) -> list[Tensor]:
        """The original parameters."""
        return [parameter for parameter, _ in self._made.values()]


class ColumnParallelLinear(Module):
    """:class:`neurenix.nn.Linear` of which each rank has a part of the outputs: (..., in_features) to (...,
    out_features), or without ``gather_output`` to this rank's (..., out_features / ranks). Every rank has the same
    input; with ``sequence_parallel`` its positions (N, L / ranks, in_features), which are gathered.

    ``weight`` is (out_features / ranks, in_features), ``bias`` (out_features / ranks). If the ranks cannot have equal
    parts, the last one has less.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = True,
        process_group: Any = None,
        sequence_parallel: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        divider = Divider(group_or_world(process_group, "ColumnParallelLinear"))
        self._take(Linear(in_features, out_features, bias, device, dtype), divider, gather_output, sequence_parallel)

    @classmethod
    def from_linear(
        cls,
        linear: Linear,
        gather_output: bool = True,
        process_group: Any = None,
        sequence_parallel: bool = False,
        divider: Divider | None = None,
    ) -> ColumnParallelLinear:
        """This rank's part of a layer, of which rank 0's values count."""
        layer = cls.__new__(cls)
        Module.__init__(layer)
        divider = divider or Divider(group_or_world(process_group, "ColumnParallelLinear"))
        layer._take(linear, divider, gather_output, sequence_parallel)
        return layer

    def _take(self, linear: Linear, divider: Divider, gather_output: bool, sequence_parallel: bool) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.gather_output, self.sequence_parallel, self.process_group = gather_output, sequence_parallel, divider.group
        self.training = linear.training
        self.weight = divider.part(linear.weight, 0)
        self.register_parameter("bias", None if linear.bias is None else divider.part(linear.bias, 0))

    def forward(self, input: Tensor) -> Tensor:
        group = self.process_group
        input = gather_from_sequence(input, 1, group) if self.sequence_parallel else functional.copy(input, group)
        result = F.linear(input, self.weight, self.bias)
        return whole(result, -1, group, self.out_features) if self.gather_output else result

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, gather_output={self.gather_output}, ranks={self.process_group.size()}"


class RowParallelLinear(Module):
    """:class:`neurenix.nn.Linear` of which each rank has the weights for a part of the inputs: (..., in_features), or
    with ``input_is_parallel`` this rank's (..., in_features / ranks), to the sum of all ranks (..., out_features). With
    ``sequence_parallel``, each rank gets its positions of it: (N, L / ranks, out_features).

    ``weight`` is (out_features, in_features / ranks), ``bias`` (out_features).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = False,
        process_group: Any = None,
        sequence_parallel: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        divider = Divider(group_or_world(process_group, "RowParallelLinear"))
        self._take(Linear(in_features, out_features, bias, device, dtype), divider, input_is_parallel, sequence_parallel)

    @classmethod
    def from_linear(
        cls,
        linear: Linear,
        input_is_parallel: bool = False,
        process_group: Any = None,
        sequence_parallel: bool = False,
        divider: Divider | None = None,
    ) -> RowParallelLinear:
        """This rank's part of a layer, of which rank 0's values count."""
        layer = cls.__new__(cls)
        Module.__init__(layer)
        divider = divider or Divider(group_or_world(process_group, "RowParallelLinear"))
        layer._take(linear, divider, input_is_parallel, sequence_parallel)
        return layer

    def _take(self, linear: Linear, divider: Divider, input_is_parallel: bool, sequence_parallel: bool) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.input_is_parallel, self.sequence_parallel = input_is_parallel, sequence_parallel
        self.process_group, self.training = divider.group, linear.training
        self.weight = divider.part(linear.weight, 1)
        self.register_parameter("bias", None if linear.bias is None else divider.same(linear.bias))

    def forward(self, input: Tensor) -> Tensor:
        group = self.process_group
        part = F.linear(input if self.input_is_parallel else own_part(input, -1, group), self.weight)
        bias: Tensor | None = self.bias
        if self.sequence_parallel:
            result = scatter_to_sequence(part, 1, group)
            # It is added to this rank's positions only.
            bias = _copied(bias, group)
        else:
            result = functional.all_reduce(part, group=group, shared=True)
        return result if bias is None else result + bias.to(result.dtype)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, input_is_parallel={self.input_is_parallel}, ranks={self.process_group.size()}"


class VocabParallelEmbedding(Module):
    """:class:`neurenix.nn.Embedding` of which each rank has a part of the vectors: (...) of integers to (...,
    embedding_dim) on every rank; with ``sequence_parallel`` (N, L) to this rank's positions (N, L / ranks,
    embedding_dim).

    ``weight`` is (num_embeddings / ranks, embedding_dim); the last rank may have less.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        process_group: Any = None,
        sequence_parallel: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        divider = Divider(group_or_world(process_group, "VocabParallelEmbedding"))
        table = Embedding(num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype)
        self._take(table, divider, sequence_parallel)

    @classmethod
    def from_embedding(
        cls,
        embedding: Embedding,
        process_group: Any = None,
        sequence_parallel: bool = False,
        divider: Divider | None = None,
    ) -> VocabParallelEmbedding:
        """This rank's part of a table, of which rank 0's values count."""
        layer = cls.__new__(cls)
        Module.__init__(layer)
        divider = divider or Divider(group_or_world(process_group, "VocabParallelEmbedding"))
        layer._take(embedding, divider, sequence_parallel)
        return layer

    def _take(self, table: Embedding, divider: Divider, sequence_parallel: bool) -> None:
        self.num_embeddings, self.embedding_dim = table.num_embeddings, table.embedding_dim
        self.padding_idx, self.sequence_parallel = table.padding_idx, sequence_parallel
        self.process_group, self.training = divider.group, table.training
        self.weight = divider.part(table.weight, 0)
        self._first, self._length = part_of(table.num_embeddings, divider.group)

    def forward(self, input: Tensor) -> Tensor:
        index, elsewhere = own_index(input, self._first, self._length, self.num_embeddings)
        padding = None if self.padding_idx is None else self.padding_idx - self._first
        if padding is not None and not 0 <= padding < self._length:
            padding = None
        found = F.embedding(index, self.weight, padding).masked_fill(elsewhere.unsqueeze(-1), 0.0)
        if self.sequence_parallel:
            return scatter_to_sequence(found, 1, self.process_group)
        return functional.all_reduce(found, group=self.process_group, shared=True)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, ranks={self.process_group.size()}"


def own_index(index: Tensor, first: int, length: int, size: int, ignored: int | None = None) -> tuple[Tensor, Tensor]:
    """Indices into this rank's part of a dimension, and where they are another rank's: 0 there. What no rank has stays
    out of range, so that looking it up is an error.
    """
    inside = index - first
    elsewhere = ((inside < 0) & (index >= 0)) | ((inside >= length) & (index < size))
    if ignored is not None:
        elsewhere = elsewhere | (index == ignored)
    unknown = ~elsewhere & ((inside < 0) | (inside >= length))
    return inside.masked_fill(elsewhere, 0).masked_fill(unknown, length), elsewhere


class SequenceParallelLayerNorm(LayerNorm):
    """:class:`neurenix.nn.LayerNorm` of this rank's positions of a sequence: (N, L / ranks, ...) to the same shape.
    Weight and bias are the same on all ranks, and so are their gradients: the sums over the ranks.
    """

    def __init__(self, *args: Any, process_group: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process_group = group_or_world(process_group, "SequenceParallelLayerNorm")

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = (_copied(each, self.process_group) for each in (self.weight, self.bias))
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class SequenceParallelRMSNorm(RMSNorm):
    """:class:`neurenix.nn.RMSNorm` of this rank's positions of a sequence, as :class:`SequenceParallelLayerNorm`."""

    def __init__(self, *args: Any, process_group: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process_group = group_or_world(process_group, "SequenceParallelRMSNorm")

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, _copied(self.weight, self.process_group), self.eps)


def _copied(parameter: Tensor | None, group: ProcessGroup) -> Tensor | None:
    return None if parameter is None else functional.copy(parameter, group)


def sequence_parallel_norm(norm: LayerNorm | RMSNorm, divider: Divider) -> Module:
    """A norm with the same parameters, for positions that are divided among the ranks."""
    made: Module
    if isinstance(norm, LayerNorm):
        made = SequenceParallelLayerNorm(norm.normalized_shape, norm.eps, False, process_group=divider.group)
    else:
        made = SequenceParallelRMSNorm(norm.normalized_shape, norm.eps, False, process_group=divider.group)
    made.__dict__["elementwise_affine"], made.training = norm.elementwise_affine, norm.training
    for name, parameter in norm._parameters.items():
        made._parameters[name] = None if parameter is None else divider.same(parameter)
    return made
