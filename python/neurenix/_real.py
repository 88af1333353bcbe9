"""Methods of complex numbers that all tensors have; here those of real tensors. ``attach`` adds them to the class."""

from __future__ import annotations

import builtins
import math

from . import _engine
from ._engine import Tensor
from ._floating import floating


def is_complex(self: Tensor) -> builtins.bool:
    """Whether the elements are complex numbers."""
    return self.dtype.is_complex


def conj(self: Tensor) -> Tensor:
    """The conjugates; real tensors are returned as they are."""
    return self


resolve_conj = conj
conj_physical = conj


def angle(self: Tensor) -> Tensor:
    """The angles from the positive real axis: for real numbers pi below 0, else 0, and NaN for NaN."""
    x = floating(self.detach())
    return _engine.where(x.isnan(), x, (x < 0).to(x.dtype) * math.pi)


def cfloat(self: Tensor) -> Tensor:
    """Converts to ``complex64``."""
    return self.to("complex64")


def cdouble(self: Tensor) -> Tensor:
    """Converts to ``complex128``."""
    return self.to("complex128")


def __complex__(self: Tensor) -> complex:
    return complex(self.item())


def _real_parts(self: Tensor) -> Tensor:
    """The real parts; a real tensor is returned as it is."""
    return self


def _imaginary_parts(self: Tensor) -> Tensor:
    """The imaginary parts, of complex tensors only."""
    raise RuntimeError("imag: a real tensor has no imaginary parts: convert it with x.to(neurenix.complex64) first")


def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    if self.ndim not in (0, 2):
        raise ValueError(f"H: expected a matrix, got shape {list(self.shape)}: use mH for batches")
    return self.mT if self.ndim else self


PROPERTIES = {"real": _real_parts, "imag": _imaginary_parts, "H": _adjoint}


def attach() -> None:
    """Adds the methods and properties to the tensor class."""
    for name, function in globals().items():
        if getattr(function, "__module__", "") == __name__ and (name == "__complex__" or not name.startswith("_")):
            if name != "attach":
                setattr(Tensor, name, function)
    for name, function in PROPERTIES.items():
        setattr(Tensor, name, property(function))
