"""Linear algebra of complex matrices: the engine's functions of the same names and arguments, for pairs."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._complex import wrap
from ._engine import Tensor

_of = _engine.Pair.of


def inv(x: Tensor) -> Tensor:
    """The inverses of square matrices."""
    return wrap(_engine.complex_function("inv", _of(x)))


def det(x: Tensor) -> Tensor:
    """The determinants of square matrices."""
    return wrap(_engine.complex_function("det", _of(x)))


def solve(x1: Tensor, x2: Tensor) -> Tensor:
    """The solutions of linear equations."""
    kind = _engine.promote_types(x1.dtype, x2.dtype)
    return wrap(_engine.complex_function("solve", _of(x1.to(kind)), _of(x2.to(kind))))


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The factor of Hermitian matrices."""
    lower = wrap(_engine.complex_function("cholesky", _of(x)))
    return lower.mH if upper else lower


def qr(x: Tensor, complete: bool = False) -> tuple[Tensor, Tensor]:
    """Q and R."""
    q, r = _engine.complex_factors("qr", _of(x), complete)
    return wrap(q), wrap(r)


def eigh(x: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of Hermitian matrices."""
    values, vectors = _engine.complex_factors("eigh", _of(x))
    return values, wrap(vectors)


def svd(x: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, the singular values, and the adjoint of V."""
    u, values, vh = _engine.complex_factors("svd", _of(x), full_matrices)
    return wrap(u), values, wrap(vh)


def slogdet(x: Tensor) -> tuple[Tensor, Tensor]:
    """The signs and logarithms of determinants."""
    sign, logarithm = _engine.complex_factors("slogdet", _of(x))
    return wrap(sign), logarithm


def _tolerance(x: Tensor, rtol: Any) -> Tensor:
    kind = x.dtype.to_real()
    if rtol is None:
        rtol = max(x.shape[-2:]) * (2.0**-52 if kind.name == "float64" else 2.0**-23)
    rtol = rtol if isinstance(rtol, Tensor) else _engine.tensor(rtol, dtype=kind, device=x.device)
    return rtol.broadcast_to(tuple(x.shape[:-2]))


def pinv(x: Tensor, rtol: Any = None) -> Tensor:
    """The pseudoinverses."""
    return wrap(_engine.complex_factors("pinv", _of(x), False, _tolerance(x, rtol))[0])


def matrix_rank(x: Tensor, rtol: Any = None) -> Tensor:
    """The ranks of matrices."""
    values = svd(x, False)[1]
    least = values.amax(-1, True) * _tolerance(x, rtol).unsqueeze(-1)
    return (values > least).sum(-1)


def cross(x1: Tensor, x2: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along a dimension of size 3, by default the first one."""
    from ._complex_functions import stack

    if dim is None:
        dim = next((place for place, size in enumerate(x1.shape) if size == 3), -1)
    (a, b, c), (d, e, f) = (x.unbind(dim) for x in (x1, x2))
    return stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)


FUNCTIONS = {
    function.__name__: function for function in (inv, det, solve, cholesky, qr, eigh, svd, slogdet, pinv, matrix_rank, cross)
}
"""The implementations by the names of the functions."""
