"""Learning rate schedules, with PyTorch's formulas: call ``step()`` after the optimiser's.

>>> import neurenix as nx
>>> optimizer = nx.optim.SGD([nx.nn.Parameter([1.0])], lr=1.0)
>>> schedule = nx.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
>>> schedule.step()
>>> schedule.get_last_lr()
[0.5]
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from .._engine import half_cosine
from ._composed import ChainedScheduler, SequentialLR
from ._cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from ._plateau import ReduceLROnPlateau
from ._schedule import Factor, LRScheduler
from .optimizer import Optimizer

_LRScheduler = LRScheduler
"""Its name in older programs."""


class StepLR(Factor):
    """Multiplies the learning rate by ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size is {step_size}, it must be at least 1")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return self.gamma ** (int(epoch) // self.step_size)


class MultiStepLR(Factor):
    """Multiplies the learning rate by ``gamma`` at each of these epochs."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return self.gamma ** bisect_right(self.milestones, epoch)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` of this library or of PyTorch, which counts the milestones."""
        super().load_state_dict(state_dict)
        given: Any = self.milestones
        if isinstance(given, Mapping):
            self.milestones = sorted(Counter(given).elements())


class ExponentialLR(Factor):
    """Multiplies the learning rate by ``gamma`` every epoch."""

    _keeps_rates = True

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return float(self.gamma**epoch)


class ConstantLR(Factor):
    """Multiplies the learning rate by ``factor`` for ``total_iters`` epochs."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0.0 <= factor <= 1.0:
            raise ValueError("ConstantLR: factor must be between 0 and 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return self.factor if epoch < self.total_iters else 1.0


class LinearLR(Factor):
    """Changes the factor of the learning rate from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs, in
    equal steps.
    """

    _keeps_rates = True

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            raise ValueError("LinearLR: start_factor and end_factor must be between 0 and 1, and start_factor greater than 0")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        share = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share

    def next(self, group: int) -> float:
        if self.last_epoch == 0:
            return float(self.optimizer.param_groups[group]["lr"]) * self.start_factor
        return super().next(group)


class PolynomialLR(Factor):
    """Multiplies the initial learning rate by ``(1 - epoch / total_iters) ** power``, down to 0 in ``total_iters``
    epochs.
    """

    _keeps_rates = True

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return float((1.0 - min(self.total_iters, epoch) / self.total_iters) ** self.power)

    def next(self, group: int) -> float:
        if self.last_epoch > self.total_iters:
            return float(self.optimizer.param_groups[group]["lr"])
        return super().next(group)


class _OfFunctions(LRScheduler):
    """A schedule by functions of the epoch: one, or one for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self._for_all = lr_lambda if callable(lr_lambda) else None
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        name = type(self).__name__
        if len(self.lr_lambdas) != count:
            raise ValueError(f"{name}: {len(self.lr_lambdas)} functions for {count} parameter groups")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"{name}: expected a function, got {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: float, group: int) -> float:
        """What a group's function returns for an epoch."""
        if group == len(self.lr_lambdas) and self._for_all is not None:
            self.lr_lambdas.append(self._for_all)
        if group >= len(self.lr_lambdas):
            name = type(self).__name__
            raise ValueError(f"{name}: {len(self.lr_lambdas)} functions for {group + 1} parameter groups")
        return self.lr_lambdas[group](epoch)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """The state, without the optimiser. Of the functions, it has the attributes of callable objects."""
        kept = [None if isinstance(f, FunctionType) else dict(getattr(f, "__dict__", {})) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` of this library or of PyTorch; functions are unchanged."""
        super().load_state_dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if attributes:
                function.__dict__.update(attributes)


class MultiplicativeLR(_OfFunctions):
    """The learning rate times a function of the epoch, at each epoch from 1; one function, or one for each group."""

    def next(self, group: int) -> float:
        now = float(self.optimizer.param_groups[group]["lr"])
        return now if self._is_initial else now * self.factor(self.last_epoch, group)


class LambdaLR(_OfFunctions):
    """The initial learning rate times a function of the epoch; one function, or one for each group."""

    def at(self, epoch: float, group: int) -> float:
        return self.base_lrs[group] * self.factor(epoch, group)


class CosineAnnealingLR(LRScheduler):
    """Follows half a cosine from the initial learning rate to ``eta_min`` in ``T_max`` epochs, and back."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: float) -> float:
        return half_cosine(1.0, 0.0, math.pi * epoch / self.T_max)

    def at(self, epoch: float, group: int) -> float:
        return self.eta_min + (self.base_lrs[group] - self.eta_min) * self._share(epoch)

    def next(self, group: int) -> float:
        now = float(self.optimizer.param_groups[group]["lr"])
        before = self._share(self.last_epoch - 1)
        if self._is_initial:
            return now
        if before < 1e-12:
            return self.at(self.last_epoch, group)
        return self.eta_min + (now - self.eta_min) * (self._share(self.last_epoch) / before)


__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
