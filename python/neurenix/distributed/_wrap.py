"""Which modules of a network become units of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..nn.container import ModuleDict, ModuleList
from ..nn.module import Module
from ._units import unit_of


class ModuleWrapPolicy:
    """Every module of these classes is a unit.

    >>> import neurenix as nx
    >>> from neurenix.distributed.fsdp import ModuleWrapPolicy
    >>> policy = ModuleWrapPolicy({nx.nn.Linear})
    >>> policy(nx.nn.Linear(2, 2), recurse=False, nonwrapped_numel=6)
    True
    """

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, nonwrapped_numel: int = -1, **others: Any) -> bool:
        return recurse or isinstance(module, self._classes)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int = -1, transformer_layer_cls: Iterable[type[Module]] = ()
) -> bool:
    """As :class:`ModuleWrapPolicy`, for ``functools.partial``: pass the classes of a network's blocks."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Iterable[type[Module]] = (),
    exclude_wrap_modules: Iterable[type[Module]] = (ModuleList, ModuleDict),
) -> bool:
    """Modules with at least ``min_num_params`` elements that no inner unit has."""
    is_large = nonwrapped_numel >= min_num_params
    if recurse:
        return is_large and not isinstance(module, tuple(force_leaf_modules))
    return is_large and not isinstance(module, tuple(exclude_wrap_modules))


Policy = ModuleWrapPolicy | Callable[..., bool] | Iterable[type[Module]]


def wrap_inside(module: Module, policy: Policy, wrap: Callable[[Module], Module], ignored: frozenset[Module]) -> None:
    """Replaces modules inside a module, but not this one, by their wrappers, as a policy says: PyTorch's recursion."""
    decide: Callable[..., bool] = policy if callable(policy) else ModuleWrapPolicy(policy)
    wrapped: dict[Module, tuple[Module, int]] = {}

    def inside(module: Module) -> int:
        """Wraps what is inside a module. Returns the number of elements in its units."""
        total = 0
        for name, child in module._modules.items():
            if child is None or child in ignored:
                continue
            if child not in wrapped:
                wrapped[child] = visit(child)
                total += wrapped[child][1]
            # A module that appears twice is one unit.
            module._modules[name] = wrapped[child][0]
        return total

    def visit(module: Module) -> tuple[Module, int]:
        """A module or its wrapper, and the number of elements in its units."""
        if unit_of(module) is not None:
            return module, 0
        count = sum(parameter.numel() for parameter in module.parameters())
        if not decide(module=module, recurse=True, nonwrapped_numel=count):
            return module, 0
        inner = inside(module)
        if decide(module=module, recurse=False, nonwrapped_numel=count - inner):
            return wrap(module), count
        return module, inner

    inside(module)
