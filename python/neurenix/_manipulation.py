"""Manipulation, sorting, searching and indexing functions of the Python array API standard and PyTorch."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._complex import implementation
from ._creation import asarray, result_type
from ._einsum import einsum
from ._engine import Tensor, broadcast_shapes
from ._results import UniqueAll, UniqueCounts, UniqueInverse

Shape = int | Sequence[int]


# Shapes.
def broadcast_to(x: Tensor, /, shape: Shape) -> Tensor:
    """``x`` broadcast to a shape."""
    return x.broadcast_to(shape)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All tensors broadcast to their common shape."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return [x.broadcast_to(shape) for x in arrays]


broadcast_tensors = broadcast_arrays


def concat(arrays: Sequence[Tensor], /, axis: int | None = 0, *, dim: int | None = None) -> Tensor:
    """Concatenates the tensors along an axis; flattens them first if it is ``None``."""
    axis = axis if dim is None else dim
    parts = [x.ravel() for x in arrays] if axis is None else list(arrays)
    kind = result_type(*parts)
    return _engine.cat([x.to(kind) for x in parts], axis or 0)


concatenate = concat


def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Concatenates the tensors along ``dim``. Vectors without elements are left out if the others have more
    dimensions.
    """
    dim = dim if axis is None else axis
    try:
        return _engine.cat(tensors, dim)
    except (IndexError, ValueError):
        kept = [x for x in tensors if x.ndim != 1 or x.numel()]
        if len(kept) in (0, len(tensors)):
            raise
        return _engine.cat(kept, dim)


def stack(arrays: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Stacks the tensors along a new axis."""
    if len(arrays) == 0:
        raise ValueError("stack: expected at least one tensor")
    kind = result_type(*arrays)
    return _engine.stack([x.to(kind) for x in arrays], dim if axis is None else axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """A tensor for each position along an axis."""
    return x.unbind(axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """``x`` with new axes of size 1 at these positions of the result."""
    if isinstance(axis, int):
        return x.unsqueeze(axis)
    rank = x.ndim + len(axis)
    places = sorted(each + rank if each < 0 else each for each in axis)
    if len(set(places)) != len(places):
        raise ValueError(f"expand_dims: duplicate axis in {axis}")
    for place in places:
        if not 0 <= place < rank:
            raise IndexError(f"expand_dims: axis {axis} is out of range for a result of {rank} dimensions")
        x = x.unsqueeze(place)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...] | None = None, *, dim: int | None = None) -> Tensor:
    """``x`` without axes of size 1. In the standard, the named axes must have size 1; with ``dim=``, other sizes are
    left alone.
    """
    if dim is not None:
        return x.squeeze(dim)
    if axis is None:
        return x.squeeze()
    axes = (axis,) if isinstance(axis, int) else axis
    for each in axes:
        if -x.ndim <= each < x.ndim and x.shape[each] != 1:
            raise ValueError(f"squeeze: axis {each} of shape {tuple(x.shape)} has size {x.shape[each]}, not 1")
    return x.squeeze(axis)


def flip(x: Tensor, /, axis: int | tuple[int, ...] | None = None, *, dims: Sequence[int] | None = None) -> Tensor:
    """Reverses the order along axes, by default along all."""
    axis = tuple(dims) if dims is not None else axis
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def roll(x: Tensor, /, shift: Any, axis: Any = None, *, dims: Any = None) -> Tensor:
    """Rolls elements along axes; elements that leave one end enter at the other."""
    axis = axis if dims is None else dims
    if isinstance(axis, int) and isinstance(shift, tuple):
        raise ValueError("roll: expected as many axes as shifts")
    return x.roll(shift, axis)


def repeat(x: Tensor, repeats: Any, /, axis: int | None = None) -> Tensor:
    """Repeats each element, as in NumPy (``Tensor.repeat`` is ``tile``)."""
    if isinstance(repeats, Tensor) and repeats.numel() != 1:
        x, axis = (x.ravel(), 0) if axis is None else (x, axis)
        if repeats.ndim != 1 or repeats.numel() != x.shape[axis]:
            raise ValueError(f"repeat: counts of shape {tuple(repeats.shape)} for {x.shape[axis]} elements")
        if repeats.numel() == 0:
            return x.clone()
        if repeats.min() < 0:
            raise ValueError("repeat: a count is negative")
        ends = repeats.to(x.device).to("int64").cumsum(0)
        place = _engine.arange(ends[-1].item(), device=x.device)
        return x.index_select(axis, ends._searchsorted(place, True))
    return x.repeat_interleave(int(repeats), axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Tiles ``x`` with this number of copies along each axis."""
    return x.tile(repetitions) if repetitions else x.clone()


def reshape(x: Tensor, /, shape: Shape, *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape; one size may be -1."""
    result = x.reshape(shape)
    return result.clone() if copy else result


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Permutes the axes."""
    return x.permute(axes)


permute = permute_dims


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other positions."""
    return x.movedim(source, destination)


movedim = moveaxis


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The transpose of each matrix of a batch."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected at least 2 dimensions, got shape {tuple(x.shape)}")
    return x.mT


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two axes swapped."""
    return x.transpose(dim0, dim1)


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """``x`` with a new axis of size 1."""
    return x.unsqueeze(dim)


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Axes flattened into one."""
    return x.flatten(start_dim, end_dim)


def split(x: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits ``dim`` into parts of this size, or of these sizes."""
    return x.split(split_size, dim)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits ``dim`` into this number of parts."""
    return x.chunk(chunks, dim)


# Sorting and selection.
def sort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True, dim: int | None = None
) -> Any:
    """The sorted elements along an axis. With ``dim=``, values and indices, as in PyTorch."""
    return x.sort(axis, descending)[0] if dim is None else x.sort(dim, descending)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True, dim: int | None = None) -> Tensor:
    """The indices that sort along an axis."""
    return x.argsort(axis if dim is None else dim, descending)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` greatest elements along ``dim``: values and indices. Always sorted; ``sorted`` has no effect."""
    return x.topk(k, dim, largest)


def searchsorted(
    x1: Tensor,
    x2: Any,
    /,
    *,
    side: str | None = None,
    sorter: Tensor | None = None,
    right: bool = False,
    out_int32: bool = False,
) -> Tensor:
    """The index at which each element of ``x2`` belongs in the sorted vector ``x1``, or in the row of a tensor with
    the same leading sizes: before equal elements, or after them with ``side="right"``, which is PyTorch's
    ``right=True``. ``sorter`` sorts ``x1``.
    """
    if side not in (None, "left", "right"):
        raise ValueError(f"searchsorted: side is {side!r}, it must be 'left' or 'right'")
    if side == "left" and right:
        raise ValueError("searchsorted: side='left' contradicts right=True")
    if sorter is not None:
        x1 = x1.gather(-1, sorter.to("int64"))
    values = x2 if isinstance(x2, Tensor) else _engine.tensor(x2, device=x1.device)
    after = right or side == "right"
    if x1.ndim < 2:
        place = x1._searchsorted(values, after)
    elif x1.shape[:-1] != values.shape[:-1]:
        raise ValueError(f"searchsorted: shapes {tuple(x1.shape)} and {tuple(values.shape)} differ before the last dimension")
    else:
        count = math.prod(x1.shape[:-1])
        rows, wanted = (each.reshape(count, each.shape[-1]).unbind() for each in (x1, values))
        found = [row._searchsorted(each, after) for row, each in zip(rows, wanted, strict=True)]
        place = _engine.stack(found).reshape(values.shape) if found else values.to("int64")
    return place.to("int32") if out_int32 else place


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """For each axis the indices of nonzero elements, as in NumPy (``Tensor.nonzero`` gives rows)."""
    if x.ndim == 0:
        raise ValueError("nonzero: expected at least 1 dimension; reshape the tensor to (1,)")
    return x.nonzero(as_tuple=True)


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct elements, their first indices, the inverse indices, and the counts."""
    values, inverse, counts = x._unique()
    flat = inverse.ravel()
    order = flat.argsort()
    starts = counts.cumsum(0) - counts
    return UniqueAll(values, order.take(starts, 0) if values.numel() else starts, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct elements and their counts."""
    values, _, counts = x._unique()
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct elements and the inverse indices."""
    values, inverse, _ = x._unique()
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct elements, sorted."""
    return x._unique()[0]


def unique(
    x: Tensor,
    /,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Distinct elements, or distinct slices along ``dim``; if requested, also the inverse indices and the counts.
    They are always sorted.

    >>> import neurenix as nx
    >>> nx.unique(nx.tensor([[2, 1], [1, 5], [2, 1]]), dim=0).tolist()
    [[1, 5], [2, 1]]
    """
    values, inverse, counts = x._unique() if dim is None else _slices(x, dim)
    parts = [values] + [inverse] * return_inverse + [counts] * return_counts
    return parts[0] if len(parts) == 1 else tuple(parts)


def _slices(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct slices in lexicographic order, the index of each slice among them, and how often each occurs."""
    moved = x.movedim(dim, 0)
    count = moved.shape[0]
    if x.numel() == 0:
        if count:
            raise ValueError(f"unique: slices along dimension {dim} of shape {tuple(x.shape)} have no elements")
        nothing = _engine.zeros(0, dtype="int64", device=x.device)
        return x, nothing, nothing
    ranks = _ranks(moved.detach().reshape(count, -1))
    while ranks.shape[1] > 1:
        # The ranks of pairs of columns, until one column is left.
        if ranks.shape[1] % 2:
            ranks = _engine.cat([ranks, _engine.zeros(count, 1, dtype="int64", device=x.device)], 1)
        pairs = ranks.reshape(count, -1, 2)
        ranks = _ranks(pairs.select(2, 0) * count + pairs.select(2, 1))
    inverse = ranks.flatten()
    found = int(inverse.max().item()) + 1
    counts = _engine.zeros(found, dtype="int64", device=x.device).index_add(0, inverse, _engine.full_like(inverse, 1))
    first = inverse.argsort(0, stable=True).index_select(0, counts.cumsum(0) - counts)
    return moved.index_select(0, first).movedim(0, dim), inverse, counts


def _ranks(x: Tensor) -> Tensor:
    """The rank of each element among the distinct elements of its column."""
    ordered, places = x.sort(0)
    steps = (ordered[1:] != ordered[:-1]).to("int64").cumsum(0).pad((0, 0, 1, 0))
    return _engine.full_like(places, 0).scatter(0, places, steps)


def take(x: Tensor, indices: Tensor, /, axis: int | None = None) -> Tensor:
    """The positions ``indices`` along an axis."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"take: the axis of a tensor of {x.ndim} dimensions must be given")
    return x.index_select(0 if axis is None else axis, indices)


def take_along_axis(x: Tensor, indices: Tensor, /, axis: int = -1) -> Tensor:
    """Selects along an axis the positions given by ``indices`` for each slice."""
    return x.take_along_dim(indices, axis)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """``out[i][j] = x[index[i][j]][j]`` for ``dim`` 0, and so on."""
    return x.gather(dim, index)


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which elements of ``src`` are combined at the positions ``index`` along ``dim``: by ``"sum"``,
    ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
    """
    return x.scatter_reduce(dim, index, src, reduce, include_self=include_self)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The positions ``index`` along ``dim``."""
    return x.index_select(dim, index)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true."""
    return x.masked_select(mask)


# Products.
def matmul(x1: Tensor, x2: Tensor, /, *, out_dtype: Any = None) -> Tensor:
    """The product of matrices, batches of matrices, and vectors. ``out_dtype`` is that of the sums and of the result:
    ``int32`` for ``int8`` operands, ``float32`` for floats of 8 or 16 bits.

    >>> import neurenix as nx
    >>> nx.matmul(nx.Tensor([[1, 2], [3, 4]]), nx.Tensor([1, 1])).tolist()
    [3, 7]
    """
    return x1.matmul(x2, out_dtype=out_dtype)


def mm(x1: Tensor, x2: Tensor, /, out_dtype: Any = None) -> Tensor:
    """The product of two matrices; ``out_dtype`` is as for ``matmul``."""
    return x1.matmul(x2, out_dtype=out_dtype)


bmm = mm


def dot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The inner product of two vectors."""
    return x1.dot(x2)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1, dim: int | None = None) -> Tensor:
    """The inner products of vectors along an axis; complex ``x1`` is conjugated. ``dim``, of the broadcast tensors,
    may be positive, too.
    """
    kind = result_type(x1, x2)
    if dim is not None:
        return (x1.to(kind) * x2.to(kind)).sum(dim, dtype=kind)
    if not -builtins.min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(f"vecdot: axis is {axis}, it must be negative")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: shapes {x1.shape} and {x2.shape} differ along axis {axis}")
    return (x1.to(kind).conj() * x2.to(kind)).sum(axis, dtype=kind)


def tensordot(x1: Tensor, x2: Tensor, /, dims: Any = None, *, axes: Any = None) -> Tensor:
    """The sums of products over axes of both: a number of axes (the last of one and the first of the other), or a list
    for each. The standard calls them ``axes``, PyTorch ``dims``.
    """
    if dims is not None and axes is not None:
        raise TypeError("tensordot: dims and axes are the same argument; pass only one")
    axes = dims if axes is None else axes
    axes = 2 if axes is None else axes
    if isinstance(axes, int):
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = ([a % x.ndim for a in side] for x, side in zip((x1, x2), axes))
    # A size of 1 fits every other, as in PyTorch.
    for a, b in zip(first, second):
        if x1.shape[a] != x2.shape[b] == 1:
            x1 = x1.sum(a, True)
        elif x2.shape[b] != x1.shape[a] == 1:
            x2 = x2.sum(b, True)
    kept1 = [a for a in range(x1.ndim) if a not in first]
    kept2 = [a for a in range(x2.ndim) if a not in second]
    sizes1, sizes2 = [x1.shape[a] for a in first], [x2.shape[a] for a in second]
    if sizes1 != sizes2:
        raise ValueError(f"tensordot: shapes {x1.shape} and {x2.shape} do not match along axes {axes}")
    inner = 1
    for size in sizes1:
        inner *= size
    shape = [x1.shape[a] for a in kept1] + [x2.shape[a] for a in kept2]
    rows = 1
    for a in kept1:
        rows *= x1.shape[a]
    columns = 1
    for a in kept2:
        columns *= x2.shape[a]
    left = x1.permute(*kept1, *first).reshape(rows, inner) if x1.ndim else x1.reshape(1, 1)
    right = x2.permute(*second, *kept2).reshape(inner, columns) if x2.ndim else x2.reshape(1, 1)
    return left.matmul(right).reshape(shape)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The outer product of two vectors."""
    return x1.outer(x2)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``dim``."""
    return x.softmax(dim)


def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """The logarithm of ``softmax``."""
    return x.log_softmax(dim)


def allclose(x: Tensor, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements agree within ``atol + rtol * abs(y)``."""
    return bool(isclose(x, y, rtol, atol, equal_nan).all())


def isclose(x: Tensor, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where elements agree within ``atol + rtol * abs(y)``."""
    y = asarray(y, device=x.device)
    if x.dtype.is_complex or y.dtype.is_complex:
        return implementation("isclose")(x, y, rtol, atol, equal_nan)
    x, y = (t.to("float64") if t.device.name == "cpu" else t.to("float32") for t in (x, y))
    close = ((x - y).abs() <= atol + rtol * y.abs()) & y.isfinite() | (x == y)
    return close | (x.isnan() & y.isnan()) if equal_nan else close


def array_equal(x: Tensor, y: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return tuple(x.shape) == tuple(y.shape) and bool((x == y).all())


def numel(x: Tensor) -> int:
    """The number of elements."""
    return x.numel()


def is_tensor(x: Any) -> bool:
    """Whether ``x`` is a tensor."""
    return isinstance(x, Tensor)


_guard(globals())
