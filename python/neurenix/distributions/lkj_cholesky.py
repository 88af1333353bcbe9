"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Tensor, randn
from .._gamma import mvlgamma
from .._table import lgamma
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import tiny


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices of size ``dim``, whose density is proportional to the determinant to the
    power ``concentration - 1``: uniform over correlation matrices for 1 (Lewandowski, Kurowicka and Joe, "Generating
    random correlation matrices based on vines and extended onion method", 2009)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    concentration: Tensor

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"LKJCholesky: dim is {dim}, it must be at least 2")
        self.dim = dim
        self._set(validate_args, (dim, dim), concentration=concentration)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # The onion method. Row i + 1 below the diagonal has a random direction and a beta distributed squared length.
        eta = self.concentration.unsqueeze(-1)
        row = _engine.arange(self.dim - 1, dtype=eta.dtype, device=eta.device)
        length = Beta(row / 2 + 0.5, eta + 0.5 * (self.dim - 2) - row / 2, validate_args=False)
        squared = length.expand((*self.batch_shape, self.dim - 1)).sample(shape[: len(shape) - 2 - len(self.batch_shape)])
        normal = randn((*shape[:-2], self.dim - 1, self.dim), dtype=eta.dtype, device=eta.device).tril()
        below = squared.sqrt().unsqueeze(-1) * normal / (normal * normal).sum(-1, True).sqrt()
        below = _engine.cat([_engine.full_like(below[..., :1, :], 0.0), below], -2)
        rest = (1 - (below * below).sum(-1)).clamp(min=tiny(below))
        return below + rest.sqrt().diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = self.dim - _engine.arange(2, self.dim + 1, dtype=value.dtype, device=value.device)
        order = order + 2 * (self.concentration - 1).unsqueeze(-1)
        less = self.dim - 1
        alpha = self.concentration + 0.5 * less
        normalizer = 0.5 * less * math.log(math.pi) + mvlgamma(alpha - 0.5, less) - lgamma(alpha) * less
        return (order * diagonal.log()).sum(-1) - normalizer
