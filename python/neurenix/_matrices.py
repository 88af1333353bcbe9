"""PyTorch's functions of matrices outside ``torch.linalg``, by those of ``neurenix.linalg``: methods of tensors, too.
"""

from __future__ import annotations

from typing import Any

from . import _linear_algebra
from ._arguments import guard as _guard
from ._creation import eye
from ._engine import Tensor
from ._factorizations import householder_product, lu_factor, lu_factor_ex, lu_unpack, matrix_exp, multi_dot, solve_triangular
from ._factorizations import lu_solve as _lu_solve
from ._results import SVD as _SVD
from ._results import QRResult, TriangularSolve

METHODS = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "lu", "lu_solve", "matrix_exp", "orgqr", "qr", "svd", "triangular_solve",
]  # fmt: skip
__all__ = [*METHODS, "chain_matmul", "lu_unpack"]

orgqr = householder_product


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """``U``, ``S`` and ``V`` with ``input = U @ diag(S) @ V.mH``; ``some=False`` makes U and V square, and without
    ``compute_uv`` they are zeros. See ``linalg.svd``, which returns the adjoint of V.
    """
    u, s, vh = _linear_algebra.svd(input, not some and compute_uv)
    if compute_uv:
        return _SVD(u, s, vh.mH)
    rows, columns = input.shape[-2:]
    return _SVD(input.new_zeros((*input.shape[:-2], rows, rows)), s, input.new_zeros((*input.shape[:-2], columns, columns)))


def qr(input: Tensor, some: bool = True) -> QRResult:
    """``linalg.qr``; ``some=False`` makes Q square."""
    from . import linalg

    return linalg.qr(input, "reduced" if some else "complete")


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """``linalg.cholesky``."""
    return _linear_algebra.cholesky(input, upper)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """The solutions X of ``A @ X = B``, from the Cholesky factor of A."""
    lower = L.mH if upper else L
    return solve_triangular(lower.mH, solve_triangular(lower, B, upper=False), upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix with this Cholesky factor."""
    return cholesky_solve(eye(L.shape[-1], dtype=L.dtype, device=L.device), L, upper)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """``linalg.lu_factor``; with ``get_infos`` also the number of the first zero on the diagonal of U."""
    return tuple(lu_factor_ex(A, pivot=pivot)) if get_infos else tuple(lu_factor(A, pivot=pivot))


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The solutions X of ``A @ X = b``, from the result of ``lu_factor(A)``."""
    return _lu_solve(LU_data, LU_pivots, b)


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """The solutions X of ``A @ X = b``, or with ``transpose`` of ``A.mT @ X = b``, and A: see
    ``linalg.solve_triangular``.
    """
    matrix, triangle = (A.mT, not upper) if transpose else (A, upper)
    return TriangularSolve(solve_triangular(matrix, b, upper=triangle, unitriangular=unitriangular), A)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """``linalg.multi_dot`` of these matrices."""
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


_guard(globals())
