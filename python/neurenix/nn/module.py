"""The base class of layers and networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from .. import _engine
from .._engine import Tensor
from ._calls import (
    Calls,
    register_module_buffer_registration_hook as register_module_buffer_registration_hook,
    register_module_forward_hook as register_module_forward_hook,
    register_module_forward_pre_hook as register_module_forward_pre_hook,
    register_module_full_backward_hook as register_module_full_backward_hook,
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
    register_module_module_registration_hook as register_module_module_registration_hook,
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
    registered,
)
from ._states import States
from .parameter import Buffer, Parameter

__all__ = ["Module"]

T = TypeVar("T", bound="Module")


class Parameters(list[Tensor]):
    """The parameters of a module: a list that ``next`` accepts."""

    def __next__(self) -> Tensor:
        if not hasattr(self, "_rest"):
            self._rest = iter(self)
        return next(self._rest)


class Module(Calls, States):
    """A part of a network: assign parameters and other modules to it, and define ``forward``.

    >>> import neurenix as nx
    >>> class Scale(nx.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nx.nn.Parameter(nx.Tensor(3.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(nx.Tensor([1.0, 2.0])).tolist()
    [3.0, 6.0]
    """

    training: bool
    _parameters: dict[str, Tensor | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules", *self._HOOKS):
            object.__setattr__(self, name, {})
        object.__setattr__(self, "_not_saved", set())
        object.__setattr__(self, "training", True)

    # Contents.
    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "_modules" not in state:
            if isinstance(value, (Parameter, Module)):
                raise AttributeError(f"{type(self).__name__}: call super().__init__() before assigning {name}")
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter) and self._parametrization(name) is None:
            self._forget(name, self._parameters)
            self._parameters[name] = registered("parameter", self, name, value)
        elif isinstance(value, Buffer) and name not in self._buffers:
            self._forget(name, self._buffers)
            self.register_buffer(name, value, value.persistent)
        elif isinstance(value, Module):
            self._forget(name, self._modules)
            self._modules[name] = registered("module", self, name, value)
        elif name in self._parameters:
            if value is not None:
                raise TypeError(f"{name} is a parameter: expected Parameter or None, got {type(value).__name__}")
            self._parameters[name] = None
        elif name in self._modules:
            if value is not None:
                raise TypeError(f"{name} is a submodule: expected Module or None, got {type(value).__name__}")
            self._modules[name] = registered("module", self, name, None)
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"{name} is a buffer: expected a tensor or None, got {type(value).__name__}")
            self._buffers[name] = registered("buffer", self, name, value)
        elif "parametrizations" in self._modules and (computed := self._parametrization(name)) is not None:
            computed.right_inverse(value)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            members = self.__dict__.get(kind)
            if members is not None and name in members:
                return members[name]
        computed = self._parametrization(name)
        if computed is not None:
            return computed.value()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _parametrization(self, name: str) -> Any:
        """What computes a tensor of this name: see ``nn.utils.parametrize``."""
        known = self.__dict__.get("_modules", {}).get("parametrizations")
        members = getattr(known, "_modules", {})
        found = members.get(name)
        return found if hasattr(found, "right_inverse") else None

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._buffers, self._modules):
            if name in members:
                del members[name]
                self._not_saved.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        computed = getattr(self._modules.get("parametrizations"), "_modules", {})
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules, *computed})

    def _forget(self, name: str, but: Any) -> None:
        """Removes a name from all tables except one, in which its value is replaced and keeps its position."""
        for members in (self.__dict__, self._parameters, self._buffers, self._modules):
            if members is not but:
                members.pop(name, None)

    def _check_name(self, name: str, known: Mapping[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"expected a str as name, got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"{name!r} is not a valid name: it must not be empty or contain a dot")
        if hasattr(self, name) and name not in known:
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Adds a parameter, or a placeholder for a missing one. A plain tensor is accepted if it is a leaf."""
        self._check_name(name, self._parameters)
        if param is not None:
            if not isinstance(param, Tensor):
                raise TypeError(f"parameter {name!r}: expected a tensor, got {type(param).__name__}")
            if not param.is_leaf:
                raise ValueError(f"parameter {name!r} is not a leaf: call detach() first")
            param = registered("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that belongs to the state but is not trained, such as a running mean."""
        self._check_name(name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"buffer {name!r}: expected a tensor, got {type(tensor).__name__}")
        self._buffers[name] = registered("buffer", self, name, tensor)
        if persistent:
            self._not_saved.discard(name)
        else:
            self._not_saved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule."""
        self._check_name(name, self._modules)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"submodule {name!r}: expected Module, got {type(module).__name__}")
        self._modules[name] = registered("module", self, name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule."""
        self.register_module(name, module)

    # Submodules and parameters by name.
    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all its submodules, with their names."""
        memo = set() if memo is None else memo
        if remove_duplicate:
            if self in memo:
                return
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all its submodules."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct submodules."""
        return (module for _, module in self.named_children())

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_name, module in modules:
            for name, tensor in getattr(module, kind).items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield (f"{module_name}.{name}" if module_name else name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their names; a shared parameter appears once."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Parameters:
        """The parameters, as a list that ``next`` also accepts."""
        return Parameters(tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers."""
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The submodule with a dotted name; the module itself for ``""``."""
        module: Module = self
        for name in filter(None, target.split(".")):
            part = module._modules.get(name)
            if part is None:
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = part
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replaces the submodule with a dotted name; adds it if there is none, unless ``strict``."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"set_submodule: expected Module, got {type(module).__name__}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute {name!r}")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"{name!r} is not a module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Tensor:
        """The parameter with a dotted name."""
        path, _, name = target.rpartition(".")
        parameter = self.get_submodule(path)._parameters.get(name)
        if parameter is None:
            raise AttributeError(f"no parameter {target!r}")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name."""
        path, _, name = target.rpartition(".")
        buffer = self.get_submodule(path)._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"no buffer {target!r}")
        return buffer

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Calls ``fn`` with every submodule, inner ones first, and with this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # Modes, devices, dtypes.
    def train(self: T, mode: bool = True) -> T:
        """Switches to training mode (dropout is active, batch normalisation uses the batch), or with ``False`` to
        evaluation mode.
        """
        if not isinstance(mode, bool):
            raise ValueError("train: mode must be True or False")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: T) -> T:
        """Switches to evaluation mode."""
        return self.train(False)

    def is_training(self) -> bool:
        """Whether the module is in training mode."""
        return self.training

    def _convert(self: T, dtype: Any = None, device: Any = None) -> T:
        """Changes everything, including the gradients, or nothing: values are replaced only after all new ones have
        been computed.
        """
        changes: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for kind in ("_parameters", "_buffers"):
            for _, tensor in self._named(kind, "", True, True):
                place = {"dtype": dtype if tensor.is_floating_point() else None, "device": device}
                value = tensor.detach().to(**place)
                if value.dtype.itemsize == 1 and value.is_floating_point() and tensor.requires_grad:
                    raise TypeError(
                        f"to: {value.dtype.name} has no gradients: call requires_grad_(False) first, or keep the "
                        "parameters and compute within autocast(dtype=float8_e4m3fn)"
                    )
                if (value.dtype, value.device) != (tensor.dtype, tensor.device):
                    changes.append((tensor, value, None if tensor.grad is None else tensor.grad.to(**place)))
        _engine.evaluate([each for _, value, grad in changes for each in (value, grad) if each is not None])
        for tensor, value, grad in changes:
            tensor._exchange(value)
            if grad is not None:
                tensor.grad = grad
        return self

    def to(
        self: T, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> T:
        """Moves parameters and buffers to a device, and converts floating-point ones to a dtype: ``to("cuda")``,
        ``to(nx.float16)``, ``to("cuda", nx.float16)``, ``to(tensor)``. ``non_blocking`` and ``memory_format`` have no
        effect.
        """
        for argument in args:
            if isinstance(argument, Tensor):
                dtype, device = argument.dtype, argument.device
            elif isinstance(argument, _engine.dtype):
                dtype = argument
            elif isinstance(argument, bool):
                non_blocking = argument
            elif argument is not None:
                found = _engine.dtype_or_device(argument)
                if isinstance(found, _engine.dtype):
                    dtype = found
                else:
                    device = found
        if dtype is not None and not _engine.dtype(dtype).is_floating_point:
            raise TypeError(f"to: expected a floating-point dtype, got {dtype}")
        return self._convert(dtype, device)

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Replaces the values of all parameters and buffers, and gradients, by what ``fn`` returns for them."""
        for kind in ("_parameters", "_buffers"):
            for _, tensor in self._named(kind, "", recurse, True):
                value, grad = fn(tensor.detach()), tensor.grad
                tensor._exchange(value.detach())
                if grad is not None:
                    tensor.grad = fn(grad)
        return self

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Moves everything to a device, with zeros for values."""
        return self._apply(
            lambda tensor: _engine.full(tensor.shape, 0, dtype=tensor.dtype, device=device), recurse=recurse
        )

    def share_memory(self: T) -> T:
        """The module itself, with a warning: other processes get copies, and do not see later changes."""
        for parameter in self.parameters():
            parameter.share_memory_()
            break
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the module's calls in place: see :func:`neurenix.compile`."""
        from .._compile import compile

        object.__setattr__(self, "forward", compile(self.forward, *args, **kwargs))

    def cpu(self: T) -> T:
        """Moves everything to the CPU."""
        return self._convert(device="cpu")

    def cuda(self: T, device: int | None = None) -> T:
        """Moves everything to an NVIDIA GPU."""
        return self._convert(device=f"cuda:{device or 0}")

    def half(self: T) -> T:
        """Converts all floating-point values to ``float16``."""
        return self._convert("float16")

    def bfloat16(self: T) -> T:
        """Converts all floating-point values to ``bfloat16``."""
        return self._convert("bfloat16")

    def float(self: T) -> T:
        """Converts all floating-point values to ``float32``."""
        return self._convert("float32")

    def double(self: T) -> T:
        """Converts all floating-point values to ``float64``."""
        return self._convert("float64")

    def type(self: T, dst_type: Any) -> T:
        """Converts all floating-point values to another dtype."""
        return self._convert(dst_type)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Turns gradients of all parameters on or off."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients, or sets them to zeros."""
        zero_gradients(self.parameters(), set_to_none)

    def clone(self: T) -> T:
        """A copy with its own parameters."""
        return copy.deepcopy(self)

    # Text.
    def extra_repr(self) -> str:
        """The text between the parentheses of ``repr``."""
        return ""

    def _get_name(self) -> str:
        is_parametrized = "parametrizations" in self._modules
        return f"Parametrized{type(self).__name__}" if is_parametrized else type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        if not lines:
            return f"{self._get_name()}({extra})"
        head = [extra] if extra else []
        return f"{self._get_name()}(\n  " + "\n  ".join(head + lines) + "\n)"


def zero_gradients(parameters: list[Tensor], set_to_none: bool) -> None:
    """Removes the gradients, or sets them to zeros."""
    for parameter in parameters:
        if set_to_none:
            parameter._clear_grad()
        elif parameter.grad is not None:
            parameter.grad = _engine.full_like(parameter.grad, 0)
