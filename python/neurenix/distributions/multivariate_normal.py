"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .._engine import Tensor, randn
from . import constraints
from ._covariance import MATRICES, WithCovariance, log_diagonal, squared_distance


class MultivariateNormal(WithCovariance):
    """The normal distribution of vectors with mean ``loc``. Pass ``covariance_matrix``, ``precision_matrix`` or its
    Cholesky factor ``scale_tril``, with which it computes.

    >>> import neurenix as nx
    >>> d = nx.distributions.MultivariateNormal(nx.zeros(2), nx.eye(2))
    >>> d.log_prob(nx.zeros(2)).item()
    -1.8378770351409912
    """

    arg_constraints = {"loc": constraints.real_vector, **MATRICES}
    support = constraints.real_vector
    has_rsample = True
    loc: Tensor

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, value = self._matrix(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        if not isinstance(loc, Tensor) or loc.ndim < 1:
            raise ValueError("MultivariateNormal: loc must be a tensor of at least one dimension")
        self._set(validate_args, None, loc=loc, **{name: value})

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.scale_tril**2).sum(-1)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        noise = randn((*shape, 1), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ noise).squeeze(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        distance = squared_distance(self.scale_tril, value - self.loc)
        return -0.5 * (self.event_shape[0] * math.log(math.tau) + distance) - log_diagonal(self.scale_tril)

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1 + math.log(math.tau)) + log_diagonal(self.scale_tril)
