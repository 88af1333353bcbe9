"""Schedules that consist of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from .._effects import repeated
from ._plateau import ReduceLROnPlateau
from ._schedule import LRScheduler
from .optimizer import Optimizer


class _Composed(LRScheduler):
    """Several schedules of one optimiser."""

    _schedulers: list[LRScheduler]

    def _of_one_optimizer(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None
    ) -> tuple[Optimizer, list[LRScheduler]]:
        name = type(self).__name__
        if not schedulers:
            raise ValueError(f"{name}: expected at least one scheduler")
        for scheduler in schedulers:
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"{name}: ReduceLROnPlateau cannot be a part, because its step needs a metric")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError(f"{name}: all schedulers must belong to the same optimizer")
        return optimizer, list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        """The states of all schedules, and the epoch."""
        rest = {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "_schedulers")}
        return {**rest, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


def _undo(scheduler: LRScheduler) -> None:
    """Takes back the first step of each part. As in PyTorch, composed parts keep their own count."""
    if hasattr(scheduler, "_schedulers"):
        for part in scheduler._schedulers:  # pyright: ignore
            _undo(part)
    else:
        scheduler.last_epoch -= 1


class SequentialLR(_Composed):
    """Schedules in sequence; each begins at its milestone, counting from 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError("SequentialLR: expected one milestone fewer than schedulers")
        self.optimizer, self._schedulers = self._of_one_optimizer(schedulers, optimizer)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Creating the schedules has changed the learning rates in turn: restore them and apply only the first schedule.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    @repeated
    def step(self, epoch: float | None = None) -> None:
        """Advances to the next epoch."""
        if epoch is not None:
            raise ValueError("SequentialLR.step: an epoch cannot be given")
        epoch = self.last_epoch + 1
        number = bisect_right(self._milestones, epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self.last_epoch = epoch
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """Schedules that all take each step, in order: their factors multiply.

    >>> import neurenix as nx
    >>> schedules = nx.optim.lr_scheduler
    >>> optimizer = nx.optim.SGD([nx.nn.Parameter([1.0])], lr=1.0)
    >>> parts = [schedules.ExponentialLR(optimizer, 0.5), schedules.StepLR(optimizer, 1, 0.5)]
    >>> schedule = schedules.ChainedScheduler(parts)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer, self._schedulers = self._of_one_optimizer(schedulers, optimizer)
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    @repeated
    def step(self, epoch: float | None = None) -> None:
        """Advances all schedules to the next epoch, or to the one given."""
        for scheduler in self._schedulers:
            scheduler.step() if epoch is None else scheduler.step(epoch)
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]
