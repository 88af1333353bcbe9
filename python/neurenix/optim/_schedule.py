"""The base classes of learning rate schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._effects import note_read, repeated
from .optimizer import Optimizer

# Not part of the state: passed to the constructor.
_NOT_STATE = ("optimizer", "lr_lambdas", "_for_all")


class LRScheduler:
    """The base class: sets every group's learning rate for each epoch, counted from 0.

    A schedule of your own defines ``get_lr``, which computes the rates from ``last_epoch``, ``base_lrs`` and
    ``optimizer.param_groups``.

    >>> import neurenix as nx
    >>> class Root(nx.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [rate / (1 + self.last_epoch) ** 0.5 for rate in self.base_lrs]
    >>> schedule = Root(nx.optim.SGD([nx.nn.Parameter([1.0])], lr=1.0))
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"expected Optimizer, got {type(optimizer).__name__}")
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"parameter group {number} has no 'initial_lr', which is required to resume from epoch {last_epoch}")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self._last_lr: list[float] = []
        self._initial_step()

    def _initial_step(self) -> None:
        """Sets the learning rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """The learning rates of ``last_epoch``: what a schedule of your own defines. ``step`` calls it; use
        :meth:`get_last_lr` to read the rates.
        """
        return [self.next(group) for group in range(len(self.base_lrs))]

    def _get_closed_form_lr(self) -> list[float]:
        """The learning rates of ``last_epoch``, whatever they were before."""
        if type(self).at is LRScheduler.at:
            return self.get_lr()
        return [self.at(self.last_epoch, group) for group in range(len(self.base_lrs))]

    def at(self, epoch: float, group: int) -> float:
        """A group's learning rate at an epoch."""
        raise NotImplementedError

    def next(self, group: int) -> float:
        """A group's learning rate at ``last_epoch``, computed from the previous rate, which other schedules may have
        changed.
        """
        return self.at(self.last_epoch, group)

    @repeated
    def step(self, epoch: float | None = None) -> None:
        """Advances to the next epoch, or to the one given."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            # Added since the last step.
            self.base_lrs.append(float(group.setdefault("initial_lr", group["lr"])))
        before = self.last_epoch, self._step_count
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch  # type: ignore[assignment]
        try:
            rates = self.get_lr() if epoch is None else self._get_closed_form_lr()
        except BaseException:
            self.last_epoch, self._step_count = before
            raise
        self._put(rates)

    def _is_repeated(self) -> bool:
        return type(self).__module__.startswith("neurenix.") and "step" not in vars(self)

    def _put(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates

    def get_last_lr(self) -> list[float]:
        """The learning rates as this schedule set them last."""
        note_read(lambda: self._last_lr, "get_last_lr()")
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """The state, without the optimiser and functions."""
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_STATE}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` of this library or of PyTorch; functions are unchanged."""
        self.__dict__.update({name: value for name, value in state_dict.items() if name not in _NOT_STATE})


class Factor(LRScheduler):
    """A multiplicative schedule, which can be combined with others on the same optimiser."""

    #: Whether a schedule that resumes from an epoch keeps the rates that it finds, as some of PyTorch's do.
    _keeps_rates = False

    def multiple(self, epoch: float) -> float:
        """The factor of the initial learning rate at an epoch."""
        raise NotImplementedError

    def at(self, epoch: float, group: int) -> float:
        return self.base_lrs[group] * self.multiple(epoch)

    def next(self, group: int) -> float:
        now = float(self.optimizer.param_groups[group]["lr"])
        if self.last_epoch == 0 and (self._is_initial or not self._keeps_rates):
            return now * self.multiple(0)
        if self._is_initial and self._keeps_rates:
            return now
        before = self.multiple(self.last_epoch - 1)
        return self.at(self.last_epoch, group) if before == 0.0 else now * (self.multiple(self.last_epoch) / before)
