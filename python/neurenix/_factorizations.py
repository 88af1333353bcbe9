"""LU factorisation and what follows from it, triangular systems, least squares, and functions of matrices. They are
composed of other operations: gradients flow wherever theirs do.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _engine, _linear_algebra
from ._arguments import guard as _guard
from ._creation import eye, full_like, zeros
from ._elementwise import where
from ._engine import Tensor
from ._linear_algebra import LinAlgError
from ._manipulation import cat, stack
from ._results import CholeskyExResult, InvExResult, LstsqResult, LUFactorExResult, LUFactorResult, LUResult, SolveExResult

__all__ = [
    "cholesky_ex", "householder_product", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "lu_unpack", "matrix_exp",
    "multi_dot", "solve_ex", "solve_triangular", "tensorinv", "tensorsolve", "vander",
]  # fmt: skip


# LU.
def _numbers(count: int, x: Tensor) -> Tensor:
    return _engine.arange(count, device=x.device)


def _identity(count: int, x: Tensor) -> Tensor:
    return eye(count, dtype=x.dtype, device=x.device)


def _zeros(x: Tensor, rows: int, columns: int) -> Tensor:
    return zeros((*x.shape[:-2], rows, columns), dtype=x.dtype, device=x.device)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in this order."""
    return x.gather(-2, order.unsqueeze(-1).broadcast_to((*order.shape, x.shape[-1])))


def _magnitude(x: Tensor) -> Tensor:
    """The sizes by which LAPACK chooses pivots."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def _eliminated(x: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For (..., M, N) with M >= N >= 1: the order of rows (..., M), the rows exchanged with each of the first N, and
    L and U.

    Gaussian elimination with partial pivoting of the left half of the columns, then of the right half below.
    """
    rows, columns = x.shape[-2:]
    if columns == 1:
        column, order = x.squeeze(-1), _numbers(rows, x)
        best = _magnitude(column.detach()).argmax(-1, True) if pivot else zeros((*column.shape[:-1], 1), dtype="int64", device=x.device)
        order = where(order == 0, best, where(order == best, 0, order))
        moved = column.gather(-1, order)
        head = moved.narrow(-1, 0, 1)
        below = moved.narrow(-1, 1, rows - 1) / where(head == 0, 1, head)
        lower = cat([full_like(head, 1), below], -1).unsqueeze(-1)
        return order, best, lower, head.unsqueeze(-1)
    half = columns // 2
    order, pivots, lower, upper = _eliminated(x.narrow(-1, 0, half), pivot)
    right = _rows(x.narrow(-1, half, columns - half), order)
    top, bottom = lower.narrow(-2, 0, half), lower.narrow(-2, half, rows - half)
    above = _linear_algebra.solve(top, right.narrow(-2, 0, half))
    order2, pivots2, lower2, upper2 = _eliminated(right.narrow(-2, half, rows - half) - bottom @ above, pivot)
    order = cat([order.narrow(-1, 0, half), order.narrow(-1, half, rows - half).gather(-1, order2)], -1)
    lower = cat(
        [
            cat([top, _zeros(x, half, columns - half)], -1),
            cat([_rows(bottom, order2), lower2], -1),
        ],
        -2,
    )
    upper = cat(
        [cat([upper, above], -1), cat([_zeros(x, columns - half, half), upper2], -1)], -2
    )
    return order, cat([pivots, pivots2 + half], -1), lower, upper


def _factors(A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The order of rows, the pivots, L and U of matrices of any shape."""
    if A.ndim < 2 or not (A.is_floating_point() or A.is_complex()):
        raise ValueError(f"lu: expected matrices of floats or complex numbers, got {A.dtype.name} of shape {tuple(A.shape)}")
    rows, columns = A.shape[-2:]
    count = builtins.min(rows, columns)
    if count == 0 or A.numel() == 0:
        order = _numbers(rows, A).broadcast_to((*A.shape[:-2], rows))
        return order, order.narrow(-1, 0, count), _zeros(A, rows, count), _zeros(A, count, columns)
    order, pivots, lower, upper = _eliminated(A.narrow(-1, 0, count), pivot)
    if columns > count:
        rest = _rows(A.narrow(-1, count, columns - count), order)
        upper = cat([upper, _linear_algebra.solve(lower, rest)], -1)
    return order, pivots, lower, upper


def _permutation(order: Tensor, dtype: Any) -> Tensor:
    """The matrix P for which ``P @ x[order] == x``."""
    numbers = _engine.arange(order.shape[-1], device=order.device)
    return (numbers.unsqueeze(-1) == order.unsqueeze(-2)).to(dtype)


def lu(A: Tensor, *, pivot: bool = True) -> LUResult:
    """``P``, ``L`` and ``U`` with ``A = P @ L @ U``: a permutation, a lower triangular matrix with a diagonal of
    ones, and an upper triangular one, by elimination with partial pivoting. Without ``pivot``, ``P`` is empty and no
    rows are exchanged.

    >>> import neurenix as nx
    >>> P, L, U = nx.linalg.lu(nx.Tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> L.tolist(), U.tolist()
    ([[1.0, 0.0], [0.25, 1.0]], [[4.0, 4.0], [0.0, 1.0]])
    """
    order, _, lower, upper = _factors(A, pivot)
    moves = _permutation(order, A.dtype) if pivot else zeros(0, dtype=A.dtype, device=A.device)
    return LUResult(moves, lower, upper)


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactorResult:
    """``LU``, which holds both factors of ``lu`` without the diagonal of ones, and ``pivots``: row ``i`` was
    exchanged with row ``pivots[i]``, counted from 1, in this order.
    """
    _, pivots, lower, upper = _factors(A, pivot)
    rows, columns = A.shape[-2:]
    packed = lower.tril(-1)
    if columns > rows:
        packed = packed.pad((0, columns - rows))
    elif rows > columns:
        upper = upper.pad((0, 0, 0, rows - columns))
    return LUFactorResult(packed + upper, (pivots + 1).to("int32"))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorExResult:
    """Same as ``lu_factor``, and ``info``: the number, from 1, of the first zero on the diagonal of U, or 0."""
    factors = lu_factor(A, pivot=pivot)
    info = _first_zero(factors.LU)
    if check_errors and builtins.bool((info != 0).any()):
        raise LinAlgError("lu_factor_ex: a matrix is singular")
    return LUFactorExResult(factors.LU, factors.pivots, info)


def _first_zero(packed: Tensor) -> Tensor:
    diagonal = packed.detach().diagonal(0, -2, -1)
    count = diagonal.shape[-1]
    if count == 0:
        return zeros(diagonal.shape[:-1], dtype="int32", device=packed.device)
    numbers = _numbers(count, packed) + 1
    first = where(diagonal == 0, numbers, count + 1).amin(-1)
    return where(first > count, 0, first).to("int32")


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> LUResult:
    """``P``, ``L`` and ``U`` of what ``lu_factor`` returns; those that are not requested are empty."""
    rows, columns = LU_data.shape[-2:]
    count = builtins.min(rows, columns)
    nothing = zeros(0, dtype=LU_data.dtype, device=LU_data.device)
    lower = upper = moves = nothing
    if unpack_data:
        part = LU_data.narrow(-1, 0, count).tril(-1)
        ones = _identity(count, LU_data)
        lower = part + (ones if rows == count else ones.pad((0, 0, 0, rows - count)))
        upper = LU_data.narrow(-2, 0, count).triu()
    if unpack_pivots:
        moves = _permutation(_order(LU_pivots, rows), LU_data.dtype)
    return LUResult(moves, lower, upper)


def _order(pivots: Tensor, rows: int) -> Tensor:
    """The order of rows after all exchanges."""
    numbers = _engine.arange(rows, device=pivots.device)
    order = numbers.broadcast_to((*pivots.shape[:-1], rows))
    for place in range(pivots.shape[-1]):
        other = pivots.narrow(-1, place, 1).to("int64") - 1
        one, two = order.narrow(-1, place, 1), order.gather(-1, other)
        order = where(numbers == place, two, where(numbers == other, one, order))
    return order


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The solutions X of ``A @ X = B``, or with ``left=False`` of ``X @ A = B``, from ``LU, pivots = lu_factor(A)``;
    ``adjoint`` takes the adjoint of A.
    """
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    order = _order(pivots, LU.shape[-1])
    shape = _engine.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    B = B.broadcast_to((*shape, *B.shape[-2:]))
    order = order.broadcast_to((*shape, order.shape[-1]))
    if adjoint:
        found = solve_triangular(LU.mH, B, upper=False)
        found = solve_triangular(LU.mH, found, upper=True, unitriangular=True)
        return _rows(found, order.argsort(-1))
    found = solve_triangular(LU, _rows(B, order), upper=False, unitriangular=True)
    return solve_triangular(LU, found, upper=True)


# Systems of equations.
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solutions X of ``A @ X = B``, or with ``left=False`` of ``X @ A = B``, where only the upper or the lower
    triangle of A is read; ``unitriangular`` takes ones for its diagonal. A zero on the diagonal is an error.

    >>> import neurenix as nx
    >>> nx.linalg.solve_triangular(nx.Tensor([[2.0, 9.0], [1.0, 1.0]]), nx.Tensor([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    if A.ndim < 2 or B.ndim < 2:
        raise ValueError(f"solve_triangular: expected matrices, got shapes {tuple(A.shape)} and {tuple(B.shape)}")
    edge = (1 if upper else -1) if unitriangular else 0
    matrix = A.triu(edge) if upper else A.tril(edge)
    if unitriangular:
        matrix = matrix + _identity(A.shape[-1], A)
    return _linear_algebra.solve(matrix, B) if left else _linear_algebra.solve(matrix.mT, B.mT).mT


def _checked(compute: Callable[[], Tensor]) -> Tensor | None:
    """The result, or None if a matrix is singular or not positive definite."""
    try:
        found = compute()
        _engine.evaluate([found])
    except RuntimeError:
        return None
    return found


def _failed(name: str, info: Tensor, check_errors: bool) -> None:
    if check_errors and builtins.bool((info != 0).any()):
        raise LinAlgError(f"{name}: a matrix is singular, or not positive definite: info is {info.tolist()}")


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyExResult:
    """``L`` as of ``cholesky``, and ``info``: 0, or the order of the first leading minor that is not positive
    definite; then that L is NaN.
    """
    found = _checked(functools.partial(_linear_algebra.cholesky, A, upper))
    size, batch = A.shape[-1], A.shape[:-2]
    info = zeros(batch, dtype="int32", device=A.device)
    if found is None:
        parts, numbers = [], []
        for each in A.reshape(-1, size, size).unbind():
            part = _checked(functools.partial(_linear_algebra.cholesky, each, upper))
            parts.append(full_like(each, float("nan")) if part is None else part)
            numbers.append(0 if part is not None else _first_minor(each.detach()))
        found = stack(parts).reshape(A.shape)
        info = _engine.tensor(numbers, dtype="int32", device=A.device).reshape(batch)
        _failed("cholesky_ex", info, check_errors)
    return CholeskyExResult(found, info)


def _first_minor(matrix: Tensor) -> int:
    """The order of the first leading minor that is not positive definite."""
    size = matrix.shape[-1]
    for order in range(1, size):
        minor = matrix.narrow(0, 0, order).narrow(1, 0, order)
        if _checked(functools.partial(_linear_algebra.cholesky, minor, False)) is None:
            return order
    return size


def _solved(compute: Callable[[Tensor], Tensor], A: Tensor) -> tuple[Tensor, Tensor]:
    """A result for square matrices, NaN for singular ones, and ``info``."""
    found = _checked(lambda: compute(A))
    info = zeros(A.shape[:-2], dtype="int32", device=A.device)
    if found is None:
        info = _first_zero(lu_factor(A).LU)
        wrong = (info != 0).unsqueeze(-1).unsqueeze(-1)
        found = compute(where(wrong, _identity(A.shape[-1], A), A))
        gap = wrong if found.ndim == A.ndim else wrong.squeeze(-1)
        found = where(gap, float("nan"), found)
    return found, info


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvExResult:
    """``inverse``, and ``info``: 0, or the number of the first zero pivot of a singular matrix, whose inverse is NaN.
    """
    found, info = _solved(_linear_algebra.inv, A)
    _failed("inv_ex", info, check_errors)
    return InvExResult(found, info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """``result`` as of ``solve``, and ``info``: 0, or the number of the first zero pivot of a singular matrix, for
    which the result is NaN.
    """
    from .linalg import solve

    found, info = _solved(lambda each: solve(each, B, left=left), A)
    _failed("solve_ex", info, check_errors)
    return SolveExResult(found, info)


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstsqResult:
    """``solution``: the X of least norm that minimises the norm of ``A @ X - B``, for A (..., M, N) and B (..., M,
    K), or (..., M). Singular values up to ``rcond`` times the greatest count as zeros; the default is the greater of
    M and N times the dtype's ``eps``. The ``driver``, by default ``"gelsy"``, only decides what else is returned, or
    empty: ``residuals``, the sums of squares of ``A @ X - B`` if M > N and all matrices have full rank (all but
    ``"gelsy"``), ``rank`` (all but ``"gels"``) and ``singular_values`` (``"gelsd"``, ``"gelss"``).

    >>> import neurenix as nx
    >>> a, b = nx.Tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), nx.Tensor([[1.0], [3.0], [5.0]])
    >>> nx.linalg.lstsq(a, b).solution.round().tolist()
    [[1.0], [2.0]]
    """
    from .linalg import matrix_rank, pinv, svdvals

    chosen = "gelsy" if driver is None else driver
    if chosen not in ("gels", "gelsy", "gelsd", "gelss"):
        raise ValueError(f"lstsq: driver is {driver!r}, it must be 'gels', 'gelsy', 'gelsd' or 'gelss'")
    vector = B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    rtol = rcond if rcond is not None and rcond >= 0 else None
    solution = pinv(A, rtol=rtol) @ right
    rows, columns = A.shape[-2:]
    rank = matrix_rank(A.detach(), rtol=rtol)
    nothing = zeros(0, dtype=A.dtype, device=A.device)
    residuals = nothing
    if chosen != "gelsy" and rows > columns and builtins.bool((rank == columns).all()):
        residuals = (A @ solution - right).abs().square().sum(-2)
        residuals = residuals.squeeze(-1) if vector else residuals
    return LstsqResult(
        solution.squeeze(-1) if vector else solution,
        residuals,
        zeros(0, dtype="int64", device=A.device) if chosen == "gels" else rank,
        svdvals(A.detach()) if chosen in ("gelsd", "gelss") else nothing,
    )


# Products and functions of matrices.
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first N columns of the product of reflections ``I - tau[i] * outer(v, v.conj())`` for A (..., M, N) and tau (...,
    K): ``v`` is column ``i`` of A below the diagonal, with a one on it.
    """
    rows, columns = A.shape[-2:]
    result = _identity(rows, A).narrow(-1, 0, columns).broadcast_to((*A.shape[:-2], rows, columns))
    vectors = A.tril(-1) + _identity(rows, A).narrow(-1, 0, columns)
    for place in range(tau.shape[-1] - 1, -1, -1):
        vector = vectors.narrow(-1, place, 1)
        result = result - tau.narrow(-1, place, 1).unsqueeze(-1) * vector @ (vector.mH @ result)
    return result


_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0, 670442572800.0,
    33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Coefficients of the Padé approximant of order 13 of exp (Higham 2005, "The scaling and squaring method for the matrix
exponential revisited")."""
_GREATEST_NORM = 5.371920351148152
"""Up to this norm the approximant is exact in double precision."""


def matrix_exp(A: Tensor) -> Tensor:
    """The exponentials of square matrices: the sums of ``A ** k / k!``.

    >>> import neurenix as nx
    >>> nx.linalg.matrix_exp(nx.Tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or not (A.is_floating_point() or A.is_complex()):
        raise ValueError(f"matrix_exp: expected square matrices of floats or complex numbers, got {A.dtype.name} of shape {tuple(A.shape)}")
    if A.dtype.itemsize < 4:
        return matrix_exp(A.float()).to(A.dtype)
    if A.numel() == 0:
        return A.clone()
    norms = A.detach().abs().sum(-2).amax(-1)
    halvings = (norms / _GREATEST_NORM).clamp(min=1).log2().ceil().unsqueeze(-1).unsqueeze(-1)
    most = halvings.max().item()
    if not math.isfinite(most):
        return A * float("nan")
    x = A / 2.0**halvings
    b = [each / _PADE[0] for each in _PADE]
    one, x2 = _identity(A.shape[-1], A), x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    odd = x @ (x6 @ (x6 * b[13] + x4 * b[11] + x2 * b[9]) + x6 * b[7] + x4 * b[5] + x2 * b[3] + one * b[1])
    even = x6 @ (x6 * b[12] + x4 * b[10] + x2 * b[8]) + x6 * b[6] + x4 * b[4] + x2 * b[2] + one
    result = _linear_algebra.solve(even - odd, even + odd)
    for step in range(int(most)):
        result = where(halvings > step, result @ result, result)
    return result


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, multiplied in the order of least work. The first and the last may be vectors."""
    if len(tensors) < 2:
        raise ValueError(f"multi_dot: expected at least 2 tensors, got {len(tensors)}")
    parts = list(tensors)
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = parts[0].unsqueeze(0)
    if last:
        parts[-1] = parts[-1].unsqueeze(1)
    if builtins.any(part.ndim != 2 for part in parts):
        raise ValueError(f"multi_dot: expected matrices, got shapes {[tuple(part.shape) for part in tensors]}")
    sizes = [parts[0].shape[0], *(part.shape[1] for part in parts)]

    @functools.cache
    def best(start: int, stop: int) -> tuple[int, int]:
        """The least number of multiplications for these parts, and where to divide them."""
        if stop - start == 1:
            return 0, start
        ends = sizes[start] * sizes[stop]
        return builtins.min((best(start, cut)[0] + best(cut, stop)[0] + ends * sizes[cut], cut) for cut in range(start + 1, stop))

    def product(start: int, stop: int) -> Tensor:
        if stop - start == 1:
            return parts[start]
        cut = best(start, stop)[1]
        return product(start, cut) @ product(cut, stop)

    result = product(0, len(parts))
    result = result.squeeze(-1) if last else result
    return result.squeeze(0) if first else result


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The matrices whose columns are the powers of vectors (..., K) from 0 to ``N - 1``, by default K."""
    from ._parts import vander as powers

    return powers(x.reshape(1) if x.ndim == 0 else x, N, True)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of ``tensordot(A, x, x.ndim)``, where the product of the first ``ind`` sizes is that of the others.
    """
    first, rest = A.shape[:ind], A.shape[ind:]
    count = math.prod(first)
    if ind <= 0 or count != math.prod(rest):
        raise ValueError(f"tensorinv: the first {ind} sizes of {tuple(A.shape)} must have the same product as the others")
    return _linear_algebra.inv(A.reshape(count, count)).reshape(*rest, *first)


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The X with ``tensordot(A, X, X.ndim) == B``; ``dims`` of A are moved to its end before."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    count = B.numel()
    if math.prod(shape) != count or A.numel() != count * count:
        raise ValueError(f"tensorsolve: shapes {tuple(A.shape)} and {tuple(B.shape)} do not form a square system")
    return _linear_algebra.solve(A.reshape(count, count), B.reshape(count)).reshape(shape)


_guard(globals())
