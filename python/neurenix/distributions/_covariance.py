"""Covariance matrices given by themselves, their inverse or their Cholesky factor."""

from __future__ import annotations

from typing import Any

from .. import _engine, linalg
from .._engine import Tensor
from . import constraints
from .distribution import Distribution
from .utils import exactly_one, lazy_property

MATRICES: dict[str, constraints.Constraint] = {
    "covariance_matrix": constraints.positive_definite,
    "precision_matrix": constraints.positive_definite,
    "scale_tril": constraints.lower_cholesky,
}


def identity_like(x: Tensor) -> Tensor:
    """The identity matrix of the size of the last dimension."""
    return _engine.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def log_diagonal(tril: Tensor) -> Tensor:
    """The sum of the logarithms of a triangular matrix's diagonal: half the log determinant of its covariance."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def solve_vectors(matrix: Tensor, x: Tensor) -> Tensor:
    """The solutions of ``matrix @ result = x`` for vectors, batches broadcast."""
    shape = _engine.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(x.shape[:-1]))
    lead = len(shape) - (matrix.ndim - 2)
    # Vectors that share a matrix are columns of one right-hand side.
    columns = x.expand((*shape, x.shape[-1])).reshape(-1, *shape[lead:], x.shape[-1])
    solved = linalg.solve(matrix.expand((*shape[lead:], *matrix.shape[-2:])), columns.movedim(0, -1))
    return solved.movedim(-1, 0).reshape(*shape, x.shape[-1])


def squared_distance(tril: Tensor, x: Tensor) -> Tensor:
    """``x^T M^-1 x`` for the covariance M with this Cholesky factor (Mahalanobis)."""
    # So that the zeros have no gradients.
    return (solve_vectors(tril.tril(), x) ** 2).sum(-1)


class WithCovariance(Distribution):
    """Has ``covariance_matrix``, ``precision_matrix`` and ``scale_tril``, of which those not passed are computed."""

    @staticmethod
    def _matrix(name: str, **matrices: Any) -> tuple[str, Tensor]:
        """The matrix that was passed."""
        key, value = exactly_one(name, **matrices)
        if not isinstance(value, Tensor) or value.ndim < 2:
            raise ValueError(f"{name}: {key} must be a tensor of at least two dimensions")
        return key, value

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        if "covariance_matrix" in self._parameters:
            return linalg.cholesky(self.covariance_matrix)
        # The factor of the matrix with both axes reversed, reversed, is the inverse's upper factor.
        reversed_factor = linalg.cholesky(self.precision_matrix.flip(-2, -1))
        factor = reversed_factor.flip(-2, -1).mT
        return linalg.solve(factor, identity_like(factor).expand(tuple(factor.shape))).tril()

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        tril = self.scale_tril
        inverse = linalg.solve(tril, identity_like(tril).expand(tuple(tril.shape)))
        return inverse.mT @ inverse
