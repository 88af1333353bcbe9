"""In-place methods of tensors, and methods that create similar tensors; ``attach`` adds them to the class."""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Sequence
from typing import Any

from . import _attributes, _elementwise, _engine, _engine_methods, _linear_algebra, _manipulation, _matrices, _methods, _numbers, _parts
from . import _reductions, _short_time, _special, _statistics, _storage, _table
from ._complex import tensor as _new
from ._engine import Generator, Tensor
from ._floating import store as _store
from ._results import SlogdetResult as _SlogdetResult


# In place.
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    """Removes axes of size 1, in place: other views keep sharing elements with this tensor, in their own shapes.

    >>> import neurenix as nx
    >>> x = nx.zeros(1, 3)
    >>> row = x[0]
    >>> x.squeeze_(0)[1] = 2
    >>> x.shape == (3,), row.tolist()
    (True, [0.0, 2.0, 0.0])
    """
    return self._become(self.squeeze() if dim is None else self.squeeze(dim))


def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """Inserts an axis of size 1, in place, as ``squeeze_`` removes it."""
    return self._become(self.unsqueeze(dim))


def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swaps two axes, in place; other views keep sharing elements with this tensor."""
    return self._become(self.transpose(dim0, dim1))


def swapaxes_(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """Alias of ``transpose_``."""
    return transpose_(self, axis0, axis1)


def swapdims_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Alias of ``transpose_``."""
    return transpose_(self, dim0, dim1)


def t_(self: Tensor) -> Tensor:
    """Transposes a matrix, in place, as ``transpose_``; vectors and scalars stay."""
    return self._become(self.t())


def scatter_(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: float | None = None, reduce: str | None = None
) -> Tensor:
    """In-place ``scatter``."""
    return self._put(self.scatter(dim, index, src, value=value, reduce=reduce), index)


def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Adds elements of ``src`` at the positions ``index`` along ``dim``, in place."""
    return self._put(self.scatter_add(dim, index, src), index)


def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """In-place ``scatter_reduce``."""
    return self._put(self.scatter_reduce(dim, index, src, reduce, include_self=include_self), index)


def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Adds slices of ``source`` at the positions ``index`` along ``dim``, in place."""
    return self._put(self.index_add(dim, index, source if alpha == 1 else source * alpha), index)


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Writes slices of ``source`` to the positions ``index`` along ``dim``, in place."""
    return self._put(_methods.index_copy(self, dim, index, source), index)


def index_fill_(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Writes ``value`` to the positions ``index`` along ``dim``, in place."""
    return self._put(_methods.index_fill(self, dim, index, value), index)


def index_put_(self: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place ``index_put``."""
    tensors = [index for index in indices if isinstance(index, Tensor)]
    return self._put(_methods.index_put(self, indices, values, accumulate), *tensors)


def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """In-place ``masked_scatter``."""
    return self.copy_(_methods.masked_scatter(self, mask, source))


def lerp_(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """In-place ``lerp``."""
    return _store(self, _methods.lerp(self, end, weight))


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills with uniform numbers in [a, b), in place."""
    if a > b:
        raise ValueError(f"uniform_: expected a <= b, got {a} and {b}")
    drawn = (_drawn(self, "rand", generator) * (b - a) + a).to(self.dtype)
    # Values that round up to b are mapped to a. This compensates for the values that round down at that end.
    return self.copy_(_engine.where(drawn >= b, a, drawn))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills with numbers from a normal distribution, in place."""
    if isinstance(std, (int, float)) and std < 0:
        raise ValueError(f"normal_: std is {std}, it must not be negative")
    return _store(self, _drawn(self, "randn", generator) * std + mean)


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills with numbers from an exponential distribution, in place."""
    return _store(self, -((-_drawn(self, "rand", generator)).log1p()) / lambd)


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills with ones with probability ``p``, a number or a tensor of probabilities, else zeros, in place."""
    if isinstance(p, Tensor):
        return self.copy_(_engine.bernoulli(p.expand(self.shape), generator=generator).to(self.dtype))
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli_: p is {p}, it must be a probability between 0 and 1")
    return self.copy_((_drawn(self, "rand", generator) < p).to(self.dtype))


def random_(
    self: Tensor, low: builtins.int | None = None, high: builtins.int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fills with integers from ``low`` to ``high`` - 1, in place. A single number is ``high``; without it, the range is
    from 0 to the dtype's greatest exact integer.
    """
    bits = _WHOLE.get(self.dtype.name, 8 * self.dtype.itemsize - self.dtype.is_signed)
    start, end = low or 0, builtins.min(2**bits, 2**63 - 1)
    if high is not None:
        end = high
    elif low is not None:
        start, end = 0, low
    if start >= end:
        raise ValueError(f"random_: expected low < high, got {start} and {end}")
    return self.copy_(_engine.randint(start, end, tuple(self.shape), device=self.device, generator=generator))


_WHOLE = {"bool": 1, "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The number of bits of an integer that floating-point types represent exactly."""


def _drawn(self: Tensor, source: str, generator: Generator | None) -> Tensor:
    draw = getattr(_engine, source)
    dtype = self.dtype if self.dtype.name == "float64" else "float32"
    result: Tensor = draw(tuple(self.shape), dtype=dtype, device=self.device, generator=generator)
    return result


# Creation of similar tensors.
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ``data``, by default with this tensor's dtype and device."""
    return _new(
        data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor filled with one value, by default with this tensor's dtype and device."""
    return _engine.full(
        size, fill_value, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def new_zeros(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros, by default with this tensor's dtype and device."""
    return _engine.zeros(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_ones(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones, by default with this tensor's dtype and device."""
    return _engine.ones(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


new_empty = new_zeros


def new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of this size, by default with this tensor's dtype and device; strides have no meaning."""
    return _engine.zeros(tuple(size), dtype=dtype or self.dtype, device=device or self.device)


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fills with numbers of trials until the first success of probability ``p``, in place."""
    if not 0 < p < 1:
        raise ValueError(f"geometric_: p is {p}, it must be between 0 and 1")
    waits = (-_drawn(self, "rand", generator)).log1p() / math.log1p(-p)
    return self.copy_(waits.ceil().clamp(min=1).to(self.dtype))


def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fills with numbers from a Cauchy distribution, in place."""
    return _store(self, (math.pi * (_drawn(self, "rand", generator) - 0.5)).tan() * sigma + median)


def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """Fills with exponentials of numbers from a normal distribution, in place."""
    return _store(self, (_drawn(self, "randn", generator) * std + mean).exp())


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: builtins.bool = False) -> Tensor:
    """Writes ``fill_value`` to the main diagonal, in place; ``wrap`` continues it in tall matrices, after a row."""
    if self.ndim < 2 or self.ndim > 2 and len(set(self.shape)) > 1:
        raise ValueError(f"fill_diagonal_: expected a matrix, or equal sizes, got shape {tuple(self.shape)}")
    step = builtins.sum(math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))
    end = self.numel() if wrap or self.ndim > 2 else builtins.min(self.numel(), self.shape[1] ** 2)
    place = _engine.arange(0, end, step, device=self.device)
    return self.copy_(self.flatten().index_fill(0, place, fill_value).reshape(self.shape))


def byte(self: Tensor, memory_format: Any = None) -> Tensor:
    """Converted to ``uint8``; ``memory_format`` is a hint without effect."""
    return self.to("uint8")


def char(self: Tensor, memory_format: Any = None) -> Tensor:
    """Converted to ``int8``; ``memory_format`` is a hint without effect."""
    return self.to("int8")


def short(self: Tensor, memory_format: Any = None) -> Tensor:
    """Converted to ``int16``; ``memory_format`` is a hint without effect."""
    return self.to("int16")


def is_nonzero(self: Tensor) -> builtins.bool:
    """Whether the only element is not zero."""
    return builtins.bool(self)


def is_same_size(self: Tensor, other: Tensor) -> builtins.bool:
    """Whether the shapes are equal."""
    return tuple(self.shape) == tuple(other.shape)


def is_signed(self: Tensor) -> builtins.bool:
    """Whether the dtype can represent negative numbers."""
    return self.dtype.is_signed


def get_device(self: Tensor) -> builtins.int:
    """The index of the GPU that holds the elements, or -1 on the CPU."""
    return -1 if self.device.type == "cpu" else self.device.index


def pin_memory(self: Tensor) -> Tensor:
    """The tensor itself: uploads need no pinned memory."""
    return self


def share_memory_(self: Tensor) -> Tensor:
    """The tensor itself, with a warning: other processes get copies, and do not see later changes."""
    warnings.warn(
        "share_memory_: processes get copies of tensors, so changes in one do not reach the others: use threads, or"
        " torch.distributed",
        stacklevel=2,
    )
    return self


def is_pinned(self: Tensor) -> builtins.bool:
    """False: uploads need no pinned memory."""
    return False


def ndimension(self: Tensor) -> builtins.int:
    """The number of dimensions."""
    return self.ndim


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Converted to another tensor's dtype."""
    return self.to(other.dtype)


def allclose(self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> builtins.bool:
    """Whether all elements agree within ``atol + rtol * abs(other)``."""
    return _manipulation.allclose(self, other, rtol, atol, equal_nan)


def isclose(self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where elements agree within ``atol + rtol * abs(other)``."""
    return _manipulation.isclose(self, other, rtol, atol, equal_nan)


def equal(self: Tensor, other: Tensor) -> builtins.bool:
    """Whether shapes and all elements are equal."""
    if not isinstance(other, Tensor):
        raise TypeError(f"equal: expected a tensor, got {type(other).__name__}")
    return tuple(self.shape) == tuple(other.shape) and builtins.bool((self == other).all())


def det(self: Tensor) -> Tensor:
    """The determinants of square matrices, as ``nx.linalg.det``."""
    return _linear_algebra.det(self)


def slogdet(self: Tensor) -> tuple[Tensor, Tensor]:
    """The signs of determinants and the logarithms of their magnitudes, as ``nx.linalg.slogdet``."""
    return _SlogdetResult(*_linear_algebra.slogdet(self))


def inverse(self: Tensor) -> Tensor:
    """The inverses of square matrices, as ``nx.linalg.inv``."""
    return _linear_algebra.inv(self)


def pinverse(self: Tensor, rcond: float | None = None) -> Tensor:
    """The pseudoinverses, as ``nx.linalg.pinv`` with this ``rtol``."""
    from .linalg import pinv

    return pinv(self, rtol=rcond)


def matrix_power(self: Tensor, n: builtins.int) -> Tensor:
    """Powers of square matrices, as ``nx.linalg.matrix_power``."""
    from .linalg import matrix_power

    return matrix_power(self, n)


def nelement(self: Tensor) -> builtins.int:
    """The number of elements."""
    return self.numel()


# Array API functions with PyTorch's signatures.
def unique(
    self: Tensor,
    sorted: builtins.bool = True,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: builtins.int | None = None,
) -> Any:
    """Distinct elements, sorted; if requested, also the inverse indices and the counts."""
    return _manipulation.unique(self, sorted, return_inverse, return_counts, dim)


def diff(
    self: Tensor,
    n: builtins.int = 1,
    dim: builtins.int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of adjacent elements along ``dim``, ``n`` times."""
    return _reductions.diff(self, axis=dim, n=n, prepend=prepend, append=append)


def moveaxis(self: Tensor, source: Any, destination: Any) -> Tensor:
    """Axes moved to other positions."""
    return self.movedim(source, destination)


def hypot(self: Tensor, other: Any) -> Tensor:
    """``sqrt(self ** 2 + other ** 2)`` without overflow."""
    return _elementwise.hypot(self, other)


def signbit(self: Tensor) -> Tensor:
    """True where the sign bit is set, including that of -0.0 and NaN."""
    return _elementwise.signbit(self)


def polygamma(self: Tensor, n: int) -> Tensor:
    """The ``n``-th derivative of ``digamma``."""
    return _special.polygamma(n, self)


_ELEMENTWISE = """
absolute addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2 arctanh baddbmm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor clamp_max clamp_min clip copysign cumprod
cumsum deg2rad divide eq erfc erfinv fix float_power fmod frac gcd ge greater greater_equal gt heaviside hypot
i0 igamma igammac lcm ldexp le less less_equal log10 logical_and logical_not logical_or logical_xor logit lt
multiply mvlgamma nan_to_num ne negative nextafter not_equal polygamma put rad2deg renorm sgn sign square subtract
tril triu true_divide xlogy
"""
"""Functions beside those of the engine's tables with a variant in place that ends with an underscore."""

_ALSO = (
    "arccos arccosh arcsin arcsinh arctan arctan2 arctanh copysign greater greater_equal less less_equal logaddexp multiply nextafter "
    "not_equal positive subtract"
)
"""Elementwise functions that are methods, too."""


def _in_place_of(name: str) -> Any:
    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _store(self, getattr(self, name)(*args, **kwargs))

    change.__name__ = change.__qualname__ = f"{name}_"
    change.__doc__ = f"In-place ``{name}``."
    return change


def attach() -> None:
    """Adds methods to the tensor class: the functions of this module, the functions of other modules whose first argument is
    a tensor, and variants in place.
    """
    for module in (_matrices, _methods, _numbers, _parts, _short_time, _special, _statistics, _storage, _engine_methods):
        names: list[str] = getattr(module, "METHODS", None) or module.__all__
        for name in names:
            setattr(Tensor, name, getattr(module, name))
    for name, function in globals().items():
        if not name.startswith("_") and getattr(function, "__module__", "") == __name__ and name != "attach":
            setattr(Tensor, name, function)
    for name in _ALSO.split():
        if not hasattr(Tensor, name):
            setattr(Tensor, name, getattr(_elementwise, name))
    changes = [name for name in _table.__all__ if not name.startswith(("is", "max", "min"))]
    for name in [*changes, *_ELEMENTWISE.split()]:
        if not hasattr(Tensor, f"{name}_"):
            setattr(Tensor, f"{name}_", _in_place_of(name))
    _attributes.attach()
