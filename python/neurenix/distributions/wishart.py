"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import _engine, linalg
from .._engine import Tensor, randn
from .._gamma import mvlgamma
from .._table import digamma
from . import constraints
from ._covariance import MATRICES, WithCovariance, log_diagonal
from ._sampling import standard_gamma
from .exp_family import ExponentialFamily
from .utils import epsilon


class Wishart(WithCovariance, ExponentialFamily):
    """The distribution of the sum of ``df`` outer products of normal vectors with this covariance. ``df`` must be above
    the size of the matrix minus 1; it need not be whole. Pass ``covariance_matrix``, ``precision_matrix`` or
    ``scale_tril``. Samples use Bartlett's decomposition."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "df": constraints.dependent(event_dim=0),
        **MATRICES,
    }
    support = constraints.positive_definite
    has_rsample = True
    df: Tensor

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, value = self._matrix(
            "Wishart", covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        df = df if isinstance(df, Tensor) else _engine.full((), float(df), dtype=value.dtype, device=value.device)
        self._set(validate_args, tuple(value.shape[-2:]), df=df, **{name: value})

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not bool((self.df > self.event_shape[-1] - 1).all()):
            raise ValueError(f"Wishart: df must be above {self.event_shape[-1] - 1}, got {self.df}")

    def _factor(self, value: Tensor) -> Tensor:
        return value.reshape(*value.shape, 1, 1)

    @property
    def mean(self) -> Tensor:
        return self._factor(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.event_shape[-1] - 1
        return self._factor(_engine.where(factor <= 0, math.nan, factor)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        diagonal = self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
        return self._factor(self.df) * (self.covariance_matrix**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        p, tril = self.event_shape[-1], self.scale_tril
        half = 0.5 * (self.df.unsqueeze(-1) - _engine.arange(p, dtype=tril.dtype, device=tril.device))
        chi = (2 * standard_gamma(half.expand(shape[:-1]))).sqrt()
        factor = randn(shape, dtype=tril.dtype, device=tril.device).tril(-1) + chi.clamp(min=epsilon(tril)).diag_embed()
        root = tril @ factor
        return root @ root.mT

    def _half_log_determinant(self) -> Tensor:
        """That of twice the covariance."""
        return self.event_shape[-1] * math.log(2) / 2 + log_diagonal(self.scale_tril)

    def _log_prob(self, value: Tensor) -> Tensor:
        p, tril = self.event_shape[-1], self.scale_tril
        batch = _engine.broadcast_shapes(tuple(tril.shape[:-2]), tuple(value.shape[:-2]))
        half = linalg.solve(tril.expand((*batch, p, p)), linalg.cholesky(value).expand((*batch, p, p)))
        trace = (half * half).sum([-2, -1])
        log_determinant = 2 * log_diagonal(linalg.cholesky(value))
        normalizer = self.df * self._half_log_determinant() + mvlgamma(self.df / 2, p)
        return (self.df - p - 1) / 2 * log_determinant - trace / 2 - normalizer

    def entropy(self) -> Tensor:
        p, half = self.event_shape[-1], self.df / 2
        shifts = _engine.arange(p, dtype=half.dtype, device=half.device) * 0.5
        spread = (self.df - p - 1) / 2 * digamma(half.unsqueeze(-1) - shifts).sum(-1)
        return (p + 1) * self._half_log_determinant() + mvlgamma(half, p) - spread + self.df * p / 2
