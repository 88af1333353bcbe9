"""The dtype of floats in which integers are computed."""

from __future__ import annotations

from . import _engine
from ._engine import Tensor


def floating_dtype(dtype: _engine.dtype) -> _engine.dtype:
    """A floating-point dtype itself; for integers and ``bool`` the default dtype."""
    return dtype if dtype.is_floating_point else _engine.get_default_dtype()


def floating(x: Tensor) -> Tensor:
    """Integers and ``bool`` in the default dtype; floats unchanged."""
    return x if x.is_floating_point() else x.to(_engine.get_default_dtype())
