"""A learning rate schedule that depends on a metric."""

from __future__ import annotations

import math
from typing import Any

from ._schedule import LRScheduler
from .optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the learning rate by ``factor`` when a metric has not improved for ``patience`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("ReduceLROnPlateau: factor must be less than 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError('ReduceLROnPlateau: mode must be "min" or "max", and threshold_mode "rel" or "abs"')
        groups = len(optimizer.param_groups)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        if len(self.min_lrs) != groups:
            raise ValueError(f"ReduceLROnPlateau: {len(self.min_lrs)} values of min_lr for {groups} parameter groups")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = [float(group["lr"]) for group in optimizer.param_groups]

    def _is_repeated(self) -> bool:
        # A replay has no metric.
        return False

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs without improvement do not count yet."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` is better than the best by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        bound = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return a > bound if self.mode == "max" else a < bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Records an epoch's metric and adapts the learning rates."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.default_min_lr is not None:
            # Groups may have been added.
            self.min_lrs = [self.default_min_lr] * len(self.optimizer.param_groups)
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                old = float(group["lr"])
                new = max(old * self.factor, least)
                if old - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]
