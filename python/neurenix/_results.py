"""Results of operations with several outputs, with PyTorch's names."""

from __future__ import annotations

from typing import NamedTuple

from ._engine import Tensor


class max(NamedTuple):
    """The result of ``x.max(dim)``: the greatest elements along a dimension, and their indices. Both have the shape of
    ``x`` without ``dim``, or with a size of 1 there for ``keepdim``.

    >>> import neurenix as nx
    >>> nx.Tensor([[3.0, 1.0], [2.0, 4.0]]).max(1).indices.tolist()
    [0, 1]
    """

    values: Tensor
    indices: Tensor


class min(NamedTuple):
    """The result of ``x.min(dim)``: the smallest elements along a dimension, and their indices; shapes as of
    :class:`max`.
    """

    values: Tensor
    indices: Tensor


class sort(NamedTuple):
    """The result of ``x.sort(dim)``: the sorted elements along a dimension, and their indices; both have the shape of
    ``x``.

    >>> import neurenix as nx
    >>> values, indices = nx.Tensor([3.0, 1.0, 2.0]).sort()
    >>> values.tolist(), indices.tolist()
    ([1.0, 2.0, 3.0], [1, 2, 0])
    """

    values: Tensor
    indices: Tensor


class topk(NamedTuple):
    """The result of ``x.topk(k, dim)``: the ``k`` greatest elements along a dimension, and their indices; both have the
    shape of ``x`` with ``k`` for the size of ``dim``.

    >>> import neurenix as nx
    >>> nx.Tensor([3.0, 1.0, 2.0]).topk(2).values.tolist()
    [3.0, 2.0]
    """

    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    """The result of ``nx.unique_all(x)``: distinct elements (n), their first indices in the flattened ``x`` (n), the
    inverse indices (the shape of ``x``), and the counts (n).
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of ``nx.unique_counts(x)``: distinct elements (n), and their counts (n).

    >>> import neurenix as nx
    >>> values, counts = nx.unique_counts(nx.tensor([2, 1, 2]))
    >>> values.tolist(), counts.tolist()
    ([1, 2], [1, 2])
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of ``nx.unique_inverse(x)``: distinct elements (n), and the inverse indices (the shape of ``x``)."""

    values: Tensor
    inverse_indices: Tensor


class median(NamedTuple):
    """The result of ``x.median(dim)``: the medians, the lower of two, and their indices; shapes as of :class:`max`."""

    values: Tensor
    indices: Tensor


class kthvalue(NamedTuple):
    """The result of ``x.kthvalue(k, dim)``: the ``k``-th smallest elements, counted from 1, and their indices; shapes
    as of :class:`max`.
    """

    values: Tensor
    indices: Tensor


class mode(NamedTuple):
    """The result of ``x.mode(dim)``: the most frequent elements, and their last indices; shapes as of :class:`max`."""

    values: Tensor
    indices: Tensor


class cummax(NamedTuple):
    """The result of ``x.cummax(dim)``: the greatest element so far, and its index; both have the shape of ``x``.

    >>> import neurenix as nx
    >>> nx.Tensor([1.0, 3.0, 2.0]).cummax(0).values.tolist()
    [1.0, 3.0, 3.0]
    """

    values: Tensor
    indices: Tensor


class cummin(NamedTuple):
    """The result of ``x.cummin(dim)``: the smallest element so far, and its index; both have the shape of ``x``."""

    values: Tensor
    indices: Tensor


class aminmax(NamedTuple):
    """The result of ``x.aminmax(dim=...)``: the smallest and the greatest elements; shapes as of :class:`max`, or ()
    without ``dim``.
    """

    min: Tensor
    max: Tensor


class SlogdetResult(NamedTuple):
    """The result of ``nx.linalg.slogdet(x)`` for matrices (..., N, N): the signs (...) of the determinants and the
    logarithms (...) of their magnitudes.
    """

    sign: Tensor
    logabsdet: Tensor


class QRResult(NamedTuple):
    """The result of ``nx.linalg.qr(x)`` for matrices (..., M, N): ``Q`` (..., M, K) and ``R`` (..., K, N) with K the
    smaller of both, or M if ``mode`` is ``"complete"``.
    """

    Q: Tensor
    R: Tensor


class EigResult(NamedTuple):
    """The result of ``nx.linalg.eig(x)``: complex eigenvalues (..., N), and eigenvectors in the columns of (..., N, N)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """The result of ``nx.linalg.eigh(x)`` for symmetric matrices (..., N, N): eigenvalues (..., N), ascending, and
    eigenvectors (..., N, N), which are the columns.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """The result of ``nx.linalg.svd(x)`` for matrices (..., M, N) with K the smaller of both: ``U`` (..., M, M), the
    singular values ``S`` (..., K), descending, and ``Vh`` (..., N, N); without ``full_matrices`` (..., M, K), (..., K)
    and (..., K, N).
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class LUResult(NamedTuple):
    """The result of ``nx.linalg.lu(x)`` for matrices (..., M, N) with K the smaller of both: ``P`` (..., M, M), ``L``
    (..., M, K) and ``U`` (..., K, N).
    """

    P: Tensor
    L: Tensor
    U: Tensor


class LDLFactorResult(NamedTuple):
    """The result of ``nx.linalg.ldl_factor(x)`` for matrices (..., N, N): both factors (..., N, N), and the ``int32``
    pivots (..., N).
    """

    LD: Tensor
    pivots: Tensor


class LDLFactorExResult(NamedTuple):
    """The result of ``nx.linalg.ldl_factor_ex(x)``: that of ``ldl_factor``, and an ``int32`` number (...) for each
    matrix.
    """

    LD: Tensor
    pivots: Tensor
    info: Tensor


class LUFactorResult(NamedTuple):
    """The result of ``nx.linalg.lu_factor(x)`` for matrices (..., M, N): both factors (..., M, N), and the ``int32``
    pivots (..., K), with K the smaller of M and N.
    """

    LU: Tensor
    pivots: Tensor


class LUFactorExResult(NamedTuple):
    """The result of ``nx.linalg.lu_factor_ex(x)``: that of ``lu_factor``, and an ``int32`` number (...) for each
    matrix.
    """

    LU: Tensor
    pivots: Tensor
    info: Tensor


class CholeskyExResult(NamedTuple):
    """The result of ``nx.linalg.cholesky_ex(x)``: the factors (..., N, N), and an ``int32`` number (...) for each
    matrix.
    """

    L: Tensor
    info: Tensor


class InvExResult(NamedTuple):
    """The result of ``nx.linalg.inv_ex(x)``: the inverses (..., N, N), and an ``int32`` number (...) for each matrix.
    """

    inverse: Tensor
    info: Tensor


class SolveExResult(NamedTuple):
    """The result of ``nx.linalg.solve_ex(x, y)``: the solutions, and an ``int32`` number (...) for each matrix."""

    result: Tensor
    info: Tensor


class LstsqResult(NamedTuple):
    """The result of ``nx.linalg.lstsq(x, y)`` for (..., M, N) and (..., M, K): the solutions (..., N, K), the sums of
    squares (..., K) or nothing, the ranks (...) and the singular values (..., min(M, N)).
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class SVD(NamedTuple):
    """The result of ``torch.svd(x)`` for matrices (..., M, N): ``U`` (..., M, K), ``S`` (..., K) and ``V`` (..., N,
    K).
    """

    U: Tensor
    S: Tensor
    V: Tensor


class TriangularSolve(NamedTuple):
    """The result of ``torch.triangular_solve(b, A)``: the solutions, and the matrices."""

    solution: Tensor
    cloned_coefficient: Tensor


class Histogram(NamedTuple):
    """The result of ``nx.histogram(x, bins)``: the numbers (bins) between edges, and the edges (bins + 1)."""

    hist: Tensor
    bin_edges: Tensor
