"""Elementwise functions of the Python array API standard and PyTorch."""

from __future__ import annotations

from typing import Any

from . import _engine, _engine_methods
from ._arguments import guard as _guard
from ._engine import Tensor
from ._creation import full_like
from ._floating import floating as _floating, promoted as _promoted
from ._operands import _binary, _pair, _tensor, _unary
from ._table import abs, acos, acosh, asin, asinh, atan, atan2, atanh


def _named(name: str, method: str, doc: str) -> Any:
    function = _unary(method, doc)
    function.__name__ = function.__qualname__ = name
    return function


# Unary functions; those in the engine's tables are in _table.
log10 = _unary("log10", "The logarithm to base 10 of each element.", _engine_methods.log10)
square = _unary("square", "Each element times itself.", _engine_methods.square)
isfinite = _unary("isfinite", "True where an element is neither infinite nor NaN.")
arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh
"""NumPy's aliases."""
relu = _unary("relu", "The greater of 0 and each element.")
sigmoid = _unary("sigmoid", "``1 / (1 + exp(-x))`` of each element.")
logical_not = _unary("logical_not", "True where an element is zero.")
negative = _named("negative", "neg", "``-x`` of each element.")
neg = negative
bitwise_invert = _named("bitwise_invert", "bitwise_not", "The bits of each element inverted.")
bitwise_not = bitwise_invert
absolute = abs
positive = _named("positive", "__pos__", "Each element unchanged.")

# Binary functions. Those that are not operators, and whose methods have the same names and arguments, are in _table.
_add = _binary("add", "__add__", "")
_subtract = _binary("subtract", "__sub__", "")
_divide = _binary("divide", "__truediv__", "")
_power = _binary("pow", "__pow__", "")


def _scaled(x: Any, alpha: float, beside: Any) -> Any:
    return x if alpha == 1 else _engine_methods.scaled(x if isinstance(x, (Tensor, int, float)) else _tensor(x), alpha, beside)


def add(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """``input + alpha * other``."""
    return _add(input, _scaled(other, alpha, input))


def subtract(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """``input - alpha * other``."""
    return _subtract(input, _scaled(other, alpha, input))


def divide(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; ``rounding_mode="floor"`` rounds down, ``"trunc"`` rounds towards zero."""
    if rounding_mode is None:
        return _divide(input, other)
    x1, x2 = _pair(input, other)
    return x1.div(_tensor(x2, x1), rounding_mode)


def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``."""
    return _power(input, exponent)


multiply = _binary("multiply", "__mul__", "``input * other``.")
sub, mul, div = subtract, multiply, divide
floor_divide = _binary("floor_divide", "__floordiv__", "The quotient rounded down, as ``//``.")
remainder = _binary("remainder", "__mod__", "The remainder with the divisor's sign, as ``%``.")
arctan2 = atan2
bitwise_and = _binary("bitwise_and", "__and__", "The bits set in both.")
bitwise_or = _binary("bitwise_or", "__or__", "The bits set in either.")
bitwise_xor = _binary("bitwise_xor", "__xor__", "The bits set in exactly one.")
bitwise_left_shift = _binary("bitwise_left_shift", "__lshift__", "Bits shifted left.")
bitwise_right_shift = _binary("bitwise_right_shift", "__rshift__", "Bits shifted right.")
less = _binary("less", "__lt__", "``input < other``.")
less_equal = _binary("less_equal", "__le__", "``input <= other``.")
greater = _binary("greater", "__gt__", "``input > other``.")
greater_equal = _binary("greater_equal", "__ge__", "``input >= other``.")
equal = _binary("equal", "__eq__", "``input == other``, elementwise.")
not_equal = _binary("not_equal", "__ne__", "``input != other``.")
lt, le, gt, ge, eq, ne = less, less_equal, greater, greater_equal, equal, not_equal


def _logical(name: str, doc: str) -> Any:
    combine = getattr(Tensor, name)

    def function(input: Any, other: Any) -> Tensor:
        x1, x2 = _pair(input, other)
        return combine(x1, _tensor(x2, x1))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


logical_and = _logical("logical_and", "True where both are not zero.")
logical_or = _logical("logical_or", "True where at least one is not zero.")
logical_xor = _logical("logical_xor", "True where exactly one is not zero.")


def sign(x: Any, /) -> Tensor:
    """The sign of each element: -1, 0 or 1; the zero is positive."""
    x = _tensor(x)
    return x.sign() + 0 if x.dtype.is_floating_point else x.sign()


def round(x: Any, /, *, decimals: int = 0) -> Tensor:
    """Each element rounded to the nearest, halves to even."""
    return _tensor(x).round(decimals)


def signbit(x: Any, /) -> Tensor:
    """True where the sign bit is set, including that of -0.0 and NaN."""
    return _engine.signbit(_tensor(x))


def copysign(x1: Any, x2: Any, /) -> Tensor:
    """The magnitude of ``x1`` with the sign of ``x2``."""
    x1, x2 = _pair(x1, x2)
    x2 = _tensor(x2, x1)
    if not x1.is_floating_point() and not x2.is_floating_point():
        x1, x2 = _floating(x1), _floating(x2)
    return _engine.copysign(*_promoted(x1, x2))


def hypot(x1: Any, x2: Any, /) -> Tensor:
    """``sqrt(x1 ** 2 + x2 ** 2)`` without overflow."""
    x1, x2 = _pair(x1, x2)
    return _engine.hypot(*_promoted(x1, _tensor(x2, x1)))


def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow."""
    x1, x2 = _pair(x1, x2)
    return _engine.logaddexp(*_promoted(x1, _tensor(x2, x1)))


def _no_gradient(gradient: Tensor) -> None:
    raise RuntimeError("nextafter has no gradient: detach() its operands first")


def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """The next representable number after ``x1`` towards ``x2``. It has no gradient: ``backward`` through it is an
    error.
    """
    x1, x2 = _pair(x1, x2)
    x2 = _tensor(x2, x1)
    if _engine.is_grad_enabled() and (x1.requires_grad or x2.requires_grad):
        # The sum carries the operands' graph, so that ``backward`` reaches the hook.
        found = nextafter(x1.detach(), x2.detach())
        result = where(full_like(found, True, dtype="bool"), found, x1 + x2)
        result.register_hook(_no_gradient)
        return result
    return _engine.nextafter(x1, x2)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements clamped to ``min`` and ``max``."""
    return _tensor(x).clamp(min, max)


clamp = clip


def where(condition: Tensor, x1: Any = None, x2: Any = None, /) -> Any:
    """``x1`` where the condition holds, elsewhere ``x2``; with the condition alone, the indices where it holds."""
    if x1 is None and x2 is None:
        return condition.nonzero(as_tuple=True)
    return _engine.where(condition, x1, x2)


_guard(globals())
