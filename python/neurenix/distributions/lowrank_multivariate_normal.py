"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from .._engine import Tensor, randn
from . import constraints
from ._covariance import identity_like, log_diagonal, squared_distance
from .distribution import Distribution
from .utils import lazy_property


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with the covariance ``cov_factor @ cov_factor.mT + diag(cov_diag)``. It
    inverts and factorizes matrices of the size of the rank, not of the vectors (Woodbury)."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    loc: Tensor
    cov_factor: Tensor
    cov_diag: Tensor

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, cov_factor=cov_factor, cov_diag=cov_diag)
        size = self.event_shape[0]
        if self.cov_factor.shape[-2] != size or self.cov_diag.shape[-1] != size:
            raise ValueError(
                f"LowRankMultivariateNormal: expected {size} rows, as in loc, got cov_factor of shape "
                f"{tuple(cov_factor.shape)} and cov_diag of shape {tuple(cov_diag.shape)}"
            )

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor**2).sum(-1) + self.cov_diag

    @lazy_property
    def _scaled(self) -> Tensor:
        """``W^T D^-1``."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of ``I + W^T D^-1 W``."""
        capacitance = self._scaled @ self.cov_factor
        return linalg.cholesky(capacitance + identity_like(capacitance))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        scaled = self.cov_factor / root
        inner = scaled @ scaled.mT
        return root * linalg.cholesky(inner + identity_like(inner))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        half = linalg.solve(self._capacitance_tril, self._scaled)
        return (1 / self.cov_diag).diag_embed() - half.mT @ half

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        kind: Any = {"dtype": self.loc.dtype, "device": self.loc.device}
        few = randn((*shape[:-1], self.cov_factor.shape[-1], 1), **kind)
        return self.loc + (self.cov_factor @ few).squeeze(-1) + self.cov_diag.sqrt() * randn(shape, **kind)

    def log_determinant(self) -> Tensor:
        """The log determinant of the covariance."""
        return 2 * log_diagonal(self._capacitance_tril) + self.cov_diag.log().sum(-1)

    def squared_distance(self, x: Tensor) -> Tensor:
        """``x^T M^-1 x`` for the covariance M."""
        scaled = (self._scaled @ x.unsqueeze(-1)).squeeze(-1)
        return (x * x / self.cov_diag).sum(-1) - squared_distance(self._capacitance_tril, scaled)

    def _log_prob(self, value: Tensor) -> Tensor:
        distance = self.squared_distance(value - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(math.tau) + self.log_determinant() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self.event_shape[0] * (1 + math.log(math.tau)) + self.log_determinant())
