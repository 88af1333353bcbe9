"""Container modules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._engine import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Numbered(Module):
    """Submodules named by their numbers."""

    _kinds: tuple[type, ...] = (Module,)

    def _check(self, module: Any) -> None:
        """Raises an error, before anything is changed, for an object that is not a module."""
        if not isinstance(module, self._kinds):
            raise TypeError(f"expected Module, got {type(module).__name__}")

    def _names(self) -> list[str]:
        return list(self._modules)

    def _name(self, index: int) -> str:
        names = self._names()
        try:
            return names[index]
        except IndexError:
            raise IndexError(f"index {index} is out of range for {len(names)} submodules") from None

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self._modules[name] for name in self._names()[index]])  # type: ignore[call-arg]
        return self._modules[self._name(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        name = self._name(index)
        setattr(self, name, module)

    def __delitem__(self, index: int | slice) -> None:
        names = self._names()[index] if isinstance(index, slice) else [self._name(index)]
        for name in names:
            del self._modules[name]
        if all(name.isdigit() for name in self._modules):
            parts = list(self._modules.values())
            self._modules.clear()
            self._modules.update({str(number): part for number, part in enumerate(parts)})

    def append(self, module: Module | None) -> Any:
        """Appends a module."""
        self._check(module)
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module | None]) -> Any:
        """Appends modules."""
        parts = list(modules)
        for module in parts:
            self._check(module)  # Check all before adding the first.
        for module in parts:
            self.append(module)
        return self

    def insert(self, index: int, module: Module | None) -> Any:
        """Inserts a module before another."""
        self._check(module)
        parts = list(self._modules.values())
        parts.insert(index, module)
        self._modules.clear()
        return self.extend(parts)


class Sequential(_Numbered):
    """Modules in sequence: ``Sequential(a, b)``, ``Sequential([a, b])`` or ``Sequential({"a": a, "b": b})``.

    >>> import neurenix as nx
    >>> model = nx.nn.Sequential(nx.nn.Linear(4, 3), nx.nn.ReLU())
    >>> model(nx.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.register_module(name, module)
        else:
            modules: Any = args[0] if len(args) == 1 and not isinstance(args[0], Module) else args
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)({name: self._modules[name] for name in self._names()[index]})
        return super().__getitem__(index)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


#: More layers than this would take too long to create.
_MOST_LAYERS = 1 << 14


def check_layers(name: str, count: int) -> int:
    """The number of layers; raises an error if there are too many."""
    if count > _MOST_LAYERS:
        raise ValueError(f"{name}: {count} layers: at most {_MOST_LAYERS} are supported")
    return count


class ModuleList(_Numbered):
    """A list of modules whose parameters belong to the module that holds it. It cannot be called. ``None`` keeps the
    position of a missing module.

    >>> from neurenix import nn
    >>> layers = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 1)])
    >>> len(layers), layers[-1].out_features, [name for name, _ in layers.named_parameters()]
    (2, 1, ['0.weight', '0.bias', '1.weight', '1.bias'])
    """

    _kinds = (Module, type(None))

    def __init__(self, modules: Iterable[Module | None] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def __add__(self, other: Iterable[Module | None]) -> ModuleList:
        return ModuleList(itertools.chain(self, other))

    def __iadd__(self, other: Iterable[Module | None]) -> Any:
        return self.extend(other)


class ModuleDict(Module):
    """Modules by name whose parameters belong to the module that holds it. It cannot be called.

    >>> from neurenix import nn
    >>> parts = nn.ModuleDict({"first": nn.Linear(2, 3), "norm": nn.LayerNorm(3)})
    >>> list(parts), "norm" in parts, parts["first"].in_features
    (['first', 'norm'], True, 2)
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules."""
        for name, module in dict(modules).items():
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def pop(self, name: str) -> Any:
        """Removes a module and returns it."""
        return self._modules.pop(name)

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()


def _described(parameters: Mapping[str, Any]) -> str:
    return "\n  ".join(
        f"({name}): Parameter containing: [{value.dtype} of size {'x'.join(map(str, value.shape))}]"
        for name, value in parameters.items()
        if value is not None
    )


class ParameterList(Module):
    """A list of parameters that belong to the module that holds it; plain tensors become parameters.

    >>> import neurenix as nx
    >>> weights = nx.nn.ParameterList([nx.zeros(2), nx.ones(3)])
    >>> len(weights), weights[1].requires_grad, len(list(weights.parameters()))
    (2, True, 2)
    """

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        self.extend(() if values is None else values)

    def append(self, value: Tensor) -> ParameterList:
        """Adds a parameter at the end; a plain tensor becomes one."""
        self._parameters[str(len(self))] = value if isinstance(value, Parameter) else Parameter(value)
        return self

    def extend(self, values: Iterable[Tensor]) -> ParameterList:
        """Adds parameters at the end."""
        for value in list(values):
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int | slice) -> Any:
        values = list(self._parameters.values())[index]
        return ParameterList(values) if isinstance(values, list) else values  # type: ignore[arg-type]

    def __setitem__(self, index: int, value: Tensor) -> None:
        name = list(self._parameters)[index]
        self._parameters[name] = value if isinstance(value, Parameter) else Parameter(value)

    def extra_repr(self) -> str:
        return _described(self._parameters)


class ParameterDict(Module):
    """Parameters by name, which belong to the module that holds it.

    >>> import neurenix as nx
    >>> nx.nn.ParameterDict({"left": nx.zeros(2), "right": nx.ones(3)})["right"].shape
    torch.Size([3])
    """

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None) -> None:
        super().__init__()
        self.update({} if parameters is None else parameters)

    def update(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
        """Adds or replaces parameters; plain tensors become parameters."""
        for name, value in dict(parameters).items():
            self[name] = value

    def __setitem__(self, name: str, value: Tensor) -> None:
        if "." in name:
            raise KeyError(f"a parameter's name must not contain a dot: {name!r}")
        self._parameters[name] = value if isinstance(value, Parameter) else Parameter(value)

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter with this name, or the default if there is none."""
        return self._parameters.get(name, default)

    def pop(self, name: str) -> Any:
        """Removes a parameter and returns it."""
        return self._parameters.pop(name)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return self._parameters.items()

    def extra_repr(self) -> str:
        return _described(self._parameters)
