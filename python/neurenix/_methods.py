"""PyTorch functions composed of others: each is a function of ``neurenix`` and a method of its tensors."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import _engine, _engine_methods
from ._arguments import guard as _guard
from ._engine import Tensor, where
from ._floating import promoted as _promoted
from ._results import aminmax as _AminMax
from ._results import kthvalue as _KthValue
from ._results import median as _Median
from ._results import mode as _Mode
from .random import multinomial

Function = TypeVar("Function", bound=Callable[..., Any])

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
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median (the lower of the two middle elements); with ``dim``, values and indices. NaN if any element is NaN.

    >>> import neurenix as nx
    >>> nx.median(nx.Tensor([4.0, 1.0, 3.0, 2.0])).item()
    2.0
    """
    if dim is None:
        return _engine.median(input.flatten(), 0, False)[0]
    return _Median(*_engine.median(input, dim, keepdim))


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Same as ``median``, ignoring NaN."""
    if dim is None:
        return _engine.nanmedian(input.flatten(), 0, False)[0]
    return _Median(*_engine.nanmedian(input, dim, keepdim))


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element along ``dim``, the smallest of equally frequent ones, and its last index.

    >>> import neurenix as nx
    >>> nx.mode(nx.Tensor([2.0, 1.0, 2.0, 3.0])).values.item()
    2.0
    """
    return _Mode(*_engine.mode(input, dim, keepdim))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The ``k``-th smallest element along ``dim``, counted from 1: values and indices."""
    return _KthValue(*_engine.kthvalue(input, k, dim, keepdim))


def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The quantiles ``q`` of the elements. Several quantiles form a new first dimension."""
    if input.ndim == 0:
        dim, keepdim = None, False
    shares = q.tolist() if isinstance(q, Tensor) else q
    found = _engine.quantile(input, shares if isinstance(shares, list) else [shares], dim, keepdim, interpolation)
    return found if isinstance(shares, list) else found.reshape(found.shape[1:])


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


def std_mean(input: Tensor, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    return input.std(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def var_mean(input: Tensor, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each integer from 0 in a vector, or the sum of their weights; of integers as
    ``float64``.
    """
    if weights is not None and not weights.is_floating_point():
        weights = weights.double()
    return _engine.bincount(input, weights, minlength)


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of ``bins`` equal parts between ``min`` and ``max``, or between the smallest and
    greatest element if these are equal.
    """
    return _engine.histc(input, bins, min, max)


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
    return _engine.index_copy(input, dim, index, source)


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
    """A copy with the elements of ``source``, in order, where ``mask`` is true, of the shape of both broadcast
    together.
    """
    return _engine_methods.masked_scatter(input, mask, source)


# Products and distances.
def _added(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """``beta * input + alpha * product``; of integers, the factors are converted to integers."""
    if not any(x.is_floating_point() or x.is_complex() for x in (input, product)):
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.broadcast_to(_engine.broadcast_shapes(input.shape, product.shape))
    return (input if beta == 1 else input * beta) + product


def _factors_first(*names: str) -> Callable[[Function], Function]:
    """Accepts PyTorch's older order too, in which numbers, the factors of these names, are before the tensors that they
    multiply.
    """
    def decorated(function: Function) -> Function:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            numbers = [each for each in args if isinstance(each, (int, float, complex))]
            if numbers:
                args = tuple(each for each in args if not isinstance(each, (int, float, complex)))
                if len(args) != 3 or len(numbers) > len(names):
                    raise TypeError(f"{function.__name__}: expected three tensors, got {len(args)} and {len(numbers)} numbers")
                kwargs.update(zip(names, numbers))
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return decorated


@_factors_first("beta", "alpha")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    return _added(input, mat1 @ mat2, beta, alpha)


@_factors_first("beta", "alpha")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``."""
    return _added(input, mat @ vec, beta, alpha)


@_factors_first("beta", "alpha")
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)`` for batches of matrices."""
    return _added(input, batch1 @ batch2, beta, alpha)


@_factors_first("value")
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return input + tensor1 * tensor2 * value


@_factors_first("value")
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    return input + tensor1 / tensor2 * value


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    return _engine.lerp(input, end, weight)


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


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distances between all rows of two matrices, or batches of them: (..., P, M) and (..., R, M) to (..., P, R).
    ``compute_mode`` is a hint without effect.
    """
    return _engine.cdist(x1, x2, p)


# Elements.
def fmod(input: Tensor, other: Any) -> Tensor:
    """The remainder of a division, with the sign of ``input``."""
    return _engine.fmod(*(_promoted(input, other) if isinstance(other, Tensor) else (input, other)))


def frac(input: Tensor) -> Tensor:
    """The fractional part."""
    return _engine.frac(input)


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Elements below ``min`` become ``min``."""
    return input.clamp(min, None)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Elements above ``max`` become ``max``."""
    return input.clamp(None, max)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replaces NaN and infinities, by default NaN by 0 and infinities by the dtype's limits."""
    return _engine.nan_to_num(input, nan, posinf, neginf) if input.is_floating_point() else input


# Shapes.
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals over two dimensions, as a last dimension."""
    x = input.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    size = max(min(rows - row, columns - column), 0)
    start = row * columns + column
    # A view of the elements in rows, whatever the tensor's memory layout is.
    return x.view(*x.shape[:-2], rows * columns)[..., start : start + size * (columns + 1) : columns + 1]


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
