"""NumPy functions on tensors: universal functions return tensors, as operators do; all others return NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._complex import tensor as new_tensor
from ._engine import Tensor

#: The operator for each universal function, and its reflected form.
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
}


def _arrays(value: Any) -> Any:
    """The value with its tensors converted to arrays."""
    if isinstance(value, Tensor):
        return value.__array__()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_arrays, value)) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {name: _arrays(part) for name, part in value.items()}
    return value


def array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """``numpy.add(array, tensor)`` calls the tensor's operator; ``numpy.arctan(tensor)`` is computed by NumPy."""
    names = _OPERATORS.get(ufunc.__name__)
    if method == "__call__" and names and not options:
        left, right = inputs
        if isinstance(left, Tensor):
            result = getattr(left, names[0])(right)
        else:
            result = getattr(right, names[1])(left)
        if result is not NotImplemented:
            return result
    given = getattr(ufunc, method)(*_arrays(inputs), **_arrays(options))
    if "out" in options or given is None:
        return given
    if isinstance(given, tuple):
        return tuple(new_tensor(part, device="cpu") for part in given)
    return new_tensor(given, device="cpu")


def array_function(self: Tensor, function: Callable[..., Any], types: Any, inputs: Any, options: Any) -> Any:
    """``numpy.sum(tensor)`` is computed by NumPy."""
    return function(*_arrays(inputs), **_arrays(options))


def attach() -> None:
    """Registers both functions with NumPy."""
    setattr(Tensor, "__array_ufunc__", array_ufunc)
    setattr(Tensor, "__array_function__", array_function)
