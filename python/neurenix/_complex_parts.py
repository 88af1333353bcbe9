"""Functions of complex numbers and their parts."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._complex import ComplexTensor, combined, unwrap, wrap
from ._engine import Tensor
from ._operands import _tensor

__all__ = [
    "angle",
    "complex",
    "conj",
    "conj_physical",
    "imag",
    "is_complex",
    "polar",
    "real",
    "resolve_conj",
    "view_as_complex",
    "view_as_real",
]


def angle(x: Any, /) -> Tensor:
    """The angle from the positive real axis, from -pi to pi."""
    return _tensor(x).angle()


def conj(x: Any, /) -> Tensor:
    """The conjugate of each element; a real tensor is returned as it is."""
    return _tensor(x).conj()


conj_physical = resolve_conj = conj


def real(x: Any, /) -> Tensor:
    """The real parts, a view; a real tensor is returned as it is."""
    return _tensor(x).real


def imag(x: Any, /) -> Tensor:
    """The imaginary parts, a view."""
    return _tensor(x).imag


def is_complex(x: Tensor, /) -> bool:
    """Whether the elements are complex numbers."""
    return isinstance(x, ComplexTensor)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their parts, of one dtype; shapes are broadcast.

    >>> import neurenix as nx
    >>> nx.complex(nx.tensor(1.0), nx.tensor(-2.0)).item()
    (1-2j)
    """
    if real.dtype != imag.dtype or real.dtype.name not in ("float32", "float64"):
        raise TypeError(f"complex: expected float32 or float64 twice, got {real.dtype.name} and {imag.dtype.name}")
    shape = _engine.broadcast_shapes(tuple(real.shape), tuple(imag.shape))
    return combined(real.broadcast_to(shape), imag.broadcast_to(shape))


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """``abs * (cos(angle) + 1j * sin(angle))``."""
    return complex(abs * angle.cos(), abs * angle.sin())


def view_as_real(x: Tensor, /) -> Tensor:
    """The parts along an added last axis of size 2; a view.

    >>> import neurenix as nx
    >>> nx.view_as_real(nx.tensor([1 + 2j])).tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(x, ComplexTensor):
        raise TypeError(f"view_as_real: expected complex numbers, got {x.dtype.name}")
    return unwrap(x)


def view_as_complex(x: Tensor, /) -> Tensor:
    """Complex numbers whose parts are along the last axis, which has size 2; a view."""
    return wrap(x)


_guard(globals())
