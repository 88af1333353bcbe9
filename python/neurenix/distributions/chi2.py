"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import constraints
from .gamma import Gamma
from .utils import tensors


class Chi2(Gamma):
    """The chi-squared distribution: the sum of the squares of ``df`` standard normal variables."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * tensors({"df": df})["df"], 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
