"""The former class of tensors with gradients."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(tensor)`` is a tensor with the same values: tensors have gradients themselves. ``volatile`` is
    refused: compute within ``no_grad()``.

    >>> import neurenix as nx
    >>> x = nx.autograd.Variable(nx.ones(2), requires_grad=True)
    >>> isinstance(x, nx.Tensor), isinstance(x, nx.autograd.Variable), x.requires_grad
    (True, True, True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool | None = None, volatile: Any = None) -> Any:
        if volatile is not None and volatile is not False:
            raise ValueError("Variable: volatile was removed: compute within no_grad()")
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: expected a tensor, got {type(data).__name__}")
        tensor = data.detach()
        return tensor.requires_grad_() if requires_grad else tensor
