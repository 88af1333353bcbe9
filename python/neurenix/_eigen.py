"""Eigenvalues and eigenvectors of general square matrices, by the QR algorithm with shifts (Francis, "The QR
transformation", 1961). It works in ``complex128`` on the CPU, and the host reads a number in every iteration.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._complex import as_complex
from ._complex_functions import cat, where
from ._complex_matrices import qr
from ._complex_parts import complex as _complex
from ._engine import Tensor
from ._linear_algebra import LinAlgError
from ._results import EigResult

__all__ = ["eig", "eigvals"]

_EPSILON = sys.float_info.epsilon


def _identity(count: int) -> Tensor:
    return _engine.eye(count, None, dtype="float64", device="cpu")


def _shift(x: Tensor, turn: int) -> Tensor:
    """The eigenvalue of the last two rows that is nearer to the last element (Wilkinson's shift): (B, 1, 1). Now and
    then another number, in case the iteration goes in circles.
    """
    a, b, c, d = (x[:, -2 + row, -2 + column] for row in range(2) for column in range(2))
    if turn % 11 == 10:
        return (d + 0.75 * c.abs() + 0.3 * b.abs()).reshape(-1, 1, 1)
    middle = (a - d) / 2
    root = (middle * middle + b * c).sqrt()
    root = where((middle + root).abs() < (middle - root).abs(), root, -root)
    return (d + middle + root).reshape(-1, 1, 1)


def _triangular(x: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """T, upper triangular, and Q, unitary, with ``x = Q T Q.mH``, for (B, N, N). Elements below ``least`` (B) are 0."""
    count = x.shape[-1]
    unitary: Tensor = as_complex(_identity(count).expand(x.shape[0], count, count), x)
    for size in range(count, 1, -1):
        for turn in range(100):
            row = x[:, size - 1, : size - 1].abs().amax(-1)
            if builtins.bool((row <= least).all()):
                break
            inner = x[:, :size, :size]
            shift = _shift(inner, turn)
            # A converged row stays so: its own last element is then the shift.
            diagonal = shift * _identity(size)
            q, r = qr(inner - diagonal)
            above = cat([r @ q + diagonal, q.mH @ x[:, :size, size:]], -1) if size < count else r @ q + diagonal
            x = cat([above, x[:, size:]], -2) if size < count else above
            unitary = cat([unitary[:, :, :size] @ q, unitary[:, :, size:]], -1) if size < count else unitary @ q
        else:
            raise LinAlgError("eig: the QR algorithm did not converge")
    return x.triu(), unitary


def _vectors(x: Tensor, least: Tensor) -> Tensor:
    """Eigenvectors of upper triangular matrices, as columns, by back substitution."""
    count = x.shape[-1]
    values = x.diagonal(0, -2, -1)
    numbers = _engine.arange(count, device="cpu")
    ones = _identity(count)
    solved: Tensor | None = None
    for row in reversed(range(count)):
        unit = as_complex(ones[row].expand(x.shape[0], 1, count), x)
        if solved is not None:
            distance = (x[:, row, row].unsqueeze(-1) - values).unsqueeze(1)
            limit = least.reshape(-1, 1, 1)
            distance = where(distance.abs() < limit, as_complex(limit.expand(tuple(distance.shape)), x), distance)
            found = -(x[:, row : row + 1, row + 1 :] @ solved) / distance
            unit = unit + found * (numbers > row).to("float64")
            # Columns are scaled before they overflow.
            solved = cat([unit, solved], -2) / unit.abs().clamp(min=1)
        else:
            solved = unit
    assert solved is not None
    return solved


def _normalized(vectors: Tensor) -> Tensor:
    """Columns of length 1."""
    return vectors / (vectors.abs() ** 2).sum(-2, keepdim=True).sqrt()


def _found(A: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues and eigenvectors of (B, N, N), without gradients, in ``complex128`` on the CPU."""
    x = as_complex(A.detach().to(device="cpu"), A).to("complex128")
    count = x.shape[-1]
    norm = (x.abs() ** 2).sum((-2, -1)).sqrt()
    least = (norm * _EPSILON).clamp(min=sys.float_info.min)
    triangular, unitary = _triangular(x, least)
    values = triangular.diagonal(0, -2, -1)
    vectors = unitary @ _vectors(triangular, least)
    vectors = _normalized(vectors / vectors.abs().amax(-2, keepdim=True))
    # The greatest component is real, as in LAPACK.
    sizes = vectors.abs()
    place = sizes.argmax(-2, True)
    real, imaginary = (part.gather(-2, place) for part in (vectors.real, vectors.imag))
    vectors = vectors * _complex(real, -imaginary) / sizes.gather(-2, place)
    if not A.is_complex():
        is_real = values.imag.abs() <= count * least.unsqueeze(-1)
        values = _complex(values.real, _engine.where(is_real, 0.0, values.imag))
        vectors = _complex(vectors.real, _engine.where(is_real.unsqueeze(-2), 0.0, vectors.imag))
    return values, _normalized(vectors)


def _refined(x: Tensor, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """One step of Newton's method for eigenvalues and eigenvectors. It changes no value, but carries the gradient: as the
    error of a step is the square of the one before, two steps have the right derivatives up to the third.
    """
    change = vectors.inverse() @ x @ vectors
    distance = values.unsqueeze(-2) - values.unsqueeze(-1)
    is_same = distance == 0
    factor = where(is_same, 0.0, 1.0 / where(is_same, 1.0, distance))
    return change.diagonal(0, -2, -1), _normalized(vectors + vectors @ (factor * change))


def _checked(A: Tensor) -> None:
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"eig: expected square matrices, got shape {tuple(A.shape)}")
    if not (A.is_floating_point() or A.is_complex()):
        raise TypeError(f"eig: expected floats or complex numbers, got {A.dtype.name}")


def eig(A: Tensor) -> EigResult:
    """The eigenvalues (..., N) and eigenvectors (..., N, N) of square matrices, both complex: ``A @ eigenvectors`` is
    ``eigenvectors * eigenvalues.unsqueeze(-2)``. The order is arbitrary. Each vector is a column of length 1, whose
    greatest component is real and positive; a loss must not depend on that. Gradients assume distinct eigenvalues. They
    can be differentiated twice more; higher derivatives are wrong.

    It takes O(N) iterations of O(N ** 3) on the CPU, a second for N = 32: it is meant for small matrices. ``eigh`` is
    much faster for symmetric ones.

    >>> import neurenix as nx
    >>> values, vectors = nx.linalg.eig(nx.Tensor([[0.0, 1.0], [-1.0, 0.0]]))
    >>> sorted(round(z.imag, 6) for z in values.tolist())
    [-1.0, 1.0]
    """
    _checked(A)
    kind = A.dtype if A.is_complex() else A.dtype.to_complex()
    batch, count = tuple(A.shape[:-2]), A.shape[-1]
    if A.numel() == 0:
        nothing = as_complex(A, A).to(kind)
        return EigResult(nothing.sum(-1), nothing)
    x = A.reshape(-1, count, count)
    if not builtins.bool(x.detach().isfinite().all()):
        raise ValueError("eig: the matrices contain infinities or NaN")
    values, vectors = _found(x)
    if A.requires_grad and _engine.is_grad_enabled():
        wide = as_complex(x.to(device="cpu"), x).to("complex128")
        for _ in range(2):
            values, vectors = _refined(wide, values, vectors)
    options: Any = {"dtype": kind, "device": A.device}
    return EigResult(values.to(**options).reshape(*batch, count), vectors.to(**options).reshape(*batch, count, count))


def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues (..., N) of square matrices, as :func:`eig`.

    >>> import neurenix as nx
    >>> sorted(z.real for z in nx.linalg.eigvals(nx.Tensor([[2.0, 5.0], [0.0, 3.0]])).tolist())
    [2.0, 3.0]
    """
    return eig(A).eigenvalues


_guard(globals())
