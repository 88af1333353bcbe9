"""Parameters: tensors that a module learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .. import _engine
from .._complex import ComplexTensor, unwrap
from .._engine import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


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


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet: it has no elements."""

    cls_to_become: ClassVar[type[Any]]
    # The dictionaries of a lazy module's members in which the tensor is, and its names there.
    _places: Sequence[tuple[dict[str, Any], str]] = ()

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Replaces the tensor in its :class:`~neurenix.nn.lazy.LazyModuleMixin` by zeros of this shape. Elsewhere this is
        an error: a tensor keeps its shape."""
        own: Any = self
        if not self._places:
            raise RuntimeError(f"{type(self).__name__}: only a LazyModuleMixin's first call can give it a shape: assign a new one")
        made = _engine.zeros(*shape, device=device or own.device, dtype=dtype or own.dtype)
        made = self.cls_to_become(made, **self._options())
        for members, name in self._places:
            members[name] = made

    def _options(self) -> dict[str, Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet: it has no elements. The first call of its lazy layer replaces it."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return super().__new__(cls, _engine.full((0,), 0.0, device=device, dtype=dtype), requires_grad)

    def _options(self) -> dict[str, Any]:
        return {"requires_grad": self.requires_grad}


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet: it has no elements. The first call of its lazy layer replaces it."""

    cls_to_become = Buffer

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        made = super().__new__(cls, _engine.full((0,), 0.0, device=device, dtype=dtype), persistent=persistent)
        return made.requires_grad_(requires_grad)

    def _options(self) -> dict[str, Any]:
        return {"persistent": self.persistent}


def is_lazy(param: Any) -> bool:
    """Whether a tensor's shape is not known yet."""
    return isinstance(param, UninitializedTensorMixin)
