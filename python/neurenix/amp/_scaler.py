"""Scaling of losses, so that small gradients do not vanish in float16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _engine
from .._engine import Tensor
from ..optim.optimizer import Optimizer


class GradScaler:
    """Multiplies the loss, divides the gradients, leaves steps out whose gradients are not finite, and adapts.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1.0 or not 0.0 < backoff_factor < 1.0:
            raise ValueError("GradScaler: growth_factor is above 1, backoff_factor between 0 and 1")
        self._scale, self._growth_factor, self._backoff_factor = init_scale, growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker, self._enabled = growth_interval, 0, enabled
        # Of this iteration: whether the gradients of an optimiser, now divided, are finite.
        self._finite: dict[int, bool] = {}
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """A loss, or several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            # Scaled losses of 16 bits would overflow.
            wide = outputs.dtype.name in ("float32", "float64")
            return (outputs if wide else outputs.float()) * self._scale
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients by the scale: before clipping; ``step`` does it otherwise."""
        if not self._enabled:
            return
        if id(optimizer) in self._finite:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update()")
        parameters = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        divided = [each.grad * (1.0 / self._scale) for each in parameters]
        checks = [each.isfinite().all() for each in divided]
        # All are computed before one takes its place: an error leaves every gradient as it was.
        _engine.evaluate([*divided, *checks])
        finite = not checks or bool(_engine.stack(checks).all().item())
        for parameter, gradient in zip(parameters, divided, strict=True):
            parameter.grad = gradient
        self._finite[id(optimizer)] = finite

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """The optimiser's step, unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) in self._stepped:
            raise RuntimeError("step() has already been called on this optimizer since the last update()")
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | None = None) -> None:
        """Adapts the scale after the steps of an iteration."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._finite:
            raise RuntimeError("update() needs a step() or unscale_() before it")
        elif all(self._finite.values()):
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        else:
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        self._finite.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale and settings, by PyTorch's names."""
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval")
        state = {name: getattr(self, f"_{name}") for name in names}
        return {**state, "_growth_tracker": self._growth_tracker} if self._enabled else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Puts back what ``state_dict`` gave."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("the state is empty: it is of a scaler that was not enabled")
        values = {name: state_dict[name] for name in self.state_dict()}
        for name, value in values.items():
            setattr(self, name if name.startswith("_") else f"_{name}", value)
