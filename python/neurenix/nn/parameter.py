"""Parameters: tensors that a module learns."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to.

    >>> import neurenix as nx
    >>> nx.nn.Parameter(nx.zeros(2)).requires_grad
    True
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True, device: Any = None) -> Parameter:
        return super().__new__(cls, data=data, device=device, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
