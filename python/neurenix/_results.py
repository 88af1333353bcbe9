"""What operations with several results give, by PyTorch's names."""

from __future__ import annotations

from typing import NamedTuple

from ._engine import Tensor


class Size(int):
    """The number of elements; called, the sizes of the dimensions, or of one of them."""

    _shape: tuple[int, ...]

    def __new__(cls, count: int, shape: tuple[int, ...]) -> Size:
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __call__(self, dim: int | None = None) -> tuple[int, ...] | int:
        if dim is not None and not -len(self._shape) <= dim < len(self._shape):
            raise IndexError(f"size: there is no dimension {dim}: the tensor has {len(self._shape)}")
        return self._shape if dim is None else self._shape[dim]


class max(NamedTuple):
    """What ``x.max(dim)`` gives: the greatest elements along a dimension, and where they stand; both have the shape of
    ``x`` without ``dim``, or with a size of 1 there for ``keepdim``.

    >>> import neurenix as nx
    >>> nx.Tensor([[3.0, 1.0], [2.0, 4.0]]).max(1).indices.tolist()
    [0, 1]
    """

    values: Tensor
    indices: Tensor


class min(NamedTuple):
    """What ``x.min(dim)`` gives: the smallest elements along a dimension, and where they stand; shapes as of
    :class:`max`."""

    values: Tensor
    indices: Tensor


class sort(NamedTuple):
    """What ``x.sort(dim)`` gives: the elements in order along a dimension, and where each stood; both have the shape of
    ``x``.

    >>> import neurenix as nx
    >>> values, indices = nx.Tensor([3.0, 1.0, 2.0]).sort()
    >>> values.tolist(), indices.tolist()
    ([1.0, 2.0, 3.0], [1, 2, 0])
    """

    values: Tensor
    indices: Tensor


class topk(NamedTuple):
    """What ``x.topk(k, dim)`` gives: the ``k`` greatest elements along a dimension, and where they stand; both have the
    shape of ``x`` with ``k`` for the size of ``dim``.

    >>> import neurenix as nx
    >>> nx.Tensor([3.0, 1.0, 2.0]).topk(2).values.tolist()
    [3.0, 2.0]
    """

    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    """What ``nx.unique_all(x)`` gives: distinct elements (n), where each first stands in the flattened ``x`` (n), which
    of them each element is (the shape of ``x``), and how often each occurs (n)."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``nx.unique_counts(x)`` gives: distinct elements (n), and how often each occurs (n).

    >>> import neurenix as nx
    >>> values, counts = nx.unique_counts(nx.tensor([2, 1, 2]))
    >>> values.tolist(), counts.tolist()
    ([1, 2], [1, 2])
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``nx.unique_inverse(x)`` gives: distinct elements (n), and which of them each element is (the shape of ``x``)."""

    values: Tensor
    inverse_indices: Tensor


class median(NamedTuple):
    """What ``x.median(dim)`` gives: the elements in the middle, the lower of two, and where they stand; shapes as of
    :class:`max`."""

    values: Tensor
    indices: Tensor


class kthvalue(NamedTuple):
    """What ``x.kthvalue(k, dim)`` gives: the ``k``-th smallest elements, counted from 1, and where they stand; shapes as
    of :class:`max`."""

    values: Tensor
    indices: Tensor


class mode(NamedTuple):
    """What ``x.mode(dim)`` gives: the most frequent elements, and where they stand last; shapes as of :class:`max`."""

    values: Tensor
    indices: Tensor


class cummax(NamedTuple):
    """What ``x.cummax(dim)`` gives: the greatest element so far, and where it stands; both have the shape of ``x``.

    >>> import neurenix as nx
    >>> nx.Tensor([1.0, 3.0, 2.0]).cummax(0).values.tolist()
    [1.0, 3.0, 3.0]
    """

    values: Tensor
    indices: Tensor


class cummin(NamedTuple):
    """What ``x.cummin(dim)`` gives: the smallest element so far, and where it stands; both have the shape of ``x``."""

    values: Tensor
    indices: Tensor


class aminmax(NamedTuple):
    """What ``x.aminmax(dim=...)`` gives: the smallest and the greatest elements; shapes as of :class:`max`, or () without
    ``dim``."""

    min: Tensor
    max: Tensor


class SlogdetResult(NamedTuple):
    """What ``nx.linalg.slogdet(x)`` gives for matrices (..., N, N): the signs (...) of the determinants and the
    logarithms (...) of their magnitudes."""

    sign: Tensor
    logabsdet: Tensor


class QRResult(NamedTuple):
    """What ``nx.linalg.qr(x)`` gives for matrices (..., M, N): ``Q`` (..., M, K) and ``R`` (..., K, N) with K the lesser
    of both, or M if ``mode`` is ``"complete"``."""

    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    """What ``nx.linalg.eigh(x)`` gives for symmetric matrices (..., N, N): eigenvalues (..., N), ascending, and
    eigenvectors (..., N, N), which are the columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """What ``nx.linalg.svd(x)`` gives for matrices (..., M, N) with K the lesser of both: ``U`` (..., M, M), the singular
    values ``S`` (..., K), descending, and ``Vh`` (..., N, N); without ``full_matrices`` (..., M, K), (..., K) and (...,
    K, N)."""

    U: Tensor
    S: Tensor
    Vh: Tensor
