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
from typing import Any

from .._effects import note_read, repeated
from .._engine import half_cosine
from ._plateau import ReduceLROnPlateau
from .optimizer import Optimizer


# Not part of the state: passed to the constructor.
_NOT_STATE = ("optimizer", "lr_lambdas", "_for_all")


class LRScheduler:
    """The base class: sets every group's learning rate for each epoch, counted from 0."""

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
        self.step()

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
        before, groups = self.last_epoch, range(len(self.base_lrs))
        self.last_epoch = before + 1 if epoch is None else epoch  # type: ignore[assignment]
        try:
            rates = [self.next(group) if epoch is None else self.at(epoch, group) for group in groups]
        except BaseException:
            self.last_epoch = before
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


class _Factor(LRScheduler):
    """A multiplicative schedule, which can be combined with others on the same optimiser."""

    def multiple(self, epoch: float) -> float:
        """The factor of the initial learning rate at an epoch."""
        raise NotImplementedError

    def at(self, epoch: float, group: int) -> float:
        return self.base_lrs[group] * self.multiple(epoch)

    def next(self, group: int) -> float:
        now = float(self.optimizer.param_groups[group]["lr"])
        if self.last_epoch == 0:
            return now * self.multiple(0)
        before = self.multiple(self.last_epoch - 1)
        return self.at(self.last_epoch, group) if before == 0.0 else now * (self.multiple(self.last_epoch) / before)


class StepLR(_Factor):
    """Multiplies the learning rate by ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size is {step_size}, it must be at least 1")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return self.gamma ** (int(epoch) // self.step_size)


class MultiStepLR(_Factor):
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


class ExponentialLR(_Factor):
    """Multiplies the learning rate by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def multiple(self, epoch: float) -> float:
        return float(self.gamma**epoch)


class ConstantLR(_Factor):
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


class LinearLR(_Factor):
    """Changes the factor of the learning rate from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs, in
    equal steps.
    """

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


class LambdaLR(LRScheduler):
    """The initial learning rate times a function of the epoch; one function, or one for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        self._for_all = lr_lambda if callable(lr_lambda) else None
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {count} parameter groups")
        super().__init__(optimizer, last_epoch)

    def at(self, epoch: float, group: int) -> float:
        if group == len(self.lr_lambdas) and self._for_all is not None:
            self.lr_lambdas.append(self._for_all)
        if group >= len(self.lr_lambdas):
            raise ValueError(f"LambdaLR: {len(self.lr_lambdas)} functions for {group + 1} parameter groups")
        return self.base_lrs[group] * self.lr_lambdas[group](epoch)  # type: ignore[arg-type]


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
        if self.last_epoch == 0:
            return now
        if before < 1e-12:
            return self.at(self.last_epoch, group)
        return self.eta_min + (now - self.eta_min) * (self._share(self.last_epoch) / before)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Follows half a cosine to ``eta_min`` in ``T_0`` epochs, then restarts, each time ``T_mult`` times as long.
    ``step`` accepts fractions of epochs.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ValueError("CosineAnnealingWarmRestarts: T_0 and T_mult must be integers of at least 1")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def at(self, epoch: float, group: int) -> float:
        length, since = self.T_0, epoch
        if self.T_mult == 1:
            since = epoch % length
        while since >= length:
            since -= length
            length *= self.T_mult
        return half_cosine(self.base_lrs[group], self.eta_min, math.pi * since / length)


class OneCycleLR(LRScheduler):
    """Increases the learning rate to ``max_lr`` and decreases it to almost 0, once (Smith and Topin, 2019); call
    ``step`` after every batch.

    With ``cycle_momentum`` the momentum (or ``betas[0]``) changes in the opposite direction. The momentum is a constant
    of the optimiser's step, so each change makes a new plan; ``cycle_momentum=False`` avoids that.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: pass total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0.0 <= pct_start <= 1.0:
            raise ValueError("OneCycleLR: total_steps must be at least 1, and pct_start between 0 and 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'OneCycleLR: anneal_strategy is {anneal_strategy!r}, it must be "cos" or "linear"')
        self.total_steps, self.anneal_strategy, self.cycle_momentum = total_steps, anneal_strategy, cycle_momentum
        up = float(pct_start * total_steps) - 1
        top, end = "max", float(total_steps - 1)
        low, high = "base_momentum", "max_momentum"
        self.phases: list[tuple[float, str, str, str, str]] = [(up, "initial", top, high, low)]
        if three_phase:
            self.phases.append((2 * up, top, "initial", low, high))
            self.phases.append((end, "initial", "min", high, high))
        else:
            self.phases.append((end, top, "min", low, high))
        groups = optimizer.param_groups
        tops = [max_lr] * len(groups) if isinstance(max_lr, (int, float)) else list(max_lr)
        if len(tops) != len(groups):
            raise ValueError(f"OneCycleLR: {len(tops)} values of max_lr for {len(groups)} parameter groups")
        if cycle_momentum and not all("momentum" in group or "betas" in group for group in groups):
            raise ValueError("OneCycleLR: the optimizer has no momentum; pass cycle_momentum=False")
        self.momenta = {"base_momentum": base_momentum, "max_momentum": max_momentum}
        self.rates = []
        for group, rate in zip(groups, tops, strict=True):
            initial = rate / div_factor
            self.rates.append({"initial": initial, "max": float(rate), "min": initial / final_div_factor})
            if last_epoch == -1:
                group["initial_lr"] = initial
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "cos":
            return half_cosine(start, end, math.pi * share)
        return (end - start) * share + start

    def _place(self, epoch: float) -> tuple[tuple[float, str, str, str, str], float]:
        if epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {epoch} is past the end of the cycle of {self.total_steps} steps")
        start = 0.0
        for phase in self.phases:
            if epoch <= phase[0] or phase is self.phases[-1]:
                return phase, (epoch - start) / (phase[0] - start)
            start = phase[0]
        raise AssertionError

    def at(self, epoch: float, group: int) -> float:
        (_, start, end, _, _), share = self._place(epoch)
        return self._between(self.rates[group][start], self.rates[group][end], share)

    def _put(self, rates: list[float]) -> None:
        super()._put(rates)
        if self.cycle_momentum:
            (_, _, _, start, end), share = self._place(self.last_epoch)
            momentum = self._between(self.momenta[start], self.momenta[end], share)
            for group in self.optimizer.param_groups:
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum


class SequentialLR:
    """Schedules in sequence; each begins at its milestone, counting from 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError("SequentialLR: expected one milestone fewer than schedulers")
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("SequentialLR: all schedulers must belong to the same optimizer")
        self.optimizer, self._schedulers, self._milestones = optimizer, list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        # Creating the schedules has changed the learning rates in turn: restore them and apply only the first schedule.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def _is_repeated(self) -> bool:
        return type(self).__module__.startswith("neurenix.") and "step" not in vars(self)

    @repeated
    def step(self) -> None:
        """Advances to the next epoch."""
        epoch = self.last_epoch + 1
        number = bisect_right(self._milestones, epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self.last_epoch = epoch
        self._last_lr = scheduler.get_last_lr()

    def get_last_lr(self) -> list[float]:
        """The learning rates as the schedule set them last."""
        note_read(lambda: self._last_lr, "get_last_lr()")
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """The states of all schedules, and the epoch."""
        rest = {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "_schedulers")}
        return {**rest, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
