"""``ValueBatch`` and ``Tensor``: many numbers in one object, based on the engine's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar, Token
from numbers import Real
from typing import Any, TypeVar

import neurenix as nx
from neurenix import _engine

from ._native import Device

_DTYPES = {"f64": nx.float64, "f32": nx.float32, "f16": nx.float16, "bf16": nx.bfloat16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

# The dtype of matrix products within an `autocast`.
_product_dtype: ContextVar[Any] = ContextVar("product_dtype", default=None)

# The initial scale of gradients through f16, whose smallest positive number is 6e-8.
_SCALE = 65536.0

_Self = TypeVar("_Self", bound="_Array")


def _dtype(dtype: Any) -> Any:
    """The dtype given by its short name, its NumPy name, or itself."""
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    try:
        known = _engine.dtype(dtype)
    except TypeError:
        known = None
    if known not in _NAMES:
        raise TypeError(f"unsupported dtype {dtype!r}: use one of {', '.join(_DTYPES)}")
    return known


class autocast:
    """A context manager in which matrix products compute in f16 or bf16. Results keep the operands' dtype.

    All other operations are unaffected. Gradients through f16 are scaled so that small ones do not underflow, and
    unscaled afterwards. If they overflow, they are computed again with half the scale.

    >>> from micrograd_rs import Tensor, autocast
    >>> a = Tensor([[1.0, 2.0]], dtype="f32")
    >>> with autocast("bf16"):
    ...     b = a @ Tensor([[3.0], [4.0]], dtype="f32")
    >>> b.dtype, b.data
    ('f32', [[11.0]])
    """

    def __init__(self, dtype: Any = "bf16", enabled: bool = True) -> None:
        self._dtype = _dtype(dtype) if enabled else None
        if self._dtype in (nx.float32, nx.float64):
            raise ValueError("autocast: expected f16 or bf16")
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> autocast:
        self._tokens.append(_product_dtype.set(self._dtype))
        return self

    def __exit__(self, *error: object) -> None:
        _product_dtype.reset(self._tokens.pop())


def _number(given: Any) -> float | None:
    """A Python or NumPy number, or a NumPy array without axes, as a float; None for anything else."""
    # Of the objects with a dtype, only NumPy's have a kind.
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    if isinstance(given, Real) or (kind in ("b", "i", "u", "f") and given.shape == ()):
        return float(given)
    return None


def _plain(tensor: Any) -> Any:
    return tensor.detach().tolist()


def _restored(kind: type[_Self], tensor: Any, gradient: Any) -> _Self:
    """Restores a pickle or a copy: numbers, gradients and device, but not the graph."""
    result = object.__new__(kind)
    result._set(tensor.requires_grad_(), (), Device._named(tensor.device.name))
    result._grad = gradient
    return result


class _Array:
    """The base class of batches and tensors."""

    __slots__ = ("_tensor", "_parents", "_device", "_grad", "_scaled", "__weakref__")
    __array_ufunc__ = None

    def __init__(self, data: Any, device: Any = None, *, dtype: Any = None) -> None:
        if device is None:
            device = Device.cpu()
        elif not isinstance(device, Device):
            raise TypeError(f"expected a Device, got {type(device).__name__}: use Device.cpu() or Device.gpu()")
        if isinstance(data, _Array):
            data = data._tensor.detach()
        kind = _DTYPES[device.dtype] if dtype is None else _dtype(dtype)
        tensor = _engine.Tensor(data, dtype=kind, device=device.name, requires_grad=True)
        self._check(tensor)
        self._set(tensor, (), device)

    def _check(self, tensor: Any) -> None:
        """Raises an error for shapes that the class does not support."""

    def _set(self, tensor: Any, parents: tuple[_Array, ...], device: Any) -> None:
        self._tensor = tensor
        # Keeps each parent's tensor too: a leaf's numbers may be replaced later.
        self._parents = tuple((parent, parent._tensor) for parent in parents)
        self._device = device
        self._grad: Any = None
        self._scaled: bool = any(parent._scaled for parent in parents)

    def _result(self: _Self, tensor: Any, *parents: _Array, device: Any = None) -> _Self:
        result = object.__new__(type(self))
        result._set(tensor, parents, self._device if device is None else device)
        return result

    @property
    def data(self) -> Any:
        """The numbers as a list, or a nested list. A leaf's numbers can be set from lists or NumPy arrays. Earlier
        results are unchanged, and ``backward`` on them computes the gradients for the numbers they were computed from.
        """
        return self.tolist()

    @data.setter
    def data(self, data: Any) -> None:
        if self._parents:
            raise ValueError("only the data of a leaf can be set, not that of a computed result")
        tensor = _engine.Tensor(data, dtype=self._tensor.dtype, device=self._device.name, requires_grad=True)
        if tensor.shape != self._tensor.shape:
            raise ValueError(f"expected data of shape {self._tensor.shape}, got {tensor.shape}")
        self._tensor = tensor

    @property
    def grad(self) -> Any:
        """The gradients accumulated by ``backward``, as lists like ``data``; initially zeros."""
        return _plain(self._gradient())

    def _gradient(self) -> Any:
        return nx.full_like(self._tensor.detach(), 0) if self._grad is None else self._grad

    @property
    def device(self) -> Any:
        """The device."""
        return self._device

    @property
    def dtype(self) -> str:
        """The dtype: ``"f64"``, ``"f32"``, ``"f16"`` or ``"bf16"``."""
        return _NAMES[self._tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return tuple(self._tensor.shape)

    def tolist(self) -> Any:
        """The numbers as a list, or a nested list."""
        return _plain(self._tensor)

    def numpy(self) -> Any:
        """The numbers as a NumPy array; bf16, which NumPy lacks, as float32."""
        tensor = self._tensor.detach().cpu()
        return (tensor.float() if tensor.dtype == nx.bfloat16 else tensor).numpy()

    def item(self) -> float:
        """The only number."""
        return float(self._tensor.detach().item())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._tensor.detach(), self._grad)

    def __len__(self) -> int:
        return len(self._tensor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(data={self.data}, grad={self.grad})"

    def _other(self, other: Any) -> tuple[Any, tuple[_Array, ...]] | None:
        """The other operand for the engine and the parents of the result; None for unsupported objects."""
        if isinstance(other, _Array):
            if type(other) is not type(self):
                return None
            if other._device != self._device:
                raise ValueError(
                    f"Cannot perform operation on values from different devices: {self._device.name} and "
                    f"{other._device.name}. Use .to() to move values to the same device."
                )
            return other._tensor, (self, other)
        number = _number(other)
        return None if number is None else (number, (self,))

    def _combine(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        operand = self._other(other)
        if operand is None:
            return NotImplemented
        return self._result(function(self._tensor, operand[0]), *operand[1])

    def _compare(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        operand = self._other(other)
        return NotImplemented if operand is None else _plain(function(self._tensor.detach(), operand[0]))

    def __add__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a + b)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: b - a)

    def __truediv__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: b / a)

    def __pow__(self, exponent: Any) -> Any:
        number = _number(exponent)
        return NotImplemented if number is None else self._result(self._tensor**number, self)

    def __neg__(self: _Self) -> _Self:
        return self._result(-self._tensor, self)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, lambda a, b: a >= b)

    def relu(self: _Self) -> _Self:
        """The greater of each number and zero."""
        return self._result(self._tensor.relu(), self)

    def exp(self: _Self) -> _Self:
        """The exponential of each number."""
        return self._result(self._tensor.exp(), self)

    def log(self: _Self) -> _Self:
        """The natural logarithm of each number."""
        return self._result(self._tensor.log(), self)

    def tanh(self: _Self) -> _Self:
        """The hyperbolic tangent of each number."""
        return self._result(self._tensor.tanh(), self)

    def sigmoid(self: _Self) -> _Self:
        """``1 / (1 + exp(-x))`` of each number x."""
        return self._result(self._tensor.sigmoid(), self)

    def to(self: _Self, device: Any) -> _Self:
        """The numbers on another device, or the object itself if already there. Gradients flow through the copy."""
        if not isinstance(device, Device):
            raise TypeError(f"expected a Device, got {type(device).__name__}: use Device.cpu() or Device.gpu()")
        if device == self._device:
            return self
        return self._result(self._tensor.to(device.name), self, device=device)

    def zero_grad(self) -> None:
        """Sets the gradients to 0."""
        self._grad = None

    def backward(self) -> None:
        """Adds to the gradients of everything that this was computed from. Its own gradients are set to 1."""
        reached: dict[tuple[int, int], tuple[_Array, Any]] = {}
        waiting = list(self._parents)
        while waiting:
            array, tensor = waiting.pop()
            if (id(array), id(tensor)) not in reached:
                reached[id(array), id(tensor)] = array, tensor
                waiting.extend(array._parents)
        one = nx.full_like(self._tensor.detach(), 1)
        gradients = self._gradients([tensor for _, tensor in reached.values()], one)
        for (array, _), gradient in zip(reached.values(), gradients, strict=True):
            array._grad = gradient if array._grad is None else array._grad + gradient
        self._grad = one

    def _gradients(self, tensors: list[Any], one: Any) -> list[Any]:
        if not tensors:
            return []
        scale = _SCALE if self._scaled else 1.0
        while True:
            gradients = [gradient.detach() for gradient in _engine.gradients(self._tensor, tensors, one * scale)]
            # Nothing to unscale: no f16 is involved, or the scale is already at its minimum.
            if scale == 1.0:
                return gradients
            gradients = [gradient / scale for gradient in gradients]
            _engine.evaluate(gradients)
            if all(math.isfinite(gradient.float().abs().max().item()) for gradient in gradients if gradient.numel()):
                return gradients
            scale /= 2


class ValueBatch(_Array):
    """A vector of numbers; every operation applies to all of them at once.

    >>> from micrograd_rs import ValueBatch
    >>> batch = ValueBatch([1.0, 2.0, 3.0])
    >>> result = batch * 2.0
    >>> result.backward()
    >>> result.data, batch.grad
    ([2.0, 4.0, 6.0], [2.0, 2.0, 2.0])
    """

    __slots__ = ()

    def _check(self, tensor: Any) -> None:
        if tensor.ndim != 1:
            raise ValueError("expected a flat list of numbers; use Tensor for nested lists")

    def sum(self) -> ValueBatch:
        """The sum, as a batch of one number."""
        return self._result(self._tensor.sum(0, keepdim=True), self)

    def mean(self) -> ValueBatch:
        """The mean, as a batch of one number."""
        return self._result(self._tensor.mean(0, keepdim=True), self)


class Tensor(_Array):
    """An array with any number of axes: a number, a list, or a nested list. ``@`` is the matrix product.

    >>> from micrograd_rs import Tensor
    >>> a = Tensor([[1, 2], [3, 4]])
    >>> b = a @ Tensor([[1.0], [1.0]])
    >>> b.backward()
    >>> b.data, a.grad
    ([[3.0], [7.0]], [[1.0, 1.0], [1.0, 1.0]])
    """

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Tensor):
            return NotImplemented
        low = _product_dtype.get()
        if low is None:
            return self._combine(other, lambda a, b: a @ b)
        own = _engine.promote_types(self._tensor.dtype, other._tensor.dtype)
        result = self._combine(other, lambda a, b: (a.to(low) @ b.to(low)).to(own))
        result._scaled |= low == nx.float16
        return result

    def sum(self) -> Tensor:
        """The sum of all numbers, as a tensor without axes."""
        return self._result(self._tensor.sum(), self)

    def mean(self) -> Tensor:
        """The mean of all numbers, as a tensor without axes."""
        return self._result(self._tensor.mean(), self)

    def reshape(self, *shape: int) -> Tensor:
        """The same numbers in another shape."""
        return self._result(self._tensor.reshape(*shape), self)

    @property
    def T(self) -> Tensor:
        """The transpose: the axes in reverse order."""
        return self._result(self._tensor.permute(*reversed(range(self._tensor.ndim))), self)
