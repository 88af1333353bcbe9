"""What relaxed distributions have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from .._engine import Tensor
from .transformed_distribution import TransformedDistribution
from .transforms import Transform


class Relaxed(TransformedDistribution):
    """A distribution of continuous variables that tend to discrete ones as ``temperature`` falls to 0. Pass ``probs`` or
    ``logits``.
    """

    _base: ClassVar[type[Any]]
    _transform: ClassVar[type[Transform]]

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        base = self._base(temperature, probs, logits, validate_args)
        super().__init__(base, self._transform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far samples are from discrete values."""
        return self.base_dist.temperature

    @property
    def probs(self) -> Tensor:
        """The probabilities of the discrete values."""
        return self.base_dist.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, or of the odds of 1."""
        return self.base_dist.logits
