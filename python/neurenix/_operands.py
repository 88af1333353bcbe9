"""Conversion of operands to tensors, and functions that call a tensor method."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._complex import ComplexTensor, as_complex, full, tensor as _new
from ._engine import NoComplexNumbers, Tensor


def _tensor(x: Any, beside: Tensor | None = None) -> Tensor:
    """``x`` as a tensor: a number takes the device of the other tensor, and its dtype if the kind fits."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, complex) and beside is not None:
        return as_complex(x, beside)
    if beside is None or not isinstance(x, (bool, int, float)):
        return _new(x, device=None if beside is None else beside.device)
    kind: Any = beside.dtype
    if isinstance(x, float) and not kind.is_floating_point:
        kind = _engine.get_default_dtype()
    elif isinstance(x, bool):
        kind = "bool" if kind.name == "bool" else kind
    elif isinstance(x, int) and kind.name == "bool":
        kind = "int64"
    return full((), x, dtype=kind, device=beside.device)


def _unary(name: str, doc: str, method: Any = None) -> Any:
    """The function that calls a method, by default that of this name."""
    method = getattr(Tensor, name) if method is None else method

    def function(input: Any, *, out: None = None) -> Tensor:
        if out is not None:
            raise TypeError(f"{function.__name__}: out= is not supported; use the returned tensor")
        x = input if isinstance(input, Tensor) else _tensor(input)
        # The class of complex tensors has its own methods.
        return getattr(x, name)() if isinstance(x, ComplexTensor) else method(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _pair(x1: Any, x2: Any) -> tuple[Tensor, Any]:
    """Two operands, at least one of which is a tensor; the first one is converted to a tensor."""
    if isinstance(x1, Tensor):
        return x1, x2
    if isinstance(x2, Tensor):
        return _tensor(x1, x2), x2
    return _tensor(x1), x2


def _binary(name: str, method: str, doc: str) -> Any:
    combine = getattr(Tensor, method)

    def function(input: Any, other: Any) -> Tensor:
        x1, x2 = _pair(input, other)
        try:
            result: Any = combine(x1, x2)
        except NoComplexNumbers:
            result = getattr(as_complex(x1, _tensor(x2)), method)(x2)
        # An operator leaves an unknown type to the other operand; a function cannot.
        if result is NotImplemented:
            result = combine(x1, _tensor(x2, x1))
        if result is NotImplemented:
            raise TypeError(f"{name}: expected a tensor or a number, got {type(x2).__name__}")
        return result

    function.__name__ = function.__qualname__ = name
    # Where users, and pickle, find it.
    function.__module__ = "neurenix"
    function.__doc__ = doc
    return function
