"""The class of complex tensors.

A complex tensor holds pairs of floats: its real and imaginary parts, along an axis that its shape does not show. The
operations of the engine refuse it (``NoComplexNumbers``); the methods here compute with the pairs. A view of the pairs
is a view of the complex tensor, because both share one place. The gradient of the pairs is the complex gradient of
PyTorch's convention, so nothing converts it.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from . import _engine
from ._engine import NoComplexNumbers, Tensor

_of = _engine.Pair.of


class ComplexTensor(Tensor):
    """A tensor of ``complex64`` or ``complex128``.

    >>> import neurenix as nx
    >>> z = nx.tensor([3 + 4j, 1j], requires_grad=True)
    >>> z.abs().sum().backward()
    >>> z.grad
    tensor([0.6+0.8j, 0.0+1.0j], dtype=complex64)
    """

    @property
    def real(self) -> Tensor:
        """The real parts; a view."""
        return _of(self).select(-1, 0)

    @real.setter
    def real(self, value: Any) -> None:
        _of(self)[..., 0] = value

    @property
    def imag(self) -> Tensor:
        """The imaginary parts; a view."""
        return _of(self).select(-1, 1)

    @imag.setter
    def imag(self, value: Any) -> None:
        _of(self)[..., 1] = value

    # Gradients.
    @property
    def grad(self) -> Any:
        """The gradient that ``backward`` accumulated, or ``None``."""
        gradient = _of(self).grad
        return None if gradient is None else wrap(gradient)

    @grad.setter
    def grad(self, gradient: Any) -> None:
        pair = _of(self)
        pair.grad = None if gradient is None else as_pair(gradient, self)

    @property
    def data(self) -> Tensor:
        """The values without gradients, which share this tensor's place."""
        return wrap(_of(self).data)

    @data.setter
    def data(self, value: Any) -> None:
        pair = _of(self)
        pair.data = as_pair(value, self)

    def detach(self) -> Tensor:
        """The values without gradients."""
        return wrap(_of(self).detach())

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Computes gradients, given that of a real loss with respect to this tensor."""
        if gradient is None:
            raise RuntimeError("backward: the loss is complex, so its gradient must be given: backward(gradient=...)")
        _of(self).backward(as_pair(gradient, self), retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Any:
        """Registers ``hook(gradient)``; see ``Tensor.register_hook``."""

        def paired(gradient: Tensor) -> Any:
            found = hook(wrap(gradient))
            return None if found is None else as_pair(found, self)

        return _of(self).register_hook(paired)

    def retain_grad(self) -> None:
        """Makes ``backward`` keep the gradient of this non-leaf tensor in ``grad``."""
        _of(self).retain_grad()

    # Conversion.
    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        """Converts to another dtype or device. A real dtype drops the imaginary parts, with a warning."""
        for argument in args:
            if isinstance(argument, Tensor):
                dtype, device = argument.dtype, argument.device
            elif argument is not None:
                found = _engine.dtype_or_device(argument)
                dtype, device = (dtype, found) if isinstance(found, _engine.Device) else (found, device)
        kind = self.dtype if dtype is None else _engine.dtype(dtype)
        if not kind.is_complex:
            warn_of_parts()
            return self.real.to(dtype=kind, device=device, copy=True)
        if not copy and kind == self.dtype and (device is None or _engine.Device(device) == self.device):
            return self
        return wrap(_of(self).to(dtype=kind.to_real(), device=device, copy=copy))

    def type(self, dtype: Any) -> Tensor:
        """Converts to another dtype."""
        return self.to(dtype=dtype)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """Moves the tensor to another device."""
        return self.to(device=device)

    def cpu(self) -> Tensor:
        """Moves the tensor to the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Tensor:
        """Moves the tensor to an NVIDIA GPU, by default the first."""
        return self.to(device=f"cuda:{operator.index(device or 0)}")

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A copy that in-place changes of this tensor do not affect."""
        return wrap(_of(self).clone())

    def contiguous(self, memory_format: Any = None) -> Tensor:
        """The same values, contiguous in memory."""
        return wrap(_of(self).contiguous())

    def is_contiguous(self) -> bool:
        """Whether the pairs are contiguous in memory."""
        return _of(self).is_contiguous()

    def evaluate(self) -> Tensor:
        """Evaluates the tensor now and returns it."""
        _of(self).evaluate()
        return self

    def numpy(self, *, force: bool = False) -> Any:
        """The elements as a read-only NumPy array that shares memory."""
        pair = _of(self).numpy(force=force)
        if pair.size and pair.strides[-1] != pair.itemsize:
            pair = _of(self).contiguous().numpy(force=force)
        return pair.view(self.dtype.name)[..., 0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if copy is False and dtype is not None and array.dtype != dtype:
            raise ValueError(f"converting from {array.dtype} needs a copy, which copy=False forbids")
        array = array if dtype is None else array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def tobytes(self) -> bytes:
        """The elements as bytes in row-major order."""
        return _of(self).tobytes()

    def tolist(self) -> Any:
        """The elements as nested lists of Python's complex numbers."""
        return self.detach().cpu().numpy().tolist()

    def item(self) -> complex:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise ValueError(f"item: a tensor of shape {list(self.shape)} is not a single number")
        real, imaginary = _of(self).detach().reshape(2).tolist()
        return complex(real, imaginary)

    def __complex__(self) -> complex:
        return self.item()

    def _real_item(self, kind: str) -> float:
        value = self.item()
        if value.imag:
            raise TypeError(f"{kind}: {value} is a complex number: take its real part with .real")
        return value.real

    def __float__(self) -> float:
        return self._real_item("float")

    def __int__(self) -> int:
        return int(self._real_item("int"))

    def __bool__(self) -> bool:
        return bool(self._nonzero())

    def __repr__(self) -> str:
        from ._printing import shown

        return shown(self)

    def __format__(self, specification: str) -> str:
        is_number = self.ndim == 0 and type(self) is ComplexTensor and not _engine.is_recording()
        return format(self.item(), specification) if is_number or specification and self.numel() == 1 else repr(self)

    __hash__ = Tensor.__hash__

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("cannot iterate over a 0-d tensor: use .item()")
        return iter(self.unbind())

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # Indexing.
    def _key(self, key: Any) -> Any:
        """The key of the pairs: their last axis is taken whole."""
        if isinstance(key, bool) or isinstance(key, Tensor) and key.ndim == 0 and key.dtype.name == "bool":
            return key
        parts = key if isinstance(key, tuple) else (key,)
        taken = sum(part.ndim if getattr(getattr(part, "dtype", None), "name", "") == "bool" else 1 for part in parts
                    if part is not None and part is not Ellipsis)  # fmt: skip
        if taken > self.ndim:
            raise IndexError(f"too many indices: {taken} for a tensor of shape {list(self.shape)}")
        if not isinstance(key, tuple) and key is not Ellipsis:
            return key
        ellipsis = () if any(part is Ellipsis for part in parts) else (Ellipsis,)
        return (*parts, *ellipsis, slice(None))

    def __getitem__(self, key: Any) -> Tensor:
        return wrap(_of(self)[self._key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        _of(self)[self._key(key)] = as_pair(value, self)

    def _put(self, value: Tensor, *indices: Tensor) -> Tensor:
        _of(self)._put(as_pair(value, self), *indices)
        return self

    def copy_(self, source: Any) -> Tensor:
        """Copies the elements of ``source``, broadcast to this shape."""
        _of(self).copy_(as_pair(source, self))
        return self

    def fill_(self, value: Any) -> Tensor:
        """Sets every element to ``value``."""
        return self.copy_(value)

    def zero_(self) -> Tensor:
        """Sets every element to 0."""
        _of(self).zero_()
        return self

    def _nonzero(self) -> Tensor:
        return _engine.complex_function("nonzero", _of(self))

    def norm(self, p: Any = None, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False) -> Tensor:
        """The p-norm over axes."""
        return self.abs().norm(p, dim if axis is None else axis, keepdim or keepdims)


def wrap(pair: Tensor) -> ComplexTensor:
    """Pairs as a complex tensor, which shares their place."""
    return ComplexTensor(_engine.Pair(pair))


def unwrap(x: Any) -> Any:
    """The pairs of a complex tensor; anything else as it is."""
    return _of(x) if isinstance(x, ComplexTensor) else x


def wrapped_like(x: Any, result: Any) -> Any:
    """Pairs as a complex tensor if ``x`` is one."""
    return wrap(result) if isinstance(x, ComplexTensor) else result


def combined(real: Tensor, imaginary: Tensor) -> ComplexTensor:
    """A complex tensor from its parts, of one shape and dtype."""
    return wrap(_engine.stack([real, imaginary], -1))


def as_complex(x: Any, like: Tensor) -> ComplexTensor:
    """Anything as a complex tensor; numbers take the dtype of ``like``, all others its device."""
    if isinstance(x, ComplexTensor):
        return x
    if isinstance(x, Tensor):
        # Integers do not change the precision of a complex tensor.
        kind = like.dtype if like.dtype.is_complex and not x.is_floating_point() else x.dtype.to_complex()
        return x.to(kind)  # type: ignore[return-value]
    if isinstance(x, (int, float, complex)) and not hasattr(x, "dtype"):
        z = complex(x)
        return wrap(_engine.tensor([z.real, z.imag], dtype=like.dtype.to_real(), device=like.device))
    made = tensor(x, device=like.device)
    return made if isinstance(made, ComplexTensor) else made.to(made.dtype.to_complex())  # type: ignore[return-value]


def as_pair(x: Any, like: Tensor) -> Tensor:
    """Anything as pairs of the dtype of ``like``'s."""
    return _of(as_complex(x, like)).to(like.dtype.to_real())


def full(size: Any, fill_value: Any, **options: Any) -> Tensor:
    """A tensor of one number."""
    try:
        return _engine.full(size, fill_value, **options)
    except NoComplexNumbers:
        return implementation("full")(size, fill_value, **options)


#: Functions whose purpose is a conversion.
_CONVERSIONS = ("astype", "asarray", "type_as")


def warn_of_parts() -> None:
    """Warns that a conversion loses imaginary parts. Within this package it is an error: a function that converts its
    operands to real numbers does not know complex ones.
    """
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith("neurenix._complex"):
        frame = frame.f_back
    caller = frame.f_globals.get("__name__", "")
    if caller.startswith("neurenix.") and frame.f_code.co_name not in _CONVERSIONS:
        raise NoComplexNumbers("this operation does not take complex numbers yet: compute with x.real and x.imag")
    warnings.warn("the conversion of complex numbers to a real dtype drops their imaginary parts", UserWarning, stacklevel=3)


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor from numbers, nested lists or arrays. The values are copied: no gradient flows back to ``data``.

    >>> import neurenix as nx
    >>> nx.tensor([1, 2]).dtype, nx.tensor([1j]).dtype
    (neurenix.int64, neurenix.complex64)
    """
    try:
        return _engine.tensor(data, dtype, device, requires_grad)
    except NoComplexNumbers:
        pass
    kind = None if dtype is None else _engine.dtype(dtype)
    if isinstance(data, Tensor):
        made = data.detach().to(dtype=kind, device=device, copy=True)
        return made.requires_grad_() if requires_grad else made
    if kind is not None and not kind.is_complex:
        raise TypeError(f"complex numbers cannot be converted to {kind.name}: take their real parts first")
    import numpy

    array = numpy.asarray(_plain(data))
    if array.dtype.kind not in "biufc":
        raise TypeError(f"an array of {array.dtype} cannot be converted to a tensor: convert it to a numeric type first")
    if kind is None:
        # Python's numbers, and integers, have the default precision.
        found = _precisions(data)
        kind = _engine.dtype(max(found)).to_complex() if found else _engine.get_default_dtype().to_complex()
    array = numpy.ascontiguousarray(array.astype(kind.name)).reshape(array.shape)
    pair = numpy.stack([array.real, array.imag], -1)  # pyright: ignore
    made = wrap(_engine.tensor(pair, device=device))
    return made.requires_grad_() if requires_grad else made


def _plain(data: Any) -> Any:
    """Nested lists in which tensors are replaced by arrays."""
    if isinstance(data, (list, tuple)):
        return [_plain(part) for part in data]
    return data.detach().cpu().numpy() if isinstance(data, Tensor) else data


def _precisions(data: Any) -> set[str]:
    """``float32`` or ``float64``, or both: those of the arrays, tensors and NumPy numbers of fractions among the data."""
    if isinstance(data, (list, tuple)):
        return set().union(*map(_precisions, data))
    name = getattr(getattr(data, "dtype", None), "name", "")
    if name.startswith(("float", "bfloat", "complex")):
        return {"float64" if name in ("float64", "complex128") else "float32"}
    return set()


def with_complex(name: str, function: Any) -> Any:
    """A function that calls its complex implementation for complex arguments."""
    import functools

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except NoComplexNumbers as refusal:
            return implementation(name, refusal)(*args, **kwargs)

    return either


def implementation(name: str, refusal: NoComplexNumbers | None = None) -> Callable[..., Any]:
    """The complex implementation of a function of this name, or an error that says that there is none."""
    from ._complex_functions import FUNCTIONS

    found = FUNCTIONS.get(name)
    if found is None:
        raise NoComplexNumbers(
            f"{name} does not take complex numbers yet: compute with x.real and x.imag, or with neurenix.view_as_real(x)"
        ) from refusal
    return found


def axis_of(x: Tensor, axis: Any, rank: int | None = None) -> int:
    """An axis counted from the front."""
    rank = x.ndim if rank is None else rank
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise IndexError(f"axis {axis} is out of range for a tensor of {rank} dimensions")
    return axis % rank if rank else axis
