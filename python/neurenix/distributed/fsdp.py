"""Networks whose parameters, gradients and optimiser state are divided among the ranks.

>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> from neurenix.distributed.fsdp import FullyShardedDataParallel
>>> _ = dist.init_process_group()
>>> network = nx.nn.Sequential(nx.nn.Linear(3, 8), nx.nn.Tanh(), nx.nn.Linear(8, 2))
>>> model = FullyShardedDataParallel(network, auto_wrap_policy={nx.nn.Linear})
>>> optimizer = nx.optim.Adam(model.parameters(), lr=0.1)
>>> model(nx.ones(4, 3)).sum().backward()
>>> optimizer.step()
>>> [name for name, _ in model.named_parameters()]
['module.0.flat_param', 'module.2.flat_param']
>>> list(model.state_dict())
['0.weight', '0.bias', '2.weight', '2.bias']
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from .._engine import Tensor
from ..nn.module import Module
from ..nn.utils import clip_grad_norm_
from . import _units
from ._flat import FlatParameter, MixedPrecision
from ._groups import group_or_world
from ._optim_state import full_state, sharded_state, state_to_load
from ._units import Settings, ShardingStrategy, Unit
from ._wrap import ModuleWrapPolicy, Policy, size_based_auto_wrap_policy, transformer_auto_wrap_policy, wrap_inside
from .device_mesh import DeviceMesh

__all__ = [
    "FSDPModule",
    "FlatParameter",
    "FullyShardedDataParallel",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "ModuleWrapPolicy",
    "ShardingStrategy",
    "fully_shard",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]

M = TypeVar("M", bound=Module)

@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes in which a module of :func:`fully_shard` computes: ``param_dtype`` is that of gathered weights and,
    with ``cast_forward_inputs``, of the module's inputs; ``reduce_dtype`` that in which gradients are summed, by default
    ``param_dtype``; ``output_dtype`` that of its results. The shards keep their dtype.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


class _Sharded(Module):
    """What wrappers and modules with a unit have in common."""

    _unit: Unit

    def no_sync(self) -> AbstractContextManager[None]:
        """While it lasts, each rank adds up the gradients of whole units; the next backward pass divides the sum.
        ``zero_grad()`` removes it.
        Forward and backward passes must both be within.
        """
        return _units.unsynchronized(self)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients of all ranks' parts so that their joint norm is at most ``max_norm``, and returns the
        norm before: :func:`neurenix.nn.utils.clip_grad_norm_`, which knows that the parameters are divided.
        """
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def _loaded(self) -> None:
        self._unit.take_up()


class FullyShardedDataParallel(_Sharded):
    """Trains a network on the rows of several processes, each of which keeps a part of its parameters, gradients and
    optimiser state (ZeRO-3: Rajbhandari et al., 2020).

    The network is divided into units: it, and the modules inside it that ``auto_wrap_policy`` chooses, a set of classes
    or a function with PyTorch's arguments. A unit has its parameters, without those of inner units, as one vector for
    each dtype (``flat_param``), of which each rank keeps an equal part. Its layers get them for the time of a call
    only, from all ranks. Their gradients are summed over the ranks, each of which gets the mean for its part. Make the
    optimiser afterwards, of ``model.parameters()``.

    ``sharding_strategy`` says what happens after the forward pass:

    - ``FULL_SHARD`` (the default) frees a unit's whole weights once they are used, and gathers them again in the
      backward pass. The outermost unit keeps its own, because its backward pass comes next. A step that ``nx.compile``
      records keeps all of them, as with ``SHARD_GRAD_OP``.
    - ``SHARD_GRAD_OP`` keeps all whole weights until the backward pass has used them.
    - ``NO_SHARD`` divides nothing: gradients are averaged as in ``DistributedDataParallel``.

    Parameters that modules share must be in one unit. ``sync_module_states`` gives every rank the parameters and
    buffers of rank 0; otherwise all must have equal ones. ``mixed_precision`` is a :class:`MixedPrecision`. Parameters
    of ``ignored_modules`` stay as they are, and their gradients are each rank's.

    ``state_dict()`` has whole parameters with the names of the original network, on every rank: all must call it.
    ``load_state_dict()`` takes such a state. Checkpoints have parts instead
    (:mod:`neurenix.distributed.checkpoint`). ``device_mesh`` is a mesh of one axis instead of ``process_group``.

    With ``FULL_SHARD`` the weights of a unit are gathered before the unit that comes first computes, in both
    directions, so a device can do both at once, and two units are whole at a time. ``backward_prefetch``,
    ``forward_prefetch``, ``limit_all_gathers`` and ``device_id`` are accepted and change nothing.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> from neurenix.distributed.fsdp import FullyShardedDataParallel
    >>> _ = dist.init_process_group()
    >>> model = FullyShardedDataParallel(nx.nn.Linear(3, 2))
    >>> model(nx.ones(4, 3)).sum().backward()
    >>> model.flat_param.grad.tolist()
    [4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Policy | None = None,
        backward_prefetch: Any = None,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], Any] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        for name, given in (("cpu_offload", cpu_offload), ("param_init_fn", param_init_fn)):
            if given:
                raise NotImplementedError(f"FullyShardedDataParallel: {name} is not supported")
        if isinstance(module, FullyShardedDataParallel):
            raise ValueError("FullyShardedDataParallel: the module is wrapped already")
        if use_orig_params:
            raise NotImplementedError(
                "FullyShardedDataParallel: use_orig_params=True is not supported: named_parameters() has one flat_param "
                "for each unit and dtype"
            )
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        if not isinstance(strategy, ShardingStrategy):
            raise TypeError(f"FullyShardedDataParallel: sharding_strategy is {strategy!r}, not a ShardingStrategy")
        ignored = frozenset(inner for each in ignored_modules or () for inner in each.modules())
        precision = MixedPrecision() if mixed_precision is None else mixed_precision
        self.process_group = _group(process_group, device_mesh, "FullyShardedDataParallel")
        settings = Settings(self.process_group, strategy, precision, sync_module_states, ignored)
        if auto_wrap_policy is not None:
            wrap_inside(module, auto_wrap_policy, lambda each: FullyShardedDataParallel._with(each, settings), ignored)
        self._become(module, settings)

    def _become(self, module: Module, settings: Settings) -> None:
        self.process_group = settings.group
        self.module = module
        self._unit = Unit(self, module, module, settings)
        self.training = module.training

    @staticmethod
    def _with(module: Module, settings: Settings) -> FullyShardedDataParallel:
        """A wrapper with the settings of an outer one."""
        wrapper = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
        Module.__init__(wrapper)
        wrapper._become(module, settings)
        return wrapper

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the network with parameters that are gathered for the call."""
        return self._unit.forward(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_modules" not in self.__dict__ or "module" not in self._modules:
                raise
            found = getattr(self._modules["module"], name)
            is_method = inspect.ismethod(found) and found.__self__ is self._modules["module"]
            return self._explained(found) if is_method else found

    def _explained(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the network. Its parameters are not there during other calls than that of the wrapper."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except (AttributeError, TypeError) as error:
                if self._unit.is_lent() or "None" not in str(error):
                    raise
                raise RuntimeError(
                    f"FullyShardedDataParallel: {method.__name__}() found layers without parameters, which they have in "
                    "calls of the wrapper only: call it within summon_full_params(), or call the wrapper"
                ) from error

        return call

    def __getitem__(self, key: Any) -> Any:
        module: Any = self.module
        return module[key]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The flat parameters of the units; within :meth:`summon_full_params` the parameters of the original
        network."""
        if self._unit.is_open:
            return _units.named_in(self, f"{prefix}." if prefix else "")
        return super().named_parameters(prefix, recurse, remove_duplicate)

    def _state(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        return self._unit.state(self.module._state, prefix)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers in a module; with ``root_only`` those that are in no other one."""
        found = [each for each, _, _ in _units.owners_in(module, "") if isinstance(each, FullyShardedDataParallel)]
        return [each for each in found if each._unit.is_outermost or not root_only]

    @staticmethod
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> AbstractContextManager[None]:
        """Within it, the modules have their whole parameters, under the names of the original network, for reading,
        changing (``writeback``) and for calls without gradients. Every rank must enter it, and make the same changes.
        """
        if rank0_only or offload_to_cpu or with_grads:
            raise NotImplementedError("summon_full_params: rank0_only, offload_to_cpu and with_grads are not supported")
        return _units.all_summoned(module, recurse, writeback)

    @staticmethod
    def optim_state_dict(model: Module, optim: Any) -> dict[str, Any]:
        """The optimiser's state for whole parameters, by their names in the original network, on every rank: all must
        call it. Of tensor-parallel layers it has this rank's part.
        """
        return full_state(model, optim)

    @staticmethod
    def optim_state_dict_to_load(model: Module, optim: Any, optim_state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The part of an :meth:`optim_state_dict` or :meth:`sharded_optim_state_dict` that ``optim.load_state_dict``
        takes on this rank.
        """
        return state_to_load(model, optim, optim_state_dict)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any) -> dict[str, Any]:
        """PyTorch's older name of :func:`neurenix.distributed.checkpoint.get_optimizer_state_dict`."""
        return sharded_state(model, optim)


def _group(process_group: Any, mesh: DeviceMesh | None, caller: str) -> Any:
    if mesh is None:
        return group_or_world(process_group, caller)
    if process_group is not None or mesh.ndim != 1:
        raise ValueError(f"{caller}: pass a process group, or a mesh of one axis such as mesh['data']")
    return mesh.get_group()


class FSDPModule(_Sharded):
    """A module after :func:`fully_shard`: its class derives from this one and from what it was before."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module with parameters that are gathered for the call."""
        return self._unit.forward(args, kwargs)

    def _state(self, prefix: str) -> Iterator[tuple[str, Tensor]]:
        return self._unit.state(super()._state, prefix)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes reduce gradients, or each rank adds them up. See :meth:`no_sync`."""
        for owner, _, unit in _units.owners_in(self, ""):
            if recurse or owner is self:
                for flat in unit.flats:
                    flat.synchronizes = requires_gradient_sync


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
) -> M:
    """Divides a module's parameters, without those of modules inside that are divided already, as
    :class:`FullyShardedDataParallel` does, but in place: the module keeps its names, and its class derives from
    :class:`FSDPModule`. Call it for the blocks first, then for the network.

    Without ``reshard_after_forward``, weights stay whole until the backward pass (``SHARD_GRAD_OP``); with it they are
    gathered again. By default, only those of the outermost module stay. ``mp_policy`` is a
    :class:`MixedPrecisionPolicy`.

    >>> import neurenix as nx
    >>> import neurenix.distributed as dist
    >>> from neurenix.distributed.fsdp import fully_shard
    >>> _ = dist.init_process_group()
    >>> model = nx.nn.Sequential(nx.nn.Linear(3, 8), nx.nn.Linear(8, 2))
    >>> for layer in model:
    ...     _ = fully_shard(layer)
    >>> fully_shard(model)(nx.ones(4, 3)).shape
    torch.Size([4, 2])
    >>> [name for name, _ in model.named_parameters()], list(model.state_dict())
    (['0.flat_param', '1.flat_param'], ['0.weight', '0.bias', '1.weight', '1.bias'])
    >>> dist.destroy_process_group()
    """
    if isinstance(module, _Sharded):
        raise ValueError("fully_shard: the module is divided already")
    if not (reshard_after_forward is None or isinstance(reshard_after_forward, bool)):
        raise NotImplementedError(f"fully_shard: reshard_after_forward must be a bool or None, not {reshard_after_forward!r}")
    policy = MixedPrecisionPolicy() if mp_policy is None else mp_policy
    if not isinstance(policy, MixedPrecisionPolicy):
        raise TypeError(f"fully_shard: mp_policy must be a MixedPrecisionPolicy, not {type(policy).__name__}")
    casts = policy.cast_forward_inputs
    settings = Settings(
        _group(None, mesh, "fully_shard"),
        precision=MixedPrecision(
            policy.param_dtype, policy.reduce_dtype, cast_forward_inputs=casts, cast_root_forward_inputs=casts
        ),
        gathers_again=reshard_after_forward,
        output_dtype=policy.output_dtype,
    )
    original = type(module)
    call = original.forward.__get__(module)
    unit = Unit(module, module, call, settings)
    module.__class__ = type(f"FSDP{original.__name__}", (FSDPModule, original), {})
    module._unit = unit
    return module
