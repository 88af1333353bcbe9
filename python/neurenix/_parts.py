"""PyTorch functions of shapes and parts: each is a function of ``neurenix`` and, except those of several tensors, a method of
its tensors.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._engine import Tensor, where
from ._methods import tensor_split

METHODS = [
    "adjoint", "argwhere", "as_strided", "diagflat", "diagonal_scatter", "dsplit", "hsplit", "index_reduce", "msort", "narrow_copy",
    "put", "renorm", "select_scatter", "slice_scatter", "split_with_sizes", "sum_to_size", "unique_consecutive", "unsafe_chunk",
    "unsafe_split", "unsafe_split_with_sizes", "vsplit",
]  # fmt: skip
__all__ = [
    *METHODS, "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "combinations", "row_stack", "unravel_index", "vander",
]  # fmt: skip



# Splitting.
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of these sizes along ``dim``."""
    return tuple(input.split(list(split_sizes), dim))


unsafe_split_with_sizes = split_with_sizes


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of this size along ``dim``, as ``split``."""
    return tuple(input.split(split_size, dim))


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """This many parts along ``dim``, as ``chunk``."""
    return tuple(input.chunk(chunks, dim))


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along the second dimension, or the only one; see ``tensor_split``. Sections must be of one size."""
    return _parts("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along the first dimension of at least two."""
    return _parts("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along the third dimension."""
    return _parts("dsplit", input, indices_or_sections, 2, 3)


def _parts(name: str, input: Tensor, given: Any, dim: int, least: int) -> tuple[Tensor, ...]:
    if input.ndim < least:
        raise ValueError(f"{name}: expected at least {least} dimensions, got shape {tuple(input.shape)}")
    if isinstance(given, int) and (given < 1 or input.shape[dim] % given):
        raise ValueError(f"{name}: {input.shape[dim]} elements cannot be divided into {given} equal parts: use tensor_split")
    return tensor_split(input, given, dim)


# Copies with other parts.
def _positions(input: Tensor) -> Tensor:
    return _engine.arange(input.numel(), device=input.device).reshape(input.shape)


def _with(input: Tensor, part: Tensor, src: Tensor) -> Tensor:
    """``input`` with ``src`` at these positions."""
    if tuple(part.shape) != tuple(src.shape):
        raise ValueError(f"expected a source of shape {tuple(part.shape)}, got {tuple(src.shape)}")
    return input.flatten().scatter(0, part.flatten(), src.to(input.dtype).flatten()).reshape(input.shape)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with ``src`` on the diagonals."""
    return _with(input, _positions(input).diagonal(offset, dim1, dim2), src)


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with ``src`` at one position along ``dim``."""
    return _with(input, _positions(input).select(dim, index), src)


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy with ``src`` at the positions ``start:end:step`` along ``dim``."""
    key = (slice(None),) * (dim % builtins.max(input.ndim, 1)) + (slice(start, end, step),)
    return _with(input, _positions(input)[key], src)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements of a contiguous tensor at the positions that sizes and strides describe, as a copy."""
    place = _engine.full((), storage_offset or 0, dtype="int64", device=input.device)
    for count, step in zip(size, stride):
        place = place.unsqueeze(-1) + _engine.arange(count, device=input.device) * step
    return input.flatten().index_select(0, place.flatten()).reshape(tuple(size))


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of ``length`` positions along ``dim``, beginning at ``start``."""
    return input.narrow(dim, start, length).clone()


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """A copy with the elements of ``source`` at the positions ``index`` of the flattened tensor; ``accumulate`` adds them."""
    place = index.flatten()
    place = where(place < 0, place + input.numel(), place)
    change = input.flatten().index_add if accumulate else input.flatten().scatter
    return change(0, place, source.to(input.dtype).flatten()).reshape(input.shape)


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: builtins.bool = True
) -> Tensor:
    """A copy with the slices of ``source`` combined at the positions ``index`` along ``dim``: ``reduce`` is ``"prod"``,
    ``"mean"``, ``"amax"`` or ``"amin"``.
    """
    if input.ndim == 0:
        return index_reduce(input.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self).reshape(())
    shape = [1] * source.ndim
    shape[dim] = -1
    places = index.reshape(shape).broadcast_to(source.shape)
    return input.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along ``dim``, scaled down where their ``p``-norm is greater than ``maxnorm``."""
    others = [each for each in range(input.ndim) if each != dim % input.ndim]
    norms = input.norm(p, others, True)
    return where(norms > maxnorm, input * (maxnorm / (norms + 1e-7)), input)


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sums over the dimensions along which a tensor of this size would have been broadcast."""
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    added = input.ndim - len(wanted)
    axes = [*range(added), *(added + axis for axis, each in enumerate(wanted) if each == 1 and input.shape[added + axis] != 1)]
    return input.sum(axes, True).reshape(wanted) if axes else input.reshape(wanted)


# Shapes.
def adjoint(input: Tensor) -> Tensor:
    """Matrices with their dimensions swapped."""
    return input.mH


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on its diagonal."""
    return input.flatten().diag(offset)


def argwhere(input: Tensor) -> Tensor:
    """A row of indices for each element that is not zero."""
    return input.nonzero()


def msort(input: Tensor) -> Tensor:
    """The elements sorted along the first dimension."""
    return input.sort(0)[0]


def unique_consecutive(
    input: Tensor, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: int | None = None
) -> Any:
    """The elements without those that equal their predecessor, or slices along ``dim``; if requested, also the index of
    each element's run, and the lengths of the runs.

    >>> import neurenix as nx
    >>> nx.unique_consecutive(nx.tensor([1, 1, 2, 1])).tolist()
    [1, 2, 1]
    """
    shape = tuple(input.shape)
    x = input.flatten() if dim is None else input.movedim(dim, 0)
    rows = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    changes = (rows[1:] != rows[:-1]).any(1)
    begins = _engine.cat([_engine.full((builtins.min(1, rows.shape[0]),), True, dtype="bool", device=x.device), changes])
    run = begins.to("int64").cumsum(0) - 1
    found = x[begins]
    results = [found if dim is None else found.movedim(0, dim)]
    if return_inverse:
        results.append(run.reshape(shape) if dim is None else run)
    if return_counts:
        results.append(_engine.zeros(found.shape[0], dtype="int64", device=x.device).index_add(0, run, _engine.full_like(run, 1)))
    return results[0] if len(results) == 1 else tuple(results)


# Several tensors.
def _each(tensors: tuple[Any, ...], change: Any) -> Any:
    given = tensors[0] if len(tensors) == 1 else tensors
    return change(given) if isinstance(given, Tensor) else tuple(change(each) for each in given)


def atleast_1d(*tensors: Any) -> Any:
    """The tensors, those without dimensions as vectors of one element."""
    return _each(tensors, lambda x: x.reshape(1) if x.ndim == 0 else x)


def atleast_2d(*tensors: Any) -> Any:
    """The tensors, those with fewer than two dimensions as matrices of one row."""
    return _each(tensors, lambda x: x.reshape(1, -1) if x.ndim < 2 else x)


def atleast_3d(*tensors: Any) -> Any:
    """The tensors with at least three dimensions: a matrix gets a last one, a vector one on each side."""
    return _each(tensors, lambda x: x.reshape(1, -1, 1) if x.ndim < 2 else x.unsqueeze(-1) if x.ndim == 2 else x)


def row_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenates the tensors vertically, as ``vstack``."""
    from ._functions import vstack

    return vstack(tensors)


def block_diag(*tensors: Any) -> Tensor:
    """The matrix with these matrices on its diagonal, zeros elsewhere."""
    parts = [atleast_2d(each if isinstance(each, Tensor) else _engine.tensor(each)) for each in tensors]
    if not parts:
        return _engine.zeros(1, 0)
    width = builtins.sum(part.shape[1] for part in parts)
    rows, before = [], 0
    for part in parts:
        rows.append(part.pad((before, width - before - part.shape[1])))
        before += part.shape[1]
    kind = parts[0].dtype
    for part in parts[1:]:
        kind = _engine.promote_types(kind, part.dtype)
    return _engine.cat([row.to(kind) for row in rows])


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element of each vector, as rows; of one vector, the vector."""
    if len(tensors) == 1:
        return tensors[0]
    return _engine.stack([grid.flatten() for grid in _engine.meshgrid(list(tensors), "ij")], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: builtins.bool = False) -> Tensor:
    """All combinations of ``r`` elements of a vector, as rows.

    >>> import neurenix as nx
    >>> nx.combinations(nx.tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    if not rows or not r:
        return input.new_zeros((0,) if not r else (0, r))
    return input[_engine.tensor(rows, device=input.device)]


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The index along each dimension of a tensor of this shape, of positions in it."""
    sizes = [shape] if isinstance(shape, int) else [int(each) for each in shape]
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.append(indices % size)
        indices = indices // size
    return tuple(reversed(found))


def vander(x: Tensor, N: int | None = None, increasing: builtins.bool = False) -> Tensor:
    """The matrix whose columns are powers of a vector, from the greatest to 0, or from 0 with ``increasing``."""
    count = x.shape[-1] if N is None else N
    powers = _engine.arange(count, device=x.device)
    powers = powers if increasing else (count - 1) - powers
    kind = x.dtype if x.dtype.name != "bool" else "int64"
    return x.to(kind).unsqueeze(-1) ** powers.to(kind)


_guard(globals())
