"""``ValueBatch`` and ``Tensor``: many numbers in one object, over the engine's tensors."""

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

# The type of numbers in matrix products, while an `autocast` is entered.
_product_dtype: ContextVar[Any] = ContextVar("product_dtype", default=None)

# The greatest factor of gradients through f16, whose smallest number is 6e-8.
_SCALE = 65536.0

_Self = TypeVar("_Self", bound="_Array")


def _dtype(dtype: Any) -> Any:
    """A dtype by its short name, its NumPy name, or itself."""
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    try:
        known = _engine.dtype(dtype)
    except TypeError:
        known = None
    if known not in _NAMES:
        raise TypeError(f"{dtype!r} is no type of numbers here: use one of {', '.join(_DTYPES)}")
    return known


class autocast:
    """Within it matrix products take their operands in f16 or bf16 and give their results in the operands' own type.

    All else stays in its type. Gradients that go through f16 are scaled, so that small ones do not become zero, and
    scaled back; should they overflow, they are found again with half the factor.

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
            raise ValueError("autocast is for f16 and bf16")
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> autocast:
        self._tokens.append(_product_dtype.set(self._dtype))
        return self

    def __exit__(self, *error: object) -> None:
        _product_dtype.reset(self._tokens.pop())


def _number(given: Any) -> float | None:
    """A number of Python's or NumPy's, whose arrays without axes are numbers too; None for anything else."""
    # Of the types of numbers that objects tell of, only NumPy's have a kind.
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    if isinstance(given, Real) or (kind in ("b", "i", "u", "f") and given.shape == ()):
        return float(given)
    return None


def _plain(tensor: Any) -> Any:
    return tensor.detach().tolist()


def _restored(kind: type[_Self], tensor: Any, gradient: Any) -> _Self:
    """What a pickle or a copy becomes: numbers, gradients and device. What they were made from stays behind."""
    result = object.__new__(kind)
    result._set(tensor.requires_grad_(), (), Device._named(tensor.device.name))
    result._grad = gradient
    return result


class _Array:
    """What batches and tensors share."""

    __slots__ = ("_tensor", "_parents", "_device", "_grad", "_scaled", "__weakref__")
    __array_ufunc__ = None

    def __init__(self, data: Any, device: Any = None, *, dtype: Any = None) -> None:
        if device is None:
            device = Device.cpu()
        elif not isinstance(device, Device):
            raise TypeError(f"a {type(device).__name__} is no device: use Device.cpu() or Device.gpu()")
        if isinstance(data, _Array):
            data = data._tensor.detach()
        kind = _DTYPES[device.dtype] if dtype is None else _dtype(dtype)
        tensor = _engine.Tensor(data, dtype=kind, device=device.name, requires_grad=True)
        self._check(tensor)
        self._set(tensor, (), device)

    def _check(self, tensor: Any) -> None:
        """Refuses shapes that the class does not have."""

    def _set(self, tensor: Any, parents: tuple[_Array, ...], device: Any) -> None:
        self._tensor = tensor
        # With the numbers that each had then: those of a leaf may be replaced later.
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
        """The numbers as a list, or lists in a list. Those of a leaf can be set, from lists or NumPy's arrays; results
        computed before keep theirs, and ``backward`` on them finds the gradients for the numbers they were made from."""
        return self.tolist()

    @data.setter
    def data(self, data: Any) -> None:
        if self._parents:
            raise ValueError("only numbers that were given can be replaced, not those that were computed")
        tensor = _engine.Tensor(data, dtype=self._tensor.dtype, device=self._device.name, requires_grad=True)
        if tensor.shape != self._tensor.shape:
            raise ValueError(f"numbers of shape {tensor.shape} cannot replace those of shape {self._tensor.shape}")
        self._tensor = tensor

    @property
    def grad(self) -> Any:
        """The gradients that ``backward`` found, as lists like ``data``; zeros before."""
        return _plain(self._gradient())

    def _gradient(self) -> Any:
        return nx.full_like(self._tensor.detach(), 0) if self._grad is None else self._grad

    @property
    def device(self) -> Any:
        """Where it is computed."""
        return self._device

    @property
    def dtype(self) -> str:
        """The type of its numbers: ``"f64"``, ``"f32"``, ``"f16"`` or ``"bf16"``."""
        return _NAMES[self._tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many numbers lie along each axis."""
        return tuple(self._tensor.shape)

    def tolist(self) -> Any:
        """The numbers as a list, or lists in a list."""
        return _plain(self._tensor)

    def numpy(self) -> Any:
        """The numbers as an array of NumPy's; bf16, which NumPy has not, as float32."""
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
        """The other operand for the engine, and what gradients flow to; None for anything unknown."""
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
        """The same numbers on another device, through which gradients flow; on the same device the object itself."""
        if not isinstance(device, Device):
            raise TypeError(f"a {type(device).__name__} is no device: use Device.cpu() or Device.gpu()")
        if device == self._device:
            return self
        return self._result(self._tensor.to(device.name), self, device=device)

    def zero_grad(self) -> None:
        """Sets the gradients to 0."""
        self._grad = None

    def backward(self) -> None:
        """Adds to the gradients of everything that this was made from. Its own are set to 1, each of them."""
        reached: dict[tuple[int, int], tuple[_Array, Any]] = {}
        waiting = list(self._parents)
        while waiting:
            array, tensor = waiting.pop()
            if (id(array), id(tensor)) not in reached:
                reached[id(array), id(tensor)] = array, tensor
                waiting.extend(array._parents)
        one = nx.full_like(self._tensor.detach(), 1)
        slopes = self._slopes([tensor for _, tensor in reached.values()], one)
        for (array, _), gradient in zip(reached.values(), slopes, strict=True):
            array._grad = gradient if array._grad is None else array._grad + gradient
        self._grad = one

    def _slopes(self, tensors: list[Any], one: Any) -> list[Any]:
        if not tensors:
            return []
        scale = _SCALE if self._scaled else 1.0
        while True:
            slopes = [slope.detach() for slope in _engine.gradients(self._tensor, tensors, one * scale)]
            # Without f16 between, or with nothing left to halve, they are what they are.
            if scale == 1.0:
                return slopes
            slopes = [slope / scale for slope in slopes]
            _engine.evaluate(slopes)
            if all(math.isfinite(slope.float().abs().max().item()) for slope in slopes if slope.numel()):
                return slopes
            scale /= 2


class ValueBatch(_Array):
    """Numbers in a row, on which every operation is one of all of them at once.

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
            raise ValueError("a ValueBatch is a list of numbers: use Tensor for lists in lists")

    def sum(self) -> ValueBatch:
        """The sum, as a batch of one number."""
        return self._result(self._tensor.sum(0, keepdim=True), self)

    def mean(self) -> ValueBatch:
        """The mean, as a batch of one number."""
        return self._result(self._tensor.mean(0, keepdim=True), self)


class Tensor(_Array):
    """Numbers along any axes: a number, a list, lists in a list. ``@`` is the matrix product.

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
        """The same numbers along other axes."""
        return self._result(self._tensor.reshape(*shape), self)

    @property
    def T(self) -> Tensor:
        """With the axes in reverse order."""
        return self._result(self._tensor.permute(*reversed(range(self._tensor.ndim))), self)
