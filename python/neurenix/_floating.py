"""The dtype of floats in which integers are computed."""

from __future__ import annotations

import functools

from . import _engine
from ._engine import Tensor


def floating_dtype(dtype: _engine.dtype) -> _engine.dtype:
    """A floating-point dtype itself; for integers and ``bool`` the default dtype."""
    return dtype if dtype.is_floating_point else _engine.get_default_dtype()


def floating(x: Tensor) -> Tensor:
    """Integers and ``bool`` in the default dtype; floats unchanged."""
    return x if x.is_floating_point() else x.to(_engine.get_default_dtype())


def _kind(dtype: _engine.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype.name != "bool" else 0


def with_weak(dtype: _engine.dtype, weak: _engine.dtype) -> _engine.dtype:
    """PyTorch's dtype of tensors with dimensions beside ``weak``, that of numbers or tensors without dimensions. It only
    counts if it is of a higher kind: ``bool``, integers, floats, complex numbers.
    """
    if _kind(dtype) >= _kind(weak):
        return dtype
    return dtype.to_complex() if weak.is_complex and dtype.is_floating_point else weak


def common_dtype(*tensors: Tensor) -> _engine.dtype:
    """The dtype of an operation with these tensors, by the rule that ``set_promotion`` chose."""
    strong = [x.dtype for x in tensors if x.ndim]
    weak = [x.dtype for x in tensors if not x.ndim]
    if _engine.get_promotion() == "standard" or not strong or not weak:
        return functools.reduce(_engine.promote_types, [*strong, *weak])
    return with_weak(functools.reduce(_engine.promote_types, strong), functools.reduce(_engine.promote_types, weak))


def promoted(*tensors: Tensor) -> tuple[Tensor, ...]:
    """These tensors in their common dtype, for operations of the engine that know the standard's rule only."""
    if len({x.dtype for x in tensors}) == 1 or _engine.get_promotion() == "standard":
        return tensors
    kind = common_dtype(*tensors)
    return tuple(x.to(kind) for x in tensors)


def store(self: Tensor, result: Tensor) -> Tensor:
    """Writes the result of an operation in place; ``copy_`` alone would cast floats to integers."""
    if _kind(result.dtype) > _kind(self.dtype):
        raise TypeError(f"in place: a tensor of {self.dtype.name} cannot store values of {result.dtype.name}: convert it first")
    return self.copy_(result)
