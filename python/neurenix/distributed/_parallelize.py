"""Dividing the layers of a network among the ranks of a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, TypeGuard, TypeVar

from .._engine import ProcessGroup, Tensor
from ..nn.linear import Embedding, Linear
from ..nn.module import Module
from ..nn.normalization import LayerNorm, RMSNorm
from ._groups import group_or_world
from ._parallel_layers import (
    ColumnParallelLinear,
    Divider,
    RowParallelLinear,
    VocabParallelEmbedding,
    sequence_parallel_norm,
)
from ._regions import own_part, whole
from .device_mesh import DeviceMesh


@dataclass(frozen=True)
class Replicate:
    """Every rank has the whole tensor."""


@dataclass(frozen=True)
class Shard:
    """Each rank has a part of the tensor along a dimension."""

    dim: int


Placement = Replicate | Shard

M = TypeVar("M", bound=Module)


class ParallelStyle:
    """How a layer is divided: the base class of the styles."""

    def _apply(self, module: Module, divider: Divider) -> Module:
        """The module that takes the place of this one."""
        raise NotImplementedError(f"{type(self).__name__} does not implement _apply()")

    def _refuse(self, module: Module) -> TypeError:
        return TypeError(f"{type(self).__name__}: a {type(module).__name__} cannot be divided in this way")

    def _is_a(self, module: Module, kind: type[M]) -> TypeGuard[M]:
        """Whether a module is such a layer, and does nothing else: what takes its place does not have what it adds."""
        if not isinstance(module, kind):
            return False
        if getattr(module.forward, "__func__", None) is not kind.forward:
            raise TypeError(
                f"{type(self).__name__}: {type(module).__name__} has a forward() of its own, which its parts would not "
                f"have: divide a {kind.__name__}"
            )
        if module._forward_hooks or module._forward_pre_hooks:
            raise ValueError(
                f"{type(self).__name__}: the {type(module).__name__} has hooks, which its parts would not have: register "
                "them after parallelize_module()"
            )
        return True


def _chosen(style: str, name: str, given: Placement | None, usual: Placement, others: Sequence[Placement]) -> Placement:
    if given is None or given == usual:
        return usual
    if given not in others:
        supported = ", ".join(map(repr, (usual, *others)))
        raise NotImplementedError(f"{style}: {name} {given!r} is not supported: use one of {supported}")
    return given


def _check_local(style: str, use_local_output: bool) -> None:
    if not use_local_output:
        raise NotImplementedError(f"{style}: use_local_output=False: tensors are always each rank's own")


class ColwiseParallel(ParallelStyle):
    """A ``Linear`` becomes a :class:`ColumnParallelLinear`. ``input_layouts`` is ``Replicate()`` or, for positions that
    are divided among the ranks, ``Shard(1)``; ``output_layouts`` is ``Shard(-1)`` or ``Replicate()``.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _check_local("ColwiseParallel", use_local_output)
        self.input_layouts = _chosen("ColwiseParallel", "input_layouts", input_layouts, Replicate(), [Shard(1)])
        self.output_layouts = _chosen("ColwiseParallel", "output_layouts", output_layouts, Shard(-1), [Replicate()])

    def _apply(self, module: Module, divider: Divider) -> Module:
        if not self._is_a(module, Linear):
            raise self._refuse(module)
        gathers, divided = self.output_layouts == Replicate(), self.input_layouts == Shard(1)
        return ColumnParallelLinear.from_linear(module, gathers, sequence_parallel=divided, divider=divider)


class RowwiseParallel(ParallelStyle):
    """A ``Linear`` becomes a :class:`RowParallelLinear`, and an ``Embedding`` a :class:`VocabParallelEmbedding`.
    ``input_layouts`` is ``Shard(-1)`` or ``Replicate()`` (always for an embedding); ``output_layouts`` is
    ``Replicate()`` or, to divide the positions among the ranks, ``Shard(1)``.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _check_local("RowwiseParallel", use_local_output)
        self.input_layouts = _chosen("RowwiseParallel", "input_layouts", input_layouts, Shard(-1), [Replicate()])
        self.output_layouts = _chosen("RowwiseParallel", "output_layouts", output_layouts, Replicate(), [Shard(1)])

    def _apply(self, module: Module, divider: Divider) -> Module:
        divides = self.output_layouts == Shard(1)
        if self._is_a(module, Embedding):
            return VocabParallelEmbedding.from_embedding(module, sequence_parallel=divides, divider=divider)
        if not self._is_a(module, Linear):
            raise self._refuse(module)
        is_parallel = self.input_layouts == Shard(-1)
        return RowParallelLinear.from_linear(module, is_parallel, sequence_parallel=divides, divider=divider)


class SequenceParallel(ParallelStyle):
    """A ``LayerNorm`` or ``RMSNorm`` computes this rank's positions only; its parameters stay the same on all ranks.
    Modules without parameters, such as ``Dropout``, stay as they are. ``sequence_dim`` is accepted and changes nothing:
    positions are computed one by one, along whichever dimension they are divided.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = True) -> None:
        _check_local("SequenceParallel", use_local_output)
        self.sequence_dim = sequence_dim

    def _apply(self, module: Module, divider: Divider) -> Module:
        if self._is_a(module, LayerNorm) or self._is_a(module, RMSNorm):
            return sequence_parallel_norm(module, divider)
        if module.parameters():
            raise self._refuse(module)
        return module


def _redistributed(value: Any, now: Placement | None, wanted: Placement | None, group: ProcessGroup) -> Any:
    """A tensor that is divided in another way; all ranks go on with the same computation."""
    if not isinstance(value, Tensor) or now is None or wanted is None or now == wanted:
        return value
    if isinstance(now, Shard) and isinstance(wanted, Replicate):
        return whole(value, now.dim, group)
    if isinstance(now, Replicate) and isinstance(wanted, Shard):
        return own_part(value, wanted.dim, group)
    raise NotImplementedError(f"tensor_parallel: from {now!r} to {wanted!r} is not supported")


def _tuple(layouts: Any) -> tuple[Placement | None, ...]:
    return layouts if isinstance(layouts, tuple) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """Divides or joins a module's positional arguments before each call: from ``input_layouts`` to
    ``desired_input_layouts``, a placement or None for each.
    """

    def __init__(self, *, input_layouts: Any = None, desired_input_layouts: Any = None) -> None:
        self.input_layouts, self.desired_input_layouts = _tuple(input_layouts), _tuple(desired_input_layouts)
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise ValueError("PrepareModuleInput: input_layouts and desired_input_layouts must be of the same length")

    def _apply(self, module: Module, divider: Divider) -> Module:
        pairs = list(zip(self.input_layouts, self.desired_input_layouts, strict=True))

        def prepare(_: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            changed = [_redistributed(value, *pair, divider.group) for value, pair in zip(args, pairs)]
            return (*changed, *args[len(changed) :])

        module.register_forward_pre_hook(prepare)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Divides or joins a module's result after each call: from ``output_layouts`` to ``desired_output_layouts``."""

    def __init__(self, *, output_layouts: Placement, desired_output_layouts: Placement) -> None:
        self.output_layouts, self.desired_output_layouts = output_layouts, desired_output_layouts

    def _apply(self, module: Module, divider: Divider) -> Module:
        def prepare(_: Module, __: tuple[Any, ...], result: Any) -> Any:
            return _redistributed(result, self.output_layouts, self.desired_output_layouts, divider.group)

        module.register_forward_hook(prepare)
        return module


def _matching(module: Module, path: str) -> list[tuple[Module, str]]:
    """The modules with a dotted name, whose parts may have wildcards: each with its name in the module around it."""
    found: list[tuple[Module, str]] = []
    around = [module]
    parts = path.split(".")
    for at, part in enumerate(parts):
        found = [
            (each, name) for each in around for name, child in each._modules.items() if child is not None and fnmatch(name, part)
        ]
        if at < len(parts) - 1:
            around = [child for each, name in found if (child := each._modules[name]) is not None]
    return found


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | ProcessGroup | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divides the layers of a network among the ranks of a mesh of one axis (by default all ranks), and returns the
    network. The plan is a style, or styles by the names of layers, in which ``*`` stands for any part.

    Divided layers are new modules in the place of the old ones, with the same names of parameters; make the optimiser
    afterwards. The values are those of rank 0; with ``src_data_rank=None`` each rank takes its part of its own values.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> from neurenix.distributed.tensor_parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    >>> _ = dist.init_process_group()
    >>> model = nx.nn.Sequential(nx.nn.Linear(8, 32), nx.nn.ReLU(), nx.nn.Linear(32, 8))
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    Sequential(
      (0): ColumnParallelLinear(in_features=8, out_features=32, bias=True, gather_output=False, ranks=1)
      (1): ReLU()
      (2): RowParallelLinear(in_features=32, out_features=8, bias=True, input_is_parallel=True, ranks=1)
    )
    >>> dist.destroy_process_group()
    """
    group = device_mesh.get_group() if isinstance(device_mesh, DeviceMesh) else device_mesh
    group = group_or_world(group, "parallelize_module")
    if src_data_rank not in (0, None):
        raise NotImplementedError("parallelize_module: src_data_rank must be 0 or None")
    if parallelize_plan is None:
        return module
    divider = Divider(group, src_data_rank == 0)
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan._apply(module, divider)
    for path, style in parallelize_plan.items():
        if not path:
            module = style._apply(module, divider)
            continue
        found = _matching(module, path)
        if not found:
            raise ValueError(f"parallelize_module: the network has no {path!r}")
        for around, name in found:
            child = around._modules[name]
            assert child is not None
            around._modules[name] = style._apply(child, divider)
    left = {id(parameter): name for name, parameter in module.named_parameters()}
    for parameter in divider.divided():
        if id(parameter) in left:
            raise ValueError(
                f"parallelize_module: {left[id(parameter)]} is shared with a layer that was divided: divide both, along "
                "the same dimension"
            )
    return module
