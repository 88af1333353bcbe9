"""``FloatTensor`` and the other constructors of one dtype, and ``device``."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from .._engine_methods import KINDS


class _Typed(type):
    """A type of tensors of one dtype on one kind of device: calls create such tensors."""

    dtype: _engine.dtype
    device: str | None

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """``FloatTensor([1.0, 2.0])`` holds these values, and ``FloatTensor(2, 3)`` zeros."""
        return Tensor(*args, dtype=cls.dtype, device=device or cls.device)

    def __instancecheck__(cls, instance: object) -> bool:
        alike = isinstance(instance, Tensor) and instance.dtype == cls.dtype
        return alike and (cls.device is None or instance.device.type == cls.device)  # type: ignore[attr-defined]


class _Meta:
    """PyTorch's device without memory. No tensor is on it."""

    type = "meta"
    index = None

    def __repr__(self) -> str:
        return "device(type='meta')"

    def __reduce__(self) -> str:
        return "META"


META = _Meta()


class _Devices(type):
    """The type of devices. ``meta``, which no tensor is on, exists to be compared with."""

    def __call__(cls, type: Any, index: int | None = None) -> Any:
        if type == "meta":
            return META
        return _engine.Device(type if index is None or type == "cpu" else f"{type}:{index}")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (_engine.Device, _Meta))


class device(metaclass=_Devices):
    """A device, such as ``device("cpu")``, ``device("cuda", 0)`` or ``device("vulkan:1")``: see ``neurenix.Device``."""


def typed(kind: str, dtype: str, device: str | None) -> Any:
    """The constructor of tensors of a dtype."""
    return _Typed(f"{kind}Tensor", (), {"dtype": _engine.dtype(dtype), "device": device})


__all__ = ["device"]
for _kind, _dtype in KINDS.items():
    globals()[f"{_kind}Tensor"] = typed(_kind, _dtype, None)
    __all__.append(f"{_kind}Tensor")
