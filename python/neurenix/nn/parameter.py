"""Parameters: tensors that a module learns."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._complex import ComplexTensor, unwrap
from .._engine import Tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to.

    >>> import neurenix as nx
    >>> nx.nn.Parameter(nx.zeros(2)).requires_grad
    True
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True, device: Any = None) -> Parameter:
        if isinstance(data, ComplexTensor):
            moved = data if device is None else data.to(device=device)
            pair = _engine.Pair(unwrap(moved.detach()))
            return super().__new__(_complex_class(cls), data=pair, requires_grad=requires_grad)  # pyright: ignore
        return super().__new__(cls, data=data, device=device, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class _ComplexParameter(Parameter, ComplexTensor):
    """A parameter of complex numbers."""


def _complex_class(cls: type[Parameter]) -> type[Parameter]:
    if issubclass(cls, ComplexTensor):
        return cls
    return _ComplexParameter if cls is Parameter else type(cls.__name__, (cls, ComplexTensor), {})


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to, which saves it unless ``persistent`` is false.

    >>> import neurenix as nx
    >>> module = nx.nn.Module()
    >>> module.count = nx.nn.Buffer(nx.zeros(2))
    >>> list(module.state_dict())
    ['count']
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        buffer = super().__new__(cls, data=data)
        buffer.persistent = persistent
        return buffer
