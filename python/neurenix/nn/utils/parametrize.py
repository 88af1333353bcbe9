"""Parametrizations: parameters and buffers of a module that are computed from others, by modules.

>>> import neurenix as nx
>>> from neurenix.nn.utils import parametrize
>>> class Symmetric(nx.nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).mT
>>> layer = nx.nn.Linear(2, 2)
>>> _ = parametrize.register_parametrization(layer, "weight", Symmetric())
>>> nx.equal(layer.weight, layer.weight.mT).all().item()
True
>>> [name for name, _ in layer.named_parameters()]
['bias', 'parametrizations.weight.original']
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._autograd import no_grad
from ..._engine import Tensor
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class _Cache(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[int, Tensor] = {}


_CACHE = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Within the block, each parametrized tensor is computed once, when it is first used.

    >>> import neurenix as nx
    >>> from neurenix.nn.utils import parametrizations, parametrize
    >>> layer = parametrizations.weight_norm(nx.nn.Linear(2, 2))
    >>> with parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    _CACHE.depth += 1
    try:
        yield
    finally:
        _CACHE.depth -= 1
        if not _CACHE.depth:
            _CACHE.values = {}


def _registered(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they compute it from: ``original``, or ``original0``, ``original1``
    and so on if the first one takes several tensors.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        start: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        start = module.right_inverse(start)
                    except NotImplementedError:
                        continue
        if not isinstance(start, (Tensor, list, tuple)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(start).__name__}"
            )
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if isinstance(start, Tensor) else len(start)
        before = original.shape, original.dtype
        if isinstance(start, Tensor):
            if start.dtype != original.dtype and not unsafe:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {start.dtype}"
                )
            # The parameter stays the same object, which an optimiser may have.
            original.data = start.detach()
            _registered(self, "original", original)
        else:
            for number, each in enumerate(start):
                if not isinstance(each, Tensor):
                    raise ValueError(f"right_inverse: expected tensors, got {type(each).__name__}")
                is_parameter = isinstance(original, Parameter)
                part = Parameter(each.detach(), requires_grad=original.requires_grad) if is_parameter else each.detach()
                _registered(self, f"original{number}", part)
        if not unsafe:
            result = self()
            if not isinstance(result, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
            _check_alike(result, *before)

    def _originals(self) -> list[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Changes the originals so that the tensor becomes this value. Assignment to the tensor calls it."""
        start: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse, so that no value can be "
                    "assigned"
                )
            start = module.right_inverse(start)
        values = [start] if self.is_tensor else list(start)
        if len(values) != self.ntensors:
            raise ValueError(f"right_inverse returned {len(values)} tensors, expected {self.ntensors}")
        for place, new in zip(self._originals(), values, strict=True):
            if tuple(place.shape) != tuple(new.shape) or place.dtype != new.dtype:
                given, needed = (tuple(new.shape), new.dtype), (tuple(place.shape), place.dtype)
                raise ValueError(f"right_inverse returned shape and dtype {given}, expected {needed}")
            place.data = new.detach()

    def forward(self) -> Tensor:
        """The tensor."""
        modules = list(self)
        value: Tensor = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value

    def value(self) -> Tensor:
        """The tensor; within :func:`cached`, that of the first use."""
        if not _CACHE.depth:
            result: Tensor = self()
            return result
        if id(self) not in _CACHE.values:
            _CACHE.values[id(self)] = self()
        return _CACHE.values[id(self)]


def _check_alike(value: Tensor, shape: Any, dtype: Any) -> None:
    if value.dtype != dtype:
        raise ValueError(
            "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n"
            f"before: {dtype}, after: {value.dtype}"
        )
    if tuple(value.shape) != tuple(shape):
        raise ValueError(
            "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"
            f"before: {tuple(shape)}, after: {tuple(value.shape)}"
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes ``module.<tensor_name>`` what ``parametrization`` computes from the parameter or buffer of that name, which
    becomes ``module.parametrizations.<tensor_name>.original``. Several parametrizations follow one another.

    A parametrization may have a method ``right_inverse``: the first original is what it computes from the tensor's
    value, and so is that of later assignments. Shape and dtype must stay, unless ``unsafe``. Returns the module.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known: Any = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            _check_alike(parametrization(before), before.shape, before.dtype)
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        known = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = known
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrized tensors, or one of this name."""
    known = module._modules.get("parametrizations")
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes the tensor a parameter or buffer again, with its current value, or the original's unless
    ``leave_parametrized``. Returns the module.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    known: Any = module.parametrizations[tensor_name]
    if not leave_parametrized and not known.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    original = known._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        if known.is_tensor:
            original.data = value
        else:
            is_parameter = isinstance(original, Parameter)
            original = Parameter(value, requires_grad=original.requires_grad) if is_parameter else value
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
    _registered(module, tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class. (In PyTorch, parametrizations change the class.)"""
    return type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Gives ``to_module`` the parametrizations of ``from_module``, and their originals: all, or those of one tensor.
    Returns ``to_module``.
    """
    if not is_parametrized(from_module, tensor_name):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        known: Any = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for part in known:
            register_parametrization(to_module, name, part, unsafe=True)
        for place, value in zip(to_module.parametrizations[name]._originals(), known._originals(), strict=True):
            place.data = value.detach()
    return to_module
