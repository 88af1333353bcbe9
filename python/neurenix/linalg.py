"""Linear algebra: products, norms, decompositions and functions based on them.

The last two dimensions are matrices; any leading dimensions form the batch. Decompositions take ``float32`` and
``float64``; they are computed on the CPU, also for tensors on a GPU, and support gradients. A matrix that is singular
or not positive definite raises ``RuntimeError`` when the result is computed, or, after ``neurenix.torch`` has been
imported, ``LinAlgError`` within the call.

>>> import neurenix as nx
>>> a = nx.Tensor([[4.0, 3.0], [6.0, 3.0]])
>>> nx.linalg.det(a).item()
-6.0
>>> nx.linalg.solve(a, nx.Tensor([10.0, 12.0])).tolist()
[1.0, 2.0]
>>> nx.linalg.eigh(nx.Tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
[1.0, 2.0]
"""

from __future__ import annotations

import operator
from typing import Any, Literal

from . import _engine, _linear_algebra
from ._arguments import guard as _guard
from ._creation import eye, finfo
from ._eigen import eig as eig, eigvals as eigvals
from ._engine import Tensor, where
from ._factorizations import *  # noqa: F403
from ._factorizations import __all__ as _factorizations
from ._linear_algebra import LinAlgError
from ._manipulation import concat, matmul, matrix_transpose, outer, tensordot, vecdot
from ._reductions import sum as sums
from ._results import EighResult, QRResult, SlogdetResult, SVDResult
from ._symmetric import *  # noqa: F403
from ._symmetric import __all__ as _symmetric_factorizations

_Tolerance = float | Tensor | None


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1, dim: int | None = None) -> Tensor:
    """The cross product along an axis of size 3."""
    return x1.cross(x2, axis if dim is None else dim)


def diagonal(x: Tensor, /, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, which are the dimensions ``dim1`` and ``dim2``."""
    if (dim1, dim2) != (-2, -1):
        x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset if offset >= 0 else -offset * columns
    flat = x.reshape(*x.shape[:-2], rows * columns)
    stop = start + (length - 1) * (columns + 1) + 1 if length else start
    return flat[..., start : stop : columns + 1]


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of matrices."""
    return sums(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The ``n``-th power of a square matrix; for a negative ``n``, of its inverse.

    >>> import neurenix as nx
    >>> nx.linalg.matrix_power(nx.Tensor([[2.0, 0.0], [0.0, 4.0]]), -2).tolist()
    [[0.25, 0.0], [0.0, 0.0625]]
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"matrix_power: the exponent is {n!r}, it must be an integer") from None
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"matrix_power: expected square matrices, got shape {tuple(x.shape)}")
    result = eye(x.shape[-1], dtype=x.dtype, device=x.device).broadcast_to(x.shape)
    power = inv(x) if n < 0 else x
    n = abs(n)
    while n:
        if n & 1:
            result = result.matmul(power)
        n >>= 1
        if n:
            power = power.matmul(power)
    return result


def vector_norm(
    x: Tensor,
    /,
    ord: float = 2,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The ``ord``-norm over axes, after a conversion to ``dtype``."""
    x = x if dtype is None else x.to(dtype)
    axis, keepdims = dim if axis is None else axis, keepdim or keepdims
    if x.ndim == 0 and axis in (0, -1, (0,), (-1,)):
        return x.reshape(1).norm(ord)
    if axis is None and keepdims:
        return x.norm(ord).reshape((1,) * x.ndim)
    return x.norm(ord, axis, keepdims)


def matrix_norm(
    x: Tensor,
    /,
    ord: float | Literal["fro", "nuc"] | None = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    keepdims: bool = False,
) -> Tensor:
    """A norm of matrices, after a conversion to ``dtype``. ``"fro"`` is the square root of the sum of squares. Of the singular values, ``"nuc"`` is the
    sum, 2 the greatest and -2 the smallest. 1 and -1 are the greatest and smallest column sum of magnitudes; infinity
    and minus infinity are those of rows.

    >>> import neurenix as nx
    >>> x = nx.Tensor([[3.0, 0.0], [0.0, -4.0]])
    >>> [nx.linalg.matrix_norm(x, ord=ord).item() for ord in ("fro", "nuc", 2, -2, 1)]
    [5.0, 7.0, 4.0, 3.0, 4.0]
    """
    x = x if dtype is None else x.to(dtype)
    keepdims = keepdim or keepdims
    if tuple(dim) != (-2, -1):
        found = matrix_norm(x.movedim(tuple(dim), (-2, -1)), ord=ord, keepdims=keepdims)
        return found.movedim((-2, -1), tuple(dim)) if keepdims else found
    if ord == "fro" or ord is None:
        return x.norm(2, (-2, -1), keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        found = values.sum(-1) if ord == "nuc" else _greatest(values, -1) if ord == 2 else values.amin(-1)
        return found.reshape(*found.shape, 1, 1) if keepdims else found
    axis = {1: -2, -1: -2, float("inf"): -1, float("-inf"): -1}.get(ord) if isinstance(ord, int | float) else None
    if axis is None or isinstance(ord, str):
        raise ValueError(f"matrix_norm: ord is {ord!r}, it must be 'fro', 'nuc', 1, -1, 2, -2, infinity or minus infinity")
    sums = x.abs().sum(axis, keepdim=True)
    extreme = _greatest(sums, (-2, -1), True) if ord > 0 else sums.amin((-2, -1), True)
    return extreme if keepdims else extreme.squeeze((-2, -1))


def _greatest(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The greatest of numbers that are not negative: 0 if there are none."""
    sizes = [x.shape[axis] for axis in ([dim] if isinstance(dim, int) else dim)]
    return x.amax(dim, keepdim) if all(sizes) else x.sum(dim, keepdim)


def norm(
    x: Tensor,
    ord: float | Literal["fro", "nuc"] | None = None,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """A vector or matrix norm, chosen as in PyTorch and NumPy. Without ``ord`` it is the square root of the sum of
    squares over ``dim``, or over all. With ``ord`` it is ``vector_norm`` along one dimension or of a vector, and
    ``matrix_norm`` over two dimensions or of a matrix.

    >>> import neurenix as nx
    >>> x = nx.Tensor([[3.0, 0.0], [0.0, -4.0]])
    >>> nx.linalg.norm(x).item(), nx.linalg.norm(x, 2).item(), nx.linalg.norm(x, 2, dim=1).tolist()
    (5.0, 4.0, [3.0, 4.0])
    """
    x = x if dtype is None else x.to(dtype)
    dim, keepdim = axis if dim is None else dim, keepdim or keepdims
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if ord is None:
        return vector_norm(x, axis=tuple(dims) or None, keepdims=keepdim)
    count = len(dims) if dims else x.ndim
    if count not in (1, 2):
        raise ValueError(f"norm: ord={ord!r} requires 1 or 2 dimensions, got {count}; select them with dim=")
    if count == 2:
        first, second = dims or (-2, -1)
        return matrix_norm(x, ord, (first, second), keepdim)
    if isinstance(ord, str):
        raise ValueError(f"norm: ord={ord!r} requires matrices; select two dimensions with dim=")
    return vector_norm(x, axis=tuple(dims) or None, keepdims=keepdim, ord=ord)


def det(x: Tensor, /) -> Tensor:
    """The determinants of square matrices."""
    return _linear_algebra.det(x)


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The ``sign`` of determinants, and ``logabsdet``, the logarithm of their magnitudes, which neither overflows nor
    underflows. For a singular matrix they are 0 and minus infinity.

    >>> import neurenix as nx
    >>> nx.linalg.slogdet(nx.Tensor([[0.0, 1.0], [1.0, 0.0]])).sign.item()
    -1.0
    """
    return SlogdetResult(*_linear_algebra.slogdet(x))


def inv(x: Tensor, /) -> Tensor:
    """The inverses of square matrices.

    >>> import neurenix as nx
    >>> nx.linalg.inv(nx.Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _linear_algebra.inv(x)


def solve(x1: Tensor, x2: Tensor, /, *, left: bool = True) -> Tensor:
    """The solutions x of ``x1 @ x = x2``, or with ``left=False`` of ``x @ x1 = x2``. If ``x2`` has one dimension, it
    and the solutions are vectors; otherwise they are matrices. Dimensions before those are broadcast. If it does not
    fit as matrices, but has the shape of ``x1`` without the last dimension, it is a batch of vectors, as in PyTorch.
    """
    if not left:
        return solve(x1.mT, x2.mT).mT if x2.ndim > 1 else solve(x1.mT, x2)
    if x2.ndim > 1 and x2.shape == x1.shape[:-1] and x2.shape[-2] != x1.shape[-1]:
        return _linear_algebra.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    return _linear_algebra.solve(x1, x2)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular L with ``x = L @ L.mT`` (with ``upper``, its transpose) of symmetric positive definite matrices.
    Only their lower triangle is read.

    >>> import neurenix as nx
    >>> nx.linalg.cholesky(nx.Tensor([[4.0, 2.0], [2.0, 10.0]])).tolist()
    [[2.0, 0.0], [1.0, 3.0]]
    """
    return _linear_algebra.cholesky(x, upper)


def qr(x: Tensor, /, mode: Literal["reduced", "complete", "r"] = "reduced") -> QRResult:
    """``Q`` with orthonormal columns and upper triangular ``R`` with ``x = Q @ R``. For M by N matrices, Q is M by
    min(M, N), or square if ``mode`` is ``"complete"``; for ``"r"`` it is empty. Gradients flow if the first min(M, N)
    columns are independent, and in mode ``"complete"`` for M <= N.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr: mode is {mode!r}, it must be 'reduced', 'complete' or 'r'")
    rows, columns = x.shape[-2:] if x.ndim > 1 else (0, 0)
    if 0 < rows < columns:
        # The first columns are a square matrix; the others follow from its Q.
        q, first = _linear_algebra.qr(x.narrow(-1, 0, rows), False)
        r = concat([first, q.mH @ x.narrow(-1, rows, columns - rows)], axis=-1)
    else:
        q, r = _linear_algebra.qr(x, mode == "complete")
    return QRResult(x.new_zeros(0) if mode == "r" else q, r)


def eigh(x: Tensor, /, UPLO: Literal["L", "U"] = "L") -> EighResult:
    """The ``eigenvalues`` of symmetric matrices, ascending, and their ``eigenvectors``, which are the columns. The
    lower triangle is read, or with ``"U"`` the upper one. Eigenvectors of equal eigenvalues are not unique and have
    infinite gradients.
    """
    return EighResult(*_linear_algebra.eigh(_lower("eigh", x, UPLO)))


def eigvalsh(x: Tensor, /, UPLO: Literal["L", "U"] = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending; see ``eigh`` for the triangle that is read."""
    return _linear_algebra.eigh(_lower("eigvalsh", x, UPLO))[0]


def _lower(name: str, x: Tensor, triangle: str) -> Tensor:
    """Matrices arranged so that the lower triangle is read."""
    if triangle not in ("L", "U"):
        raise ValueError(f"{name}: UPLO is {triangle!r}, it must be 'L' or 'U'")
    return x if triangle == "L" else x.mH


def svd(x: Tensor, /, full_matrices: bool = True, *, driver: str | None = None) -> SVDResult:
    """``U``, the singular values ``S``, descending, and ``Vh`` with ``x = U @ diag(S) @ Vh``. U and Vh are square, or,
    without ``full_matrices``, have as many columns and rows as there are singular values; then gradients flow.
    ``driver`` is a hint without effect.
    """
    return SVDResult(*_linear_algebra.svd(x, full_matrices))


def svdvals(x: Tensor, /, *, driver: str | None = None) -> Tensor:
    """The singular values, descending. ``driver`` is a hint without effect."""
    return _linear_algebra.svd(x, False)[1]


def cond(x: Tensor, /, p: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition numbers of matrices. By default and for 2 it is the greatest singular value divided by the
    smallest, for -2 the smallest divided by the greatest. For the other norms (see ``matrix_norm``) it is the norm of a
    square matrix times that of its inverse. It is infinite for singular matrices, and 0 for those without elements.

    >>> import neurenix as nx
    >>> nx.linalg.cond(nx.Tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    if p is not None and p not in (2, -2):
        is_singular = slogdet(x.detach()).logabsdet == float("-inf")
        gap = is_singular.unsqueeze(-1).unsqueeze(-1)
        inverse = inv(x.masked_fill(gap, 0) + eye(x.shape[-1], dtype=x.dtype.to_real(), device=x.device) * gap)
        return where(is_singular, float("inf"), matrix_norm(x, ord=p) * matrix_norm(inverse, ord=p))
    values = svdvals(x)
    if not values.shape[-1]:
        return values.sum(-1)
    greatest, least = values.amax(-1), values.amin(-1)
    if p == -2:
        return least / greatest
    return where(least == 0, float("inf"), greatest / least)


def pinv(
    x: Tensor, /, rcond: _Tolerance = None, hermitian: bool = False, *, rtol: _Tolerance = None, atol: _Tolerance = None
) -> Tensor:
    """The Moore-Penrose pseudoinverses. Singular values up to the greater of ``atol`` and ``rtol`` (or ``rcond``)
    times the greatest count as zeros. They are numbers, or tensors with one for each matrix; the defaults are 0 and
    the greater of M and N times the dtype's ``eps``, or 0 if ``atol`` is given. ``hermitian`` reads the lower
    triangle of symmetric matrices.

    >>> import neurenix as nx
    >>> nx.linalg.pinv(nx.Tensor([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    x = _symmetric(x) if hermitian else x
    return _linear_algebra.pinv(x, _tolerance(x, rcond if rtol is None else rtol, atol))


def matrix_rank(
    x: Tensor, /, tol: _Tolerance = None, hermitian: bool = False, *, rtol: _Tolerance = None, atol: _Tolerance = None
) -> Tensor:
    """The number of singular values greater than the tolerances; see ``pinv``. ``tol`` is ``atol``."""
    x = _symmetric(x) if hermitian else x
    return _linear_algebra.matrix_rank(x, _tolerance(x, rtol, tol if atol is None else atol))


def _symmetric(x: Tensor) -> Tensor:
    return x.tril() + x.tril(-1).mH


def _tolerance(x: Tensor, rtol: _Tolerance, atol: _Tolerance = None) -> Tensor | None:
    """The tolerance relative to the greatest singular value."""
    kind = x.dtype.to_real()
    relative = _engine.tensor(rtol, dtype=kind, device=x.device) if isinstance(rtol, int | float) else rtol
    if atol is None or not x.numel():
        return relative
    absolute = atol if isinstance(atol, Tensor) else _engine.tensor(atol, dtype=kind, device=x.device)
    greatest = svdvals(x.detach()).amax(-1)
    least = where(greatest == 0, 0, absolute / where(greatest == 0, 1, greatest))
    if relative is None:
        # Without any tolerance the default counts.
        default = max(x.shape[-2:]) * finfo(x.dtype).eps
        return where(absolute > 0, least, default)
    return least.maximum(relative)


__all__ = [
    *_factorizations,
    *_symmetric_factorizations,
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

_guard(globals())
