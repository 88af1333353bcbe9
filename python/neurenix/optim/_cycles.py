"""Schedules that go up and down, or start again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from .._engine import half_cosine
from ._schedule import LRScheduler
from .optimizer import Optimizer


def for_groups(name: str, what: str, optimizer: Optimizer, given: float | Sequence[float]) -> list[float]:
    """One number for each parameter group."""
    count = len(optimizer.param_groups)
    values: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(values) != count:
        raise ValueError(f"{name}: {len(values)} values of {what} for {count} parameter groups")
    return [float(value) for value in values]


def set_momentum(group: dict[str, Any], momentum: float) -> None:
    """Sets a group's momentum, or the first of its betas."""
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


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
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
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
        tops = for_groups("OneCycleLR", "max_lr", optimizer, max_lr)
        if cycle_momentum and not all("momentum" in group or "betas" in group for group in groups):
            raise ValueError("OneCycleLR: the optimizer has no momentum; pass cycle_momentum=False")
        given = {"base_momentum": base_momentum, "max_momentum": max_momentum}
        self.momenta = {name: for_groups("OneCycleLR", name, optimizer, value) for name, value in given.items()}
        self.rates: list[dict[str, float]] = []
        for number, (group, rate) in enumerate(zip(groups, tops, strict=True)):
            if last_epoch == -1:
                group.update(initial_lr=rate / div_factor, max_lr=rate, min_lr=rate / div_factor / final_div_factor)
                if cycle_momentum:
                    group.update({name: values[number] for name, values in self.momenta.items()})
                    set_momentum(group, self.momenta["max_momentum"][number])
            elif "max_lr" not in group or "min_lr" not in group or "initial_lr" not in group:
                raise KeyError(f"OneCycleLR: parameter group {number} has no rates to resume from epoch {last_epoch}")
            elif cycle_momentum and all(name in group for name in self.momenta):
                for key, values in self.momenta.items():
                    values[number] = group[key]
            self.rates.append({"initial": group["initial_lr"], "max": group["max_lr"], "min": group["min_lr"]})
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
            for number, group in enumerate(self.optimizer.param_groups):
                set_momentum(group, self._between(self.momenta[start][number], self.momenta[end][number], share))


class CyclicLR(LRScheduler):
    """Moves the learning rate from ``base_lr`` to ``max_lr`` in ``step_size_up`` steps and back in ``step_size_down``,
    again and again (Smith, 2017); call ``step`` after every batch.

    ``mode`` says how the height of the cycles changes: ``"triangular"`` keeps it, ``"triangular2"`` halves it each
    time, ``"exp_range"`` multiplies it by ``gamma`` at each step. Instead, ``scale_fn`` is a function of the number of
    the cycle, from 1, or of the step, if ``scale_mode`` is ``"iterations"``. With ``cycle_momentum`` the momentum (or
    ``betas[0]``) changes in the opposite direction.

    >>> import neurenix as nx
    >>> optimizer = nx.optim.SGD([nx.nn.Parameter([1.0])], lr=1.0, momentum=0.9)
    >>> schedule = nx.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f'CyclicLR: mode is {mode!r}, it must be "triangular", "triangular2" or "exp_range"')
        rates = for_groups("CyclicLR", "base_lr", optimizer, base_lr)
        self.max_lrs = for_groups("CyclicLR", "max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.cycle_momentum = mode, gamma, cycle_momentum
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        groups = optimizer.param_groups
        if last_epoch == -1:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate
        if cycle_momentum:
            if not all("momentum" in group or "betas" in group for group in groups):
                raise ValueError("CyclicLR: the optimizer has no momentum; pass cycle_momentum=False")
            self.base_momentums = for_groups("CyclicLR", "base_momentum", optimizer, base_momentum)
            self.max_momentums = for_groups("CyclicLR", "max_momentum", optimizer, max_momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = rates

    def scale_fn(self, x: float) -> float:
        """The height of a cycle, or of a step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1.0 / 2.0 ** (x - 1.0) if self.mode == "triangular2" else self.gamma**x

    def _height(self) -> float:
        """The share of the way from the base to the maximum."""
        cycle = math.floor(1.0 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1.0) / (self.step_ratio - 1.0)
        return share * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

    def next(self, group: int) -> float:
        return self.base_lrs[group] + (self.max_lrs[group] - self.base_lrs[group]) * self._height()

    def _put(self, rates: list[float]) -> None:
        super()._put(rates)
        if self.cycle_momentum:
            height = self._height()
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                set_momentum(group, high - (high - low) * height)

    def state_dict(self) -> dict[str, Any]:
        """The state, without the optimiser; of ``scale_fn``, the attributes of a callable object."""
        function = self._scale_fn_custom
        kept = None if function is None or isinstance(function, FunctionType) else dict(function.__dict__)
        return {**super().state_dict(), "_scale_fn_custom": kept}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict`` of this library or of PyTorch; ``scale_fn`` is unchanged."""
        function = self._scale_fn_custom
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_ref"})
        self._scale_fn_custom = function
        if state_dict.get("_scale_fn_custom") and function is not None:
            function.__dict__.update(state_dict["_scale_fn_custom"])
