"""PyTorch functions that the Python array API standard lacks: shapes, selection, numerics."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from . import _engine, _engine_methods
from ._arguments import guard as _guard
from ._creation import _evenly
from ._engine import Tensor
from ._manipulation import concat
from ._operands import _tensor

__all__ = [
    "bucketize",
    "column_stack",
    "cross",
    "diag",
    "dstack",
    "get_default_dtype",
    "hstack",
    "index_add",
    "is_floating_point",
    "isin",
    "kron",
    "logspace",
    "masked_fill",
    "narrow",
    "ravel",
    "repeat_interleave",
    "scatter",
    "scatter_add",
    "select",
    "set_default_dtype",
    "swapaxes",
    "swapdims",
    "t",
    "take_along_dim",
    "trace",
    "trapezoid",
    "trapz",
    "tril_indices",
    "triu_indices",
    "unbind",
    "unflatten",
    "vstack",
]


# Shapes.
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector unchanged."""
    return input.t()


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two axes swapped."""
    return input.swapaxes(axis0, axis1)


swapdims = swapaxes


def ravel(input: Tensor) -> Tensor:
    """All elements as a vector."""
    return input.ravel()


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis split into several of these sizes, of which one may be -1."""
    return input.unflatten(dim, sizes)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` positions along ``dim``, beginning at ``start``."""
    return input.narrow(dim, start, length)


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One position along ``dim``, which is removed."""
    return input.select(dim, index)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """A tensor for each position along ``dim``."""
    return input.unbind(dim)


def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Repeats each element, along ``dim`` or of the flattened input. Of numbers alone, the indices of the elements,
    repeated so often. ``output_size`` is a hint without effect.
    """
    return _engine_methods.repeat_interleave(input, repeats, dim)


def _rows(input: Tensor) -> Tensor:
    """At least two dimensions: a vector becomes the only row of a matrix."""
    return input.reshape(1, -1) if input.ndim < 2 else input


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates the tensors horizontally: vectors along the first axis, others along the second.

    >>> import neurenix as nx
    >>> nx.hstack([nx.tensor([1, 2]), nx.tensor([3])]).tolist()
    [1, 2, 3]
    """
    parts = [x.reshape(1) if x.ndim == 0 else x for x in tensors]
    return concat(parts, 0 if builtins.all(x.ndim == 1 for x in parts) else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates the tensors vertically, vectors as rows."""
    return concat([_rows(x) for x in tensors], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates the tensors along a third axis."""
    rows = [_rows(x) for x in tensors]
    return concat([x.unsqueeze(2) if x.ndim == 2 else x for x in rows], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates the tensors horizontally, vectors as columns.

    >>> import neurenix as nx
    >>> nx.column_stack([nx.tensor([1, 2]), nx.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return concat([x.reshape(-1, 1) if x.ndim < 2 else x for x in tensors], 1)


# Matrices.
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal."""
    return input.diag(diagonal)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    return input.trace()


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    return input.kron(other)


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along ``dim``; by default along the first dimension of size 3 of ``input``."""
    return input.cross(other, dim)


def _corner(row: int, col: int, offset: int, lower: bool, dtype: Any, device: Any) -> Tensor:
    rows = _engine.arange(row, device=device).unsqueeze(1)
    apart = _engine.arange(col, device=device) - rows
    return (apart <= offset if lower else apart >= offset).nonzero().T.to(dtype)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = "int64", device: Any = None) -> Tensor:
    """The indices of the lower triangle of a matrix: a row of its rows, and one of its columns.

    >>> import neurenix as nx
    >>> nx.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _corner(row, col, offset, True, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = "int64", device: Any = None) -> Tensor:
    """The indices of the upper triangle of a matrix: a row of its rows, and one of its columns."""
    return _corner(row, col, offset, False, dtype, device)


# Selection.
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with ``value`` where ``mask`` is true."""
    return input.masked_fill(mask, value)


def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: float | None = None, reduce: str | None = None
) -> Tensor:
    """A copy with ``src``, or one ``value``, written to the positions ``index`` along ``dim``; ``reduce`` adds it there
    (``"add"``) or multiplies (``"multiply"``).
    """
    return input.scatter(dim, index, src, value=value, reduce=reduce)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with ``src`` added to the positions ``index`` along ``dim``."""
    return input.scatter_add(dim, index, src)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy with the slices of ``source``, times ``alpha``, added to the positions ``index`` along ``dim``."""
    return _engine_methods.index_add(input, dim, index, source, alpha=alpha)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Selects along ``dim`` the positions given by ``indices`` for each slice; without ``dim``, from all elements."""
    return input.take_along_dim(indices, dim)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """True where an element is among ``test_elements``, or with ``invert`` where it is not. ``assume_unique`` has no
    effect.

    >>> import neurenix as nx
    >>> nx.isin(nx.tensor([1, 2, 3]), nx.tensor([2, 5])).tolist()
    [False, True, False]
    """
    x = _tensor(elements, test_elements if isinstance(test_elements, Tensor) else None)
    found = _engine.isin(x, _tensor(test_elements, x))
    return ~found if invert else found


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The index of the interval between sorted ``boundaries`` that contains each element. A boundary belongs to the
    interval below it, or with ``right`` to the interval above.
    """
    place = boundaries._searchsorted(_tensor(input, boundaries), right)
    return place.to("int32") if out_int32 else place


# Numbers.
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``steps`` powers of ``base`` with evenly spaced exponents from ``start`` to ``end``.

    >>> import neurenix as nx
    >>> nx.logspace(0, 3, 4, base=2.0).round().tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    start, end = (each.item() if isinstance(each, Tensor) else each for each in (start, end))
    kind = _engine.get_default_dtype() if dtype is None else _engine.dtype(dtype)
    if not kind.is_integer:
        inner = kind if kind.is_floating_point else "float64"
        exponents = _engine.linspace(start, end, steps, dtype=inner, device=device)
    else:
        # Converting to integers truncates, so the powers are computed with as little rounding as possible.
        exponents = _evenly(int(start), int(end), steps, device).double()
    made = (base**exponents).to(kind)
    return made.requires_grad_() if requires_grad else made


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral along ``dim`` by the trapezoidal rule, of values ``y`` at points ``x``, or at points ``dx`` apart.

    >>> import neurenix as nx
    >>> nx.trapezoid(nx.Tensor([1.0, 2.0, 4.0])).item()
    4.5
    """
    if y.ndim == 0:
        raise ValueError("trapezoid: expected at least 1 dimension")
    return _engine.trapezoid(y, x, dx, dim)


trapz = trapezoid


# Types.
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return input.is_floating_point()


def get_default_dtype() -> Any:
    """What ``set_default_dtype`` set: ``float32`` at the start."""
    return _engine.get_default_dtype()


def set_default_dtype(d: Any) -> None:
    """Sets the dtype of floats that neither an argument nor a tensor decides: ``float16``, ``bfloat16``, ``float32`` or
    ``float64``. It is that of Python floats in ``tensor``, of ``zeros``, ``rand`` and the other functions that create
    tensors, of the parameters of layers, of fractions of integers (``x / 2``, ``mean``, ``sin``), and of integer tensors
    combined with a Python float. Complex numbers are then ``complex128`` for ``float64``, else ``complex64``. NumPy's
    arrays and numbers keep their dtypes. The setting applies to the whole process.

    >>> import neurenix as nx
    >>> nx.set_default_dtype(nx.float64)
    >>> nx.tensor([0.5]).dtype, (nx.tensor([1, 2]) / 2).dtype, nx.nn.Linear(2, 1).weight.dtype
    (neurenix.float64, neurenix.float64, neurenix.float64)
    >>> nx.set_default_dtype(nx.float32)
    """
    _engine.set_default_dtype(d)


_guard(globals())
