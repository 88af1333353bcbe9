"""``torch.Tensor``: the tensors' class, whose calls follow PyTorch."""

from __future__ import annotations

from typing import Any

import neurenix as nx

from .. import _engine

_Tensor = _engine.Tensor


class _Type(type):
    """Makes :class:`Tensor` stand for the engine's class, which instances have. Subclasses are ordinary classes."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Tensor) if cls is Tensor else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Tensor) if cls is Tensor else super().__subclasscheck__(subclass)

    def __eq__(cls, other: object) -> bool:
        return other is cls or cls is Tensor and other is _Tensor

    def __hash__(cls) -> int:
        return hash(_Tensor) if cls is Tensor else super().__hash__()

    # Programs add methods to the class.
    def __setattr__(cls, name: str, value: Any) -> None:
        if cls is Tensor:
            setattr(_Tensor, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        if cls is Tensor:
            delattr(_Tensor, name)
        else:
            super().__delattr__(name)


class Tensor(_Tensor, metaclass=_Type):
    """``Tensor([1, 2])`` holds these values in the default dtype, and ``Tensor(2, 3)`` zeros of this shape. A tensor
    keeps its dtype. See ``neurenix.Tensor``.

    >>> Tensor([1, 2]), Tensor(2, 3).shape
    (tensor([1., 2.]), torch.Size([2, 3]))
    """

    def __new__(cls, *args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **named: Any) -> Any:
        options: dict[str, Any] = {"dtype": dtype, "device": device, "requires_grad": requires_grad, **named}
        args = tuple(int(each) if _is_numpy_integer(each) else each for each in args)
        if len(args) == 1:
            (data,) = args
            if isinstance(data, nx.Size):
                args = tuple(data)
            elif isinstance(data, (bool, float, complex, str, type(None))):
                raise TypeError(f"Tensor: expected values or sizes, got {type(data).__name__}: use tensor({data!r})")
            elif not isinstance(data, (int, _Tensor, _engine.Pair)):
                options["dtype"] = nx.get_default_dtype() if dtype is None else dtype
        return _Tensor.__new__(_Tensor if cls is Tensor else cls, *args, **options)


def _is_numpy_integer(value: Any) -> bool:
    return hasattr(value, "__array_interface__") and value.shape == () and value.dtype.kind in "iu"


__all__ = ["Tensor"]
