"""Averages of a network's weights: stochastic weight averaging (Izmailov et al., 2018) and exponential moving averages.

>>> import neurenix as nx
>>> from neurenix.optim.swa_utils import AveragedModel
>>> model = nx.nn.Linear(1, 1, bias=False)
>>> averaged = AveragedModel(model)
>>> for value in (1.0, 2.0, 6.0):
...     model.weight.data = nx.tensor([[value]])
...     averaged.update_parameters(model)
>>> averaged.module.weight.item()
3.0
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from ..nn.module import Module
from ..nn.normalization import _BatchNorm
from ._cycles import for_groups
from ._schedule import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[list[Tensor], list[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function for ``avg_fn``: ``decay * average + (1 - decay) * current``."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return ema_param * decay + current_param * (1.0 - decay)

    return ema_update


def get_swa_avg_fn() -> Average:
    """A function for ``avg_fn``: the mean of all models."""

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """A function for ``multi_avg_fn``: ``decay * average + (1 - decay) * current``, in place."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: list[Tensor], current_param_list: list[Tensor], _: Any) -> None:
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            # The difference, as PyTorch computes it.
            _store(average, average + (current - average) * (1.0 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Averages:
    """A function for ``multi_avg_fn``: the mean of all models, in place."""
    update = get_swa_avg_fn()

    @no_grad()
    def swa_update(averaged_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Any) -> None:
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            _store(average, update(average, current, num_averaged))

    return swa_update


def _store(average: Tensor, value: Tensor) -> None:
    """Sets a tensor: an average of integers, such as a count of batches, is rounded towards 0."""
    average.copy_(value.to(average.dtype))


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """A copy of a network, whose parameters are averages of those that :meth:`update_parameters` was given; by default
    their mean. ``avg_fn(average, current, count)`` returns a new average of one tensor; ``multi_avg_fn(averages,
    currents, count)`` changes a list of averages in place. Buffers are averaged too with ``use_buffers``, and copied
    without.
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _engine.tensor(0, dtype="int64", device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the averaged network."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Adds the parameters of a model to the averages."""
        own, given = _tensors(self.module, self.use_buffers), _tensors(model, self.use_buffers)
        averages = [each.detach() for each in own]
        currents = [
            value.detach().to(average.device) for average, value in zip(averages, given, strict=True)
        ]
        count = int(self.n_averaged.item())  # pyright: ignore
        if count == 0:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents, strict=True):
                _store(average, self.avg_fn(average, current, self.n_averaged.to(average.device)))  # pyright: ignore
        else:
            # Each call gets tensors of one device and dtype.
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            kinds: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
            for average, current in zip(averages, currents, strict=True):
                group = kinds.setdefault((average.device.name, average.dtype.name), ([], []))
                group[0].append(average)
                group[1].append(current)
            for some_averages, some_currents in kinds.values():
                update(some_averages, some_currents, self.n_averaged.to(some_averages[0].device))  # pyright: ignore
        if not self.use_buffers:
            for buffer, value in zip(self.module.buffers(), model.buffers(), strict=True):
                buffer.detach().copy_(value.detach().to(buffer.device))
        self.n_averaged += 1
        _engine.evaluate([*averages, self.n_averaged])


def _tensors(module: Module, with_buffers: bool) -> list[Tensor]:
    return [*module.parameters(), *(module.buffers() if with_buffers else ())]


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of all batch normalisations: the means over the batches of ``loader``, which
    are tensors, or lists and tuples that begin with one.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return
    momenta, was_training = [layer.momentum for layer in layers], model.training
    try:
        model.train()
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
        for batch in loader:
            inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(inputs if device is None else inputs.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Moves the learning rates to ``swa_lr`` in ``anneal_epochs`` epochs, along half a cosine or a line, and keeps
    them.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = for_groups("SWALR", "swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: float) -> float:
        """The share of the way to ``swa_lr``."""
        part = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return part if self._anneal_strategy == "linear" else (1.0 - math.cos(math.pi * part)) / 2.0

    def next(self, group: int) -> float:
        settings = self.optimizer.param_groups[group]
        now, end = float(settings["lr"]), float(settings["swa_lr"])
        # PyTorch counts steps from the first call, which is the constructor's.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, share = self._share(step - 1), self._share(step)
        start = now if before == 1.0 else (now - before * end) / (1.0 - before)
        return end * share + start * (1.0 - share)
