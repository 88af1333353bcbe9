"""Elementwise functions with derivatives of their own, and polynomials, for the special functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _engine
from ._engine import Tensor
from ._floating import floating_dtype


def differentiable(value: Tensor, *links: tuple[Tensor, Callable[[], Tensor]]) -> Tensor:
    """``value``, computed without gradients, with a partial derivative for each operand: a function that is called in
    the backward pass. It computes from the operand, so that the gradient can be differentiated again.

    At infinities the gradient is NaN if the derivative is infinite or NaN, and 0 otherwise.
    """
    for operand, slope in links:
        if not (operand.requires_grad and _engine.is_grad_enabled()):
            continue
        link = operand.unsqueeze(0).expand(1, *value.shape)

        def multiplied(gradient: Tensor, slope: Callable[[], Tensor] = slope) -> Tensor:
            return gradient * slope().unsqueeze(0)

        link.register_hook(multiplied)
        # The difference is 0, and carries the gradient. It is NaN at infinities.
        zero = (link - link.detach()).squeeze(0)
        value = value + _engine.where(zero == 0, zero, 0.0)
    return value


def wide_dtype(dtype: _engine.dtype) -> _engine.dtype:
    """``float32`` for floats of 8 or 16 bits, the other floats themselves, and that of the default dtype for integers."""
    dtype = floating_dtype(dtype)
    return dtype if dtype.itemsize > 2 else _engine.dtype("float32")


def wide(input: Tensor) -> Tensor:
    """In the dtype in which special functions are computed."""
    return input.to(wide_dtype(input.dtype))


def narrowed(result: Tensor, *inputs: Tensor) -> Tensor:
    """A result in the dtype of the inputs, or the default dtype if these are integers."""
    dtype: Any = inputs[0].dtype
    for other in inputs[1:]:
        dtype = _engine.promote_types(dtype, other.dtype)
    return result.to(floating_dtype(dtype))


def elementwise(slope: Callable[[Tensor], Tensor]) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Makes a differentiable function of a formula, given its derivative. 16-bit floats are computed in ``float32``,
    and NaN gives NaN."""

    def made(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        @functools.wraps(formula)
        def function(input: Tensor) -> Tensor:
            x = wide(input)
            plain = x.detach()
            value = _engine.where(plain.isnan(), plain, formula(plain))
            return narrowed(differentiable(value, (x, lambda: slope(x))), input)

        return function

    return made


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial by Horner's rule; the coefficients begin with the highest power."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def select(otherwise: Tensor, cases: Iterable[tuple[Tensor, Any]]) -> Tensor:
    """``otherwise``, replaced where a condition holds; the last one counts."""
    for condition, value in cases:
        otherwise = _engine.where(condition, value, otherwise)
    return otherwise
