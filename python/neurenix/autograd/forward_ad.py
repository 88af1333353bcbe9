"""Derivatives along a direction, while a function is computed.

>>> import neurenix as nx
>>> from neurenix.autograd import forward_ad
>>> with forward_ad.dual_level():
...     x = forward_ad.make_dual(nx.tensor(2.0), nx.tensor(1.0))
...     forward_ad.unpack_dual(x ** 3).tangent.item()
12.0
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from .. import _engine
from .._autograd import enable_grad
from .._engine import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A value and its derivative, which is ``None`` if the value depends on no dual tensor."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    def __init__(self) -> None:
        self.variables: list[Tensor] = []
        self.tangents: list[Tensor] = []


class _Levels(threading.local):
    def __init__(self) -> None:
        self.open: list[_Level] = []


_levels = _Levels()


def _level(number: int | None) -> _Level:
    if not _levels.open:
        raise RuntimeError("forward_ad: there is no level: use it within dual_level()")
    if number is not None and number != len(_levels.open) - 1:
        raise RuntimeError("forward_ad: only the current level can be used")
    return _levels.open[-1]


def enter_dual_level() -> int:
    """Begins a level and returns its number. Levels cannot be nested, as in PyTorch."""
    if _levels.open:
        raise RuntimeError("forward_ad: levels cannot be nested")
    _levels.open.append(_Level())
    return len(_levels.open) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level."""
    _level(level)
    _levels.open.pop()


class dual_level:
    """A context in which dual tensors can be made."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor with the same values, along whose direction ``tangent`` what is computed from it has derivatives. It
    requires gradients, because derivatives are found by two reverse passes."""
    own = _level(level)
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            f"make_dual: the tensor and its tangent have the shapes {tuple(tensor.shape)} and {tuple(tangent.shape)}"
        )
    with enable_grad():
        variable = _engine.as_variable(tensor)
    own.variables.append(variable)
    own.tangents.append(tangent.to(tensor.dtype))
    return variable


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The values of a tensor and their derivative along the tangents of the level."""
    from ..func._transforms import _pushed

    if not _levels.open:
        return UnpackedDualTensor(tensor, None)
    own = _level(level)
    if not tensor.requires_grad or not own.variables or not _depends(tensor, own.variables):
        return UnpackedDualTensor(tensor, None)
    follows = _engine.depends_on_others(tensor, own.variables)
    (tangent,) = _pushed(own.variables, [tensor], own.tangents, follows)
    return UnpackedDualTensor(tensor if follows else tensor.detach(), tangent)


def _depends(tensor: Tensor, variables: list[Tensor]) -> bool:
    seed = _engine.full_like(tensor.detach(), 0)
    found = _engine.gradients_of_all([tensor], [seed], variables, retain_graph=True, create_graph=False)
    return any(each is not None for each in found)
