"""Attributes and rarer methods of PyTorch's tensors; ``attach`` adds them to the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _engine
from ._engine import Tensor
from ._parts import index_reduce


# Attributes. Each says what kinds of tensors do not exist here.
def _constant(value: Any, doc: str) -> property:
    return property(lambda self: value, doc=doc)


def _on(kind: str, doc: str) -> property:
    return property(lambda self: self.device.type == kind, doc=doc)


ATTRIBUTES: dict[str, property] = {
    "is_cpu": _on("cpu", "Whether the elements are in the CPU's memory."),
    "is_mps": _on("metal", "Whether the elements are on Apple's GPU."),
    "layout": _constant("strided", "``torch.strided``: there are no sparse tensors."),
    "name": _constant(None, "None: tensors have no names."),
    "output_nr": _constant(0, "0: the result of an operation is one tensor."),
    **{
        f"is_{kind}": _constant(False, "False: there are no such tensors.")
        for kind in ("meta", "mkldnn", "nested", "quantized", "sparse", "sparse_csr", "vulkan", "xla", "xpu")
    },
}


# Methods.
def new(self: Tensor, *args: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of this dtype on this device: zeros of the sizes given, or a copy of data."""
    return Tensor(*args, dtype=dtype or self.dtype, device=device or self.device)


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces each element by what the function returns for it. Slow: for each element Python is called."""
    return map_(self, self, lambda mine, _: callable(mine))


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element by what the function returns for it and the element of another tensor. Slow, as
    ``apply_``.
    """
    other = tensor.broadcast_to(self.shape)
    pairs = zip(self.detach().flatten().tolist(), other.detach().flatten().tolist(), strict=True)
    values = [callable(mine, theirs) for mine, theirs in pairs]
    return self.copy_(_engine.tensor(values, dtype=self.dtype, device=self.device).reshape(self.shape)) if values else self


def bernoulli(self: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """Ones with the probabilities that are the elements, or ``p``, else zeros."""
    probabilities = self if p is None else _engine.full_like(self, p)
    return _engine.bernoulli(probabilities, generator=generator)


def swapdims(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped."""
    return self.swapaxes(dim0, dim1)


def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """In-place ``index_reduce``."""
    return self._put(index_reduce(self, dim, index, source, reduce, include_self=include_self), index)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same tensor."""
    return self.is_same(tensor)


def is_inference(self: Tensor) -> bool:
    """False: tensors made under ``inference_mode`` may be used everywhere."""
    return False


def is_shared(self: Tensor) -> bool:
    """False: processes copy tensors."""
    return False


def is_distributed(self: Tensor) -> bool:
    """False."""
    return False


def to_dense(self: Tensor, dtype: Any = None) -> Tensor:
    """The tensor itself, converted if a dtype is given: there are no sparse tensors."""
    return self if dtype is None else self.to(dtype)


def record_stream(self: Tensor, stream: Any) -> None:
    """Has no effect: memory is not reused before its readers have finished."""


_METHODS = (
    apply_, bernoulli, index_reduce_, is_distributed, is_inference, is_set_to, is_shared, map_, new, record_stream, swapdims,
    to_dense,
)  # fmt: skip


def attach() -> None:
    """Adds what the class does not have yet."""
    for function in _METHODS:
        if not hasattr(Tensor, function.__name__):
            setattr(Tensor, function.__name__, function)
    for name, attribute in ATTRIBUTES.items():
        if not hasattr(Tensor, name):
            setattr(Tensor, name, attribute)
