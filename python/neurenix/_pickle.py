"""Pickles and deep copies of tensors: values, dtype, device and class, bit for bit."""

from __future__ import annotations

import warnings
from typing import Any

from . import _engine
from ._complex import ComplexTensor, wrap
from ._engine import Tensor


def reduce(tensor: Tensor) -> tuple[Any, ...]:
    """How a tensor is pickled."""
    state = getattr(tensor, "__dict__", None) or None
    data = tensor.detach().tobytes()
    collects = tensor.is_leaf and tensor.requires_grad
    return rebuild, (type(tensor), data, tensor.dtype.name, tuple(tensor.shape), str(tensor.device), collects, state)


def rebuild(
    cls: type[Tensor],
    data: bytes,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    requires_grad: bool,
    state: dict[str, Any] | None,
) -> Tensor:
    """A tensor from the result of :func:`reduce`. A device that is not available is replaced by the CPU, with a
    warning.
    """
    try:
        place = _engine.Device(device)
    except ValueError:
        warnings.warn(f"{device} is not available: its tensor is loaded on the CPU", RuntimeWarning, stacklevel=2)
        place = _engine.Device("cpu")
    tensor = _restored(data, dtype, shape, place)
    if cls not in (Tensor, ComplexTensor):
        tensor = cls(tensor, requires_grad=requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    if state:
        tensor.__dict__.update(state)
    return tensor


def _restored(data: bytes, dtype: str, shape: tuple[int, ...], device: Any) -> Tensor:
    kind = _engine.dtype(dtype)
    if kind.is_complex:
        return wrap(_engine.from_bytes(data, kind.to_real(), (*shape, 2), device))
    return _engine.from_bytes(data, kind, shape, device)


def generator(seed: int, counter: int) -> _engine.Generator:
    """A generator from its state."""
    made = _engine.Generator(seed)
    made.set_state((seed, counter))
    return made


def deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """An independent copy, known to ``copy.deepcopy``, with the gradient."""
    if not tensor.is_leaf:
        raise RuntimeError("only leaves can be deep-copied: use detach() or clone()")
    requires_grad = tensor.requires_grad
    values = tensor.detach().clone()
    if type(tensor) in (Tensor, ComplexTensor):
        copied = values.requires_grad_(requires_grad) if requires_grad else values
    else:
        copied = type(tensor)(values, requires_grad=requires_grad)
        copied.__dict__.update(tensor.__dict__)
    if tensor.grad is not None:
        copied.grad = tensor.grad
    memo[id(tensor)] = copied
    return copied
