"""Reductions and normalisations of the elements that a mask chooses, with PyTorch's names and arguments.

``mask`` is true where elements count, as opposed to the masks of attention; its shape is broadcast to that of the
input. The other elements are replaced by what does not change the result: 0 in a sum, 1 in a product, an infinity or
the limit of an integer type in an extreme. This is also the result where no element counts; means and variances are
NaN there.

>>> import neurenix as nx
>>> x, mask = nx.tensor([[1.0, 2.0], [3.0, 4.0]]), nx.tensor([[True, False], [True, True]])
>>> nx.masked.sum(x, 1, mask=mask).tolist(), nx.masked.mean(x, mask=mask).item()
([1.0, 7.0], 2.6666667461395264)
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

from . import _engine
from ._arguments import guard as _guard
from ._creation import iinfo
from ._engine import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm",
    "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

Dims = int | Sequence[int] | None


def _mask_of(input: Tensor, mask: Tensor) -> Tensor:
    """The mask in the shape of the input."""
    if mask.ndim > input.ndim:
        raise IndexError(f"the mask has {mask.ndim} dimensions, more than the input, which has {input.ndim}")
    return mask.broadcast_to(tuple(input.shape)).bool()


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """The input with ``value`` where the mask is false."""
    return input if mask is None else input.masked_fill(~_mask_of(input, mask), value)


def _least(input: Tensor) -> Any:
    if input.dtype.name == "bool":
        return False
    return -math.inf if input.is_floating_point() or input.is_complex() else iinfo(input.dtype).min


def _greatest(input: Tensor) -> Any:
    if input.dtype.name == "bool":
        return True
    return math.inf if input.is_floating_point() or input.is_complex() else iinfo(input.dtype).max


def _refuse_bool(name: str, input: Tensor) -> None:
    if input.dtype.name == "bool":
        raise TypeError(f"{name}: the positions would have the input's dtype, which is bool: convert it with .to(dtype)")


def _along(name: str, x: Tensor, dim: int | None, *args: Any) -> Tensor:
    """A method along a dimension; a tensor without dimensions counts as a vector of one element."""
    if x.ndim or dim is None:
        return getattr(x, name)(dim, *args)
    return getattr(x.reshape(1), name)(dim, *args).reshape(())


def _dims(input: Tensor, dim: Dims) -> tuple[int, ...] | None:
    """The dimensions counted from the front; ``None`` for all."""
    if dim is None or dim == () or input.ndim == 0:
        return None
    found: list[int] = [operator.index(dim)] if isinstance(dim, SupportsIndex) else list(dim)
    for each in found:
        if not -input.ndim <= each < input.ndim:
            raise IndexError(f"dim {each} is out of range for a tensor of {input.ndim} dimensions")
    counted = sorted(each % input.ndim for each in found)
    if len({*counted}) != len(counted):
        raise RuntimeError(f"a dimension appears more than once in dim={dim}")
    return tuple(counted)


def _as_sums(input: Tensor, dtype: Any) -> Any:
    """The dtype of sums and products: integers are added as ``int64``."""
    if dtype is not None:
        return dtype
    is_whole = not (input.is_floating_point() or input.is_complex())
    return _engine.dtype("int64") if is_whole else input.dtype


def sum(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The sum of the elements that count, over ``dim`` or all dimensions."""
    return _filled(input, mask, 0).sum(_dims(input, dim), keepdim, _as_sums(input, dtype))


def prod(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The product of the elements that count, over ``dim`` or all dimensions."""
    x, dims = _filled(input, mask, 1).to(_as_sums(input, dtype)), _dims(input, dim)
    for each in reversed(range(x.ndim) if dims is None else dims):
        x = x.prod(each, keepdim)
    return x


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The sums of the elements up to each, along ``dim``."""
    return _along("cumsum", _filled(input, mask, 0).to(dtype or input.dtype), dim).to(dtype or input.dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The products of the elements up to each, along ``dim``."""
    return _along("cumprod", _filled(input, mask, 1).to(dtype or input.dtype), dim).to(dtype or input.dtype)


def amax(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The greatest of the elements that count, over ``dim`` or all dimensions."""
    return _filled(input, mask, _least(input)).amax(_dims(input, dim), keepdim).to(dtype or input.dtype)


def amin(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The smallest of the elements that count, over ``dim`` or all dimensions."""
    return _filled(input, mask, _greatest(input)).amin(_dims(input, dim), keepdim).to(dtype or input.dtype)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The position of the greatest of the elements that count; by default in the input's dtype, as in PyTorch."""
    _refuse_bool("argmax", input)
    return _along("argmax", _filled(input, mask, _least(input)), dim, keepdim).to(dtype or input.dtype)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The position of the smallest of the elements that count; by default in the input's dtype, as in PyTorch."""
    _refuse_bool("argmin", input)
    return _along("argmin", _filled(input, mask, _greatest(input)), dim, keepdim).to(dtype or input.dtype)


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """The number of elements that count."""
    counted = _engine.ones(tuple(input.shape), dtype="int64", device=input.device) if mask is None else _mask_of(input, mask)
    return counted.sum(_dims(input, dim), keepdim)


def mean(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The mean of the elements that count, over ``dim`` or all dimensions; NaN where there is none."""
    kind = input.dtype if dtype is None else _engine.dtype(dtype)
    if not (kind.is_floating_point or kind.is_complex):
        raise ValueError(f"mean: expected floats, got {kind.name}: pass dtype=")
    return sum(input, dim, keepdim=keepdim, dtype=kind, mask=mask) / _count(input, dim, keepdim, mask).to(kind)


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The median of the elements that count along ``dim``, the lower of the two in the middle; NaN where there is none,
    which is an error for integers.
    """
    if input.is_floating_point():
        return _filled(input, mask, math.nan).nanmedian(dim, keepdim).values
    found = _filled(input.float(), mask, math.nan).nanmedian(dim, keepdim).values
    if builtins.bool(found.isnan().any()):
        raise ValueError("median: no element counts in a row of integers, which have no NaN")
    return found.to(dtype or input.dtype)


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum of exponentials of the elements that count, over ``dim`` or all dimensions."""
    dims = _dims(input, dim)
    x = _filled(input, mask, _least(input))
    x = x.float() if x.dtype.name == "bool" else x
    found = x.logsumexp(tuple(range(x.ndim)) if dims is None else dims, keepdim) if x.ndim else x.clone()
    return found.to(dtype or input.dtype)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum of the exponentials of two tensors, of which elements do not count where their mask is
    false.
    """
    from ._elementwise import logaddexp

    found = logaddexp(_filled(input, input_mask, _least(input)), _filled(other, other_mask, _least(other)))
    return found.to(dtype or input.dtype)


def norm(
    input: Tensor, ord: Any = 2.0, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The norm ``ord`` of the vector of the elements that count, over ``dim`` or all dimensions."""
    from .linalg import vector_norm

    x = _filled(input, mask, math.inf if ord == -math.inf else 0)
    return vector_norm(x if dtype is None else x.to(dtype), axis=_dims(input, dim), keepdims=keepdim, ord=ord)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance of the elements that count, over ``dim`` or all dimensions: the sum of squared differences from
    their mean, divided by their number less ``correction``: 1, or 0 with ``unbiased=False``.
    """
    if unbiased is not None and correction is not None:
        raise ValueError("var, std: expected either unbiased or correction")
    if correction is None:
        correction = 1.0 if unbiased is None else float(unbiased)
    kind = _engine.dtype(dtype or (input.dtype if input.is_floating_point() or input.is_complex() else "float32"))
    x = input.to(kind)
    distances = (x - mean(x, dim, keepdim=True, mask=mask)).abs()
    total = sum(distances * distances, dim, keepdim=keepdim, mask=mask)
    return (total / (_count(input, dim, keepdim, mask).to(total.dtype) - correction).clamp(min=0)).to(kind)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The root of :func:`var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """``softmax`` along ``dim`` of the elements that count, and 0 for the others; NaN where none counts."""
    return _along("softmax", _filled(input, mask, -math.inf).to(dtype or input.dtype), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The logarithm of :func:`softmax`."""
    return _along("log_softmax", _filled(input, mask, -math.inf).to(dtype or input.dtype), dim)


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """``softmax`` of the negative elements."""
    return softmax(-input, dim, dtype=dtype, mask=mask)


def normalize(
    input: Tensor, ord: Any, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The elements that count, divided by their norm along ``dim`` or by ``eps``, if that is greater; 0 for others."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / length.clamp(min=eps)


_guard(globals())
