"""Creation functions and dtype functions of the Python array API standard and PyTorch."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _engine
from ._arguments import guard as _guard, guarded as _guarded
from ._complex import tensor as tensor, with_complex as _with_complex
from ._engine import Tensor, dtype


# New tensors.
def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """``obj`` as a tensor: itself if it is one already, unless a copy or another dtype or device is requested."""
    if isinstance(obj, Tensor):
        wanted = dtype is None or obj.dtype == _engine.dtype(dtype)
        here = device is None or obj.device == _engine.Device(device)
        if copy is False and not (wanted and here):
            raise ValueError("asarray: another dtype or device requires a copy, which copy=False forbids")
        if wanted and here:
            return obj.clone() if copy else obj
        return obj.to(dtype=dtype, device=device)
    if copy is False:
        raise ValueError("asarray: Python numbers and lists require a copy, which copy=False forbids")
    if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array_interface__"):
        return from_dlpack(obj).to(dtype=dtype, device=device)
    return tensor(obj, dtype=dtype, device=device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor: itself if it is one already, unless another dtype or device is requested."""
    return asarray(data, dtype=dtype, device=device)


def from_numpy(array: Any) -> Tensor:
    """A tensor on the CPU with the array's values and dtype."""
    return tensor(array, device="cpu")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor with a copy of the values of another library's array, because tensors are values. ``copy=False``
    therefore raises ``BufferError`` unless the array is empty. With ``device`` the tensor is created there. That also
    works for an array on a GPU that is not in ``nx.devices()``, if the array's library can copy it to the CPU.
    """
    if isinstance(x, Tensor):
        if copy is False and device is not None and x.device != _engine.Device(device) and x.numel():
            raise BufferError("from_dlpack: another device requires a copy, which copy=False forbids")
        return asarray(x, device=device, copy=copy or None)
    if not hasattr(x, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: {type(x).__name__} does not support DLPack; use asarray()")
    return _engine.from_dlpack(x, device, copy)


def _sizes(name: str, shape: Any, sizes: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
    """Sizes as separate arguments, or together as the standard's ``shape`` or PyTorch's ``size``."""
    if (shape is None) == (size is None):
        raise TypeError(f"{name}: pass the shape once, as in {name}((2, 3)) or {name}(2, 3)")
    return (size,) if shape is None else (shape, *sizes)


def zeros(
    shape: Any = None, *sizes: int, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Zeros: ``zeros((2, 3))``, or ``zeros(2, 3)`` as in PyTorch."""
    given = _sizes("zeros", shape, sizes, size)
    return _engine.zeros(*given, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(
    shape: Any = None, *sizes: int, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones: ``ones((2, 3))``, or ``ones(2, 3)`` as in PyTorch."""
    given = _sizes("ones", shape, sizes, size)
    return _engine.ones(*given, dtype=dtype, device=device, requires_grad=requires_grad)


def empty(
    shape: Any = None, *sizes: int, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor whose values are not specified; here they are zeros."""
    given = _sizes("empty", shape, sizes, size)
    return _engine.zeros(*given, dtype=dtype, device=device, requires_grad=requires_grad)


def full(
    shape: Any = None,
    fill_value: Any = None,
    *,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of the given shape, filled with ``fill_value``."""
    (given,) = _sizes("full", shape, (), size)
    return _engine.full(given, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def arange(
    start: Any = None,
    stop: Any = None,
    step: Any = 1,
    *,
    end: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``start``, ``start + step``, ... up to ``stop``, excluding it; integers give ``int64``. A single number is
    ``stop``, which PyTorch calls ``end``.

    >>> import neurenix as nx
    >>> nx.arange(3).tolist(), nx.arange(1, 6, 2).tolist()
    ([0, 1, 2], [1, 3, 5])
    """
    if stop is not None and end is not None:
        raise TypeError("arange: stop and end are the same argument; pass only one")
    stop = end if stop is None else stop
    if start is None and stop is None:
        raise TypeError("arange: the end is missing; call it as in arange(3)")
    start = 0 if start is None else start
    if dtype is not None and _engine.dtype(dtype).is_integer and any(isinstance(each, float) for each in (start, stop, step)):
        # The number of elements is that of the numbers as given, the elements are those of the truncated ones.
        first, last = (0, start) if stop is None else (start, stop)
        place = _engine.arange(max(math.ceil((last - first) / step), 0), device=device)
        return (place * int(step) + int(first)).to(dtype)
    return _engine.arange(start, stop, step, dtype=dtype, device=device, requires_grad=requires_grad)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros with the shape of ``x``."""
    return _engine.full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones with the shape of ``x``."""
    return _engine.full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


empty_like = zeros_like
full_like = _guarded(_engine.full_like, "full_like", {"input": "Tensor"})


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on the diagonal, or on the ``k``-th diagonal above it."""
    if k == 0:
        return _engine.eye(n_rows, n_cols, dtype=dtype, device=device, requires_grad=requires_grad)
    columns = n_rows if n_cols is None else n_cols
    # Beyond the matrix a diagonal is empty.
    k = builtins.max(-n_rows, builtins.min(k, columns))
    rows = _engine.arange(n_rows, device=device).unsqueeze(1)
    made = (_engine.arange(columns, device=device) == rows + k).to(_engine.get_default_dtype() if dtype is None else dtype)
    return made.requires_grad_() if requires_grad else made


def linspace(
    start: float,
    stop: Any = None,
    num: Any = None,
    *,
    end: Any = None,
    steps: Any = None,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    requires_grad: bool = False,
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``; ``endpoint=False`` excludes ``stop``. PyTorch calls
    them ``steps`` and ``end``.
    """
    if (stop is None) == (end is None) or (num is None) == (steps is None):
        raise TypeError("linspace: pass start, stop and num once each, as in linspace(0, 1, 5)")
    start, stop = (each.item() if isinstance(each, Tensor) else each for each in (start, end if stop is None else stop))
    num = steps if num is None else num
    if dtype is not None and _engine.dtype(dtype).is_integer:
        return _evenly(int(start), int(stop), num + (not endpoint), device)[:num].to(dtype)
    if endpoint or num <= 0:
        return _engine.linspace(start, stop, num, dtype=dtype, device=device, requires_grad=requires_grad)
    made = _engine.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]
    return made.requires_grad_() if requires_grad else made


def _evenly(start: int, stop: int, count: int, device: Any) -> Tensor:
    """Evenly spaced numbers, computed in ``float32`` from both ends as in PyTorch, whose conversion to integers
    truncates.
    """
    step = (_engine.tensor(stop - start, dtype="float32") / max(count - 1, 1)).item()
    place = _engine.arange(count, dtype="float32", device=device)
    step_of = _engine.full((), step, dtype="float32", device=device)
    upper = stop - step_of * (count - 1 - place)
    return _engine.where(place < count // 2, start + step_of * place, upper) if count != 1 else place + start


def tril(x: Tensor, /, diagonal: int = 0, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices, zeros elsewhere."""
    return x.tril(k or diagonal)


def triu(x: Tensor, /, diagonal: int = 0, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices, zeros elsewhere."""
    return x.triu(k or diagonal)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid from its axes. ``"xy"``, the standard's default, swaps the first two axes; PyTorch's
    default is ``"ij"``.
    """
    axes = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else arrays
    return _engine.meshgrid(list(axes), indexing)


# Types.
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """``x`` converted to another dtype."""
    return x.to(dtype=dtype, device=device, copy=copy)


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The dtype that results from promoting these tensors, dtypes and numbers."""
    kinds = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    numbers = [x for x in kinds if isinstance(x, (bool, int, float, complex))]
    kinds = [_engine.dtype(x) for x in kinds if not isinstance(x, (bool, int, float, complex))]
    if not kinds:
        raise ValueError("result_type: expected at least one tensor or dtype")
    result = kinds[0]
    for kind in kinds[1:]:
        result = _engine.promote_types(result, kind)
    for number in numbers:
        if isinstance(number, complex):
            result = result if result.is_complex else result.to_complex()
        elif isinstance(number, float) and not (result.is_floating_point or result.is_complex):
            result = _engine.get_default_dtype()
        elif not isinstance(number, bool) and result.name == "bool":
            result = _engine.dtype("int64")
    return result


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion can convert one dtype to the other."""
    source = from_.dtype if isinstance(from_, Tensor) else _engine.dtype(from_)
    target = _engine.dtype(to)
    return bool(_engine.promote_types(source, target) == target)


_KINDS: dict[str, Callable[[dtype], bool]] = {
    "bool": lambda d: d.name == "bool",
    "signed integer": lambda d: d.is_integer and d.is_signed,
    "unsigned integer": lambda d: d.is_integer and not d.is_signed,
    "integral": lambda d: d.is_integer,
    "real floating": lambda d: d.is_floating_point,
    "complex floating": lambda d: d.is_complex,
    "numeric": lambda d: d.name != "bool",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, such as ``"integral"``, or of one of several kinds."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return bool(_KINDS[kind](_engine.dtype(dtype)))
    if isinstance(kind, str):
        raise ValueError(f"isdtype: kind is {kind!r}, it must be one of {', '.join(_KINDS)}")
    return bool(_engine.dtype(dtype) == _engine.dtype(kind))


class FloatInfo(NamedTuple):
    """The limits of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class IntegerInfo(NamedTuple):
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: dtype


# Bits of the fraction, and the greatest exponent of two.
_FLOATS = {"float8_e5m2": (2, 15), "float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating-point type; for complex numbers, of their parts."""
    kind = type.dtype if isinstance(type, Tensor) else _engine.dtype(type)
    kind = kind.to_real() if kind.is_complex else kind
    if not kind.is_floating_point:
        raise ValueError(f"finfo: {kind} is not a floating-point dtype")
    if kind.name == "float8_e4m3fn":
        # Its greatest exponent has only seven fractions: the eighth is NaN.
        return FloatInfo(8, 0.125, 448.0, -448.0, 2.0**-6, kind)
    fraction, exponent = _FLOATS[kind.name]
    greatest = (2.0 - 2.0**-fraction) * 2.0**exponent
    return FloatInfo(kind.itemsize * 8, 2.0**-fraction, greatest, -greatest, 2.0 ** (1 - exponent), kind)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer type."""
    kind = type.dtype if isinstance(type, Tensor) else _engine.dtype(type)
    if not kind.is_integer:
        raise ValueError(f"iinfo: {kind} is not an integer dtype")
    bits = kind.itemsize * 8
    if kind.is_signed:
        return IntegerInfo(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), kind)
    return IntegerInfo(bits, 2**bits - 1, 0, kind)


for _name in "zeros ones empty full eye linspace arange meshgrid".split():
    globals()[_name] = _with_complex(_name, globals()[_name])
_guard(globals())
