"""PyTorch functions composed of others: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._engine import Tensor, where
from ._results import aminmax as _AminMax
from ._results import kthvalue as _KthValue
from ._results import median as _Median
from ._results import mode as _Mode
from .random import multinomial

__all__ = [
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "aminmax",
    "baddbmm",
    "bincount",
    "cdist",
    "clamp_max",
    "clamp_min",
    "diag_embed",
    "diagonal",
    "dist",
    "fliplr",
    "flipud",
    "fmod",
    "frac",
    "ger",
    "histc",
    "index_copy",
    "index_fill",
    "index_put",
    "inner",
    "kthvalue",
    "lerp",
    "masked_scatter",
    "median",
    "mode",
    "multinomial",
    "mv",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nansum",
    "quantile",
    "rot90",
    "std_mean",
    "tensor_split",
    "var_mean",
]


# Order.
def _gathered(x: Tensor, order: Tensor, place: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The elements at the given ranks of the sorted order, and their indices."""
    index = order.gather(dim, place)
    value = x.gather(dim, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower of the two middle elements); with ``dim``, values and indices. NaN if any element is NaN.

    >>> import neurenix as nx
    >>> nx.median(nx.Tensor([4.0, 1.0, 3.0, 2.0])).item()
    2.0
    """
    if dim is None:
        return median(input.flatten(), 0).values
    if input.ndim == 0:
        return _Median(input, _engine.zeros((), dtype="int64", device=input.device))
    order, count = input.argsort(dim), input.shape[dim]
    if count == 0:
        raise IndexError(f"median: dimension {dim} of shape {tuple(input.shape)} has no elements")
    place = order.narrow(dim, 0, 1) * 0 + (count - 1) // 2
    if input.is_floating_point():
        missing = input.isnan()
        # NaN sorts last: the first NaN is the result.
        present = count - missing.sum(dim, True)
        place = where(present < count, present, place)
    return _Median(*_gathered(input, order, place, dim, keepdim))


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Same as ``median``, ignoring NaN."""
    if dim is None:
        return nanmedian(input.flatten(), 0).values
    present = (~input.isnan()).sum(dim, True)
    place = where(present > 0, (present - 1) // 2, 0)
    return _Median(*_gathered(input, input.argsort(dim), place, dim, keepdim))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along ``dim``, the smallest of equally frequent ones, and its last index.

    >>> import neurenix as nx
    >>> nx.mode(nx.Tensor([2.0, 1.0, 2.0, 3.0])).values.item()
    2.0
    """
    if input.ndim == 0:
        return _Mode(input, _engine.zeros((), dtype="int64", device=input.device))
    order, count = input.argsort(dim), input.shape[dim]
    if count == 0:
        raise IndexError(f"mode: dimension {dim} of shape {tuple(input.shape)} has no elements")
    ordered = input.detach().gather(dim, order)
    sizes = [1] * input.ndim
    sizes[dim] = count
    place = _engine.arange(count, device=input.device).reshape(sizes)
    # Equal elements form runs: find where each run begins, and from that the length of the run that ends at each
    # position.
    begins = ordered.narrow(dim, 1, count - 1) != ordered.narrow(dim, 0, count - 1)
    begins = _engine.cat([order.narrow(dim, 0, 1) * 0 == 0, begins], dim)
    length = place - where(begins, place, 0).cummax(dim).values
    return _Mode(*_gathered(input, order, length.argmax(dim, True), dim, keepdim))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The ``k``-th smallest element along ``dim``, counted from 1: values and indices."""
    if not 1 <= k <= input.shape[dim]:
        raise ValueError(f"kthvalue: k {k} is out of range for dimension {dim} of size {input.shape[dim]}")
    order = input.argsort(dim)
    place = order.narrow(dim, 0, 1) * 0 + (k - 1)
    return _KthValue(*_gathered(input, order, place, dim, keepdim))


def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The quantiles ``q`` of the elements. Several quantiles form a new first dimension."""
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueError(f"quantile: interpolation is {interpolation!r}")
    shares = q.tolist() if isinstance(q, Tensor) else q
    many = isinstance(shares, list)
    shares = shares if isinstance(shares, list) else [shares]
    if not builtins.all(0 <= share <= 1 for share in shares):
        raise ValueError(f"quantile: q is {q}, it must be between 0 and 1")
    sizes = [1] * input.ndim
    x, axis = (input.flatten(), 0) if dim is None else (input, dim)
    ordered, last = x.sort(axis)[0], x.shape[axis] - 1
    missing = x.isnan().any(axis, True)
    results = []
    for share in shares:
        place = share * last
        low, high = math.floor(place), math.ceil(place)
        weight = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5, "nearest": float(round(place) - low)}.get(
            interpolation, place - low
        )
        below, above = ordered.narrow(axis, low, 1), ordered.narrow(axis, high, 1)
        value = below if weight == 0 or low == high else below + (above - below) * weight
        value = where(missing, float("nan"), value)
        if dim is None:
            value = value.reshape(sizes) if keepdim else value.squeeze(0)
        elif not keepdim:
            value = value.squeeze(axis)
        results.append(value)
    return _engine.stack(results) if many else results[0]


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum, ignoring NaN.

    >>> import neurenix as nx
    >>> nx.nansum(nx.Tensor([1.0, float("nan"), 2.0])).item()
    3.0
    """
    present = where(input.isnan(), 0, input) if input.is_floating_point() else input
    return present.sum(dim, keepdim, dtype)


def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean, ignoring NaN; NaN if all elements are NaN."""
    if not input.is_floating_point():
        raise TypeError(f"nanmean: expected a floating-point tensor, got {input.dtype.name}; use mean()")
    sums = nansum(input, dim, keepdim, dtype=dtype)
    return sums / (~input.isnan()).sum(dim, keepdim).to(sums.dtype)


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the greatest element."""
    return _AminMax(input.amin(dim, keepdim), input.amax(dim, keepdim))


def std_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    return input.std(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def var_mean(input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each integer from 0 in a vector, or the sum of their weights."""
    if input.ndim != 1 or input.is_floating_point() or (input.numel() and int(input.min().item()) < 0):
        raise ValueError("bincount: expected a vector of non-negative integers")
    size = max(minlength, int(input.max().item()) + 1 if input.numel() else 0)
    counted = _engine.full(tuple(input.shape), 1, dtype="int64", device=input.device) if weights is None else weights
    result = _engine.zeros((size,), dtype=counted.dtype, device=input.device)
    return result.scatter_add(0, input.to("int64"), counted) if input.numel() else result


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of ``bins`` equal parts between ``min`` and ``max``, or between the smallest and
    greatest element if these are equal.
    """
    x = input.flatten()
    if min == max and x.numel():
        min, max = float(x.min().item()), float(x.max().item())
    if min == max:
        min, max = min - 1, max + 1
    if bins < 1 or not min < max:
        raise ValueError(f"histc: expected at least 1 bin and min <= max, got {bins} bins from {min} to {max}")
    x = x.masked_select((x >= min) & (x <= max))
    place = ((x - min) * (bins / (max - min))).floor().clamp(0, bins - 1)
    return bincount(place.to("int64"), minlength=bins).to(input.dtype)


# Selection.
def _rows(index: Tensor, input: Tensor, dim: int) -> Tensor:
    """An index of positions along ``dim``, broadcast over the other dimensions."""
    sizes = [1] * input.ndim
    sizes[dim] = index.numel()
    shape = list(input.shape)
    shape[dim] = index.numel()
    return index.reshape(sizes).broadcast_to(shape)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with the slices of ``source`` at the positions ``index`` along ``dim``."""
    return input.scatter(dim, _rows(index, input, dim), source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with ``value`` at the positions ``index`` along ``dim``."""
    return input.scatter(dim, _rows(index, input, dim), value.item() if isinstance(value, Tensor) else value)


def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with ``values`` at the positions of ``input[indices]`` (integers or masks); with ``accumulate`` they are
    added there.

    >>> import neurenix as nx
    >>> nx.index_put(nx.zeros(3), (nx.tensor([0, 2, 0]),), nx.tensor([1.0, 2.0, 3.0]), accumulate=True).tolist()
    [4.0, 0.0, 2.0]
    """
    # Indexing the element numbers instead of the elements checks the indices as ``input[indices]`` does.
    numbers = _engine.arange(input.numel(), device=input.device).reshape(input.shape)[tuple(indices)]
    given = values.to(input.dtype).broadcast_to(numbers.shape).flatten()
    change = input.flatten().index_add if accumulate else input.flatten().scatter
    return change(0, numbers.flatten(), given).reshape(input.shape)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements of ``source``, in order, where ``mask`` is true."""
    mask = mask.broadcast_to(input.shape)
    count = int(mask.sum().item())
    if count > source.numel():
        raise ValueError(f"masked_scatter: {count} places for {source.numel()} elements")
    if count == 0:
        return input.clone()
    place = mask.flatten().to("int64").cumsum(0) - 1
    given = source.flatten().index_select(0, place.clamp(min=0)).reshape(input.shape)
    return where(mask, given.to(input.dtype), input)


# Products and distances.
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    product = mat1 @ mat2 if alpha == 1 else (mat1 @ mat2) * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``."""
    return addmm(input, mat, vec, beta=beta, alpha=alpha)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)`` for batches of matrices."""
    return addmm(input, batch1, batch2, beta=beta, alpha=alpha)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return input + tensor1 * tensor2 * value


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    return input + tensor1 / tensor2 * value


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    return input + (end - input) * weight


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return input @ vec


def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products over the last dimension of both."""
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    return _engine.einsum("ai,bi->ab", *(x.reshape(-1, x.shape[-1]) for x in (input, other))).reshape(
        (*input.shape[:-1], *other.shape[:-1])
    )


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product of two vectors."""
    return input.outer(vec2)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference."""
    return (input - other).norm(p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The distances between all rows of two matrices, or batches of them: (..., P, M) and (..., R, M) to (..., P, R).
    """
    apart = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs()
    if p == math.inf:
        return apart.amax(-1)
    if p == 1:
        return apart.sum(-1)
    if p == 0:
        return (apart != 0).sum(-1).to(apart.dtype)
    total = (apart * apart if p == 2 else apart**p).sum(-1)
    # Equal rows have a distance of 0 and a gradient of 0.
    same = total == 0
    return where(same, 0.0, where(same, 1.0, total) ** (1.0 / p))


# Elements.
def fmod(input: Tensor, other: Any) -> Tensor:
    """The remainder of a division, with the sign of ``input``."""
    rest = input % other
    if not rest.is_floating_point():
        # The absolute value of the smallest integer overflows its dtype.
        return where((rest != 0) & ((rest < 0) != (input < 0)), rest - other, rest)
    # Computed from absolute values, since a float's floored remainder may have been rounded. The absolute value is
    # taken in the result's dtype, because that of the smallest integer overflows its own.
    kind = rest.dtype
    if isinstance(other, (int, float)):
        size: Any = abs(other)
    else:
        size = (other if isinstance(other, Tensor) else _engine.tensor(other, device=input.device)).to(kind).abs()
    rest = input.to(kind).abs() % size
    return where(input < 0, -rest, rest)


def frac(input: Tensor) -> Tensor:
    """The fractional part."""
    return input - input.trunc()


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Elements below ``min`` become ``min``."""
    return input.clamp(min, None)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Elements above ``max`` become ``max``."""
    return input.clamp(None, max)


_GREATEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replaces NaN and infinities, by default NaN by 0 and infinities by the dtype's limits."""
    if not input.is_floating_point():
        return input
    most = _GREATEST.get(input.dtype.name, 1.7976931348623157e308)
    result = where(input.isnan(), nan, input)
    result = where(input == math.inf, most if posinf is None else posinf, result)
    return where(input == -math.inf, -most if neginf is None else neginf, result)


# Shapes.
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals over two dimensions, as a last dimension."""
    x = input.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    size = max(min(rows - row, columns - column), 0)
    places = _engine.arange(size, device=input.device) * (columns + 1) + (row * columns + column)
    return input._as_view(x.reshape(*x.shape[:-2], rows * columns).index_select(-1, places))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension as their diagonals, zeros elsewhere."""
    size = input.shape[-1] + abs(offset)
    row = _engine.arange(size, device=input.device)
    spread = input.pad((max(offset, 0), max(-offset, 0))).unsqueeze(-2)
    placed = where(row.unsqueeze(1) + offset == row, spread, _engine.zeros((), dtype=input.dtype, device=input.device))
    return placed.movedim((-2, -1), (dim1, dim2))


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotates by 90 degrees in the plane of two dimensions, from the first towards the second, ``k`` times.

    >>> import neurenix as nx
    >>> nx.rot90(nx.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    first, second = dims
    if -input.ndim <= first < input.ndim and (first - second) % input.ndim == 0:
        raise ValueError(f"rot90: dims {tuple(dims)} must name two different dimensions")
    if k % 4 == 2:
        return input.flip(first, second)
    if k % 2 == 0:
        return input.clone()
    turned = input.transpose(first, second)
    return turned.flip(first if k % 4 == 1 else second)


#: The number of parts may exceed the number of elements by this much.
_EMPTY_PARTS = 1 << 16


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits ``dim`` into this number of parts, the first longer by one if necessary, or before these positions.

    >>> import neurenix as nx
    >>> [part.tolist() for part in nx.tensor_split(nx.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    size = input.shape[dim]
    most = size + _EMPTY_PARTS
    # Converts tensors and NumPy arrays to lists.
    given = indices_or_sections.tolist() if hasattr(indices_or_sections, "tolist") else indices_or_sections
    if hasattr(given, "__index__"):
        parts = operator.index(given)
        if parts < 1:
            raise ValueError(f"tensor_split: expected at least 1 part, got {parts}")
        if parts > most:
            raise ValueError(f"tensor_split: {parts} parts of {size} elements: at most {most} are expected")
        least, longer = divmod(size, parts)
        cuts = [least * number + builtins.min(number, longer) for number in range(1, parts)]
    else:
        # Slice semantics: negative positions count from the end, and positions are clamped to the size.
        cuts = [slice(None, cut).indices(size)[1] for cut in itertools.islice(given, most + 1)]
        if len(cuts) > most:
            raise ValueError(f"tensor_split: at most {most} positions are expected for {size} elements")
    return tuple(
        input.narrow(dim, start, builtins.max(stop - start, 0)) for start, stop in zip([0, *cuts], [*cuts, size])
    )


def fliplr(input: Tensor) -> Tensor:
    """Reverses the second dimension."""
    return input.flip(1)


def flipud(input: Tensor) -> Tensor:
    """Reverses the first dimension."""
    return input.flip(0)


_guard(globals())
