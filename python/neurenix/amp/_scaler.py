"""Loss scaling, which keeps small gradients from vanishing in float16."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._effects import NotReady, is_recording, note_change
from .._engine import Tensor
from ..distributed._split import by_groups, groups_of, over_all_parts
from ..optim.optimizer import Optimizer


def has_cuda() -> bool:
    """Whether there is a CUDA device."""
    return any(device.type == "cuda" for device in _engine.devices())


class GradScaler:
    """Scales the loss, unscales the gradients, skips steps whose gradients are not finite, and adapts the scale.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``

    The scale and the decision whether to take a step stay on the device: only ``get_scale`` and ``state_dict`` read
    them. An optimiser with its own ``step`` cannot skip a step on the device; for it, ``step`` reads the decision.
    With the ``device`` ``"cuda"`` on a machine without a CUDA device, scaling is disabled, with a warning.
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
        if enabled and device is not None and str(device).split(":")[0] == "cuda" and not has_cuda():
            warnings.warn("GradScaler: CUDA is not available: it is disabled", UserWarning, stacklevel=2)
            enabled = False
        if growth_factor <= 1.0 or not 0.0 < backoff_factor < 1.0:
            raise ValueError("GradScaler: growth_factor must be greater than 1, and backoff_factor between 0 and 1")
        if not 0.0 < init_scale < 2.0**128:
            raise ValueError(f"GradScaler: init_scale must be positive and finite as float32, got {init_scale}")
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._enabled = growth_interval, enabled
        # The scale stays on the host until the first loss determines the device.
        self._placed = False
        self._scale, self._growth_tracker = _host(init_scale), _host(0, "int32")
        # For this iteration: whether an optimiser's unscaled gradients are finite.
        self._finite: dict[int, Tensor] = {}
        self._stepped: dict[int, bool] = {}

    def scale(self, outputs: Any) -> Any:
        """A loss, or several, multiplied by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if not self._placed:
                if is_recording():
                    raise NotReady
                self._place(outputs.device)
            # Scaled losses of 16 bits would overflow.
            wide = outputs if outputs.dtype.name in ("float32", "float64") else outputs.float()
            return wide * self._scale.to(wide.device, wide.dtype)
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients by the scale. Call it before clipping; otherwise ``step`` does it."""
        if not self._enabled:
            return
        if id(optimizer) in self._finite:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update()")
        note_change(self._finite, self._stepped)
        parameters = [each for group in optimizer._groups for each in group["params"] if each.grad is not None]
        with no_grad():
            factor, divided = 1.0 / self._scale, []
            for gradient in (each.grad for each in parameters):
                wide = gradient.float() if gradient.itemsize < 4 else gradient
                divided.append((wide * factor.to(wide.device, wide.dtype)).to(gradient.dtype))
            finite = _all([each.isfinite().all() for each in divided], self._scale.device)
            for places in by_groups(parameters):
                if groups_of(parameters[places[0]]):
                    # All ranks take the step, or none.
                    finite = over_all_parts(finite.to("uint8"), parameters[places[0]], "min").bool()
            # Compute everything before replacing anything: an error leaves every gradient unchanged.
            _engine.evaluate([*divided, finite])
        for parameter, gradient in zip(parameters, divided, strict=True):
            parameter.grad = gradient
        self._finite[id(optimizer)] = finite

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Calls the optimiser's ``step`` unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or kwargs.get("closure") is not None:
            raise RuntimeError("GradScaler.step: a closure would compute gradients that are not divided by the scale")
        if id(optimizer) in self._stepped:
            raise RuntimeError("step() has already been called on this optimizer since the last update()")
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped[id(optimizer)] = True
        finite = self._finite[id(optimizer)]
        if getattr(optimizer.step, "__func__", None) is not Optimizer.step:
            return optimizer.step(**kwargs) if finite.item() else None
        optimizer._condition = finite
        try:
            return optimizer.step(**kwargs)
        finally:
            optimizer._condition = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale after the steps of an iteration."""
        if not self._enabled:
            return
        with no_grad():
            scale, tracker = self._scale, self._growth_tracker
            if new_scale is not None:
                given = new_scale.detach().float() if isinstance(new_scale, Tensor) else _host(new_scale)
                scale = given.reshape(()).to(scale.device)
            elif not self._finite:
                raise RuntimeError("call step() or unscale_() before update()")
            else:
                finite = _all(list(self._finite.values()), scale.device)
                due = tracker + 1 == self._growth_interval
                grown = scale * self._growth_factor
                kept = _engine.where(due & grown.isfinite(), grown, scale)
                scale = _engine.where(finite, kept, scale * self._backoff_factor)
                tracker = _engine.where(finite & ~due, tracker + 1, tracker * 0)
            _engine.evaluate([scale, tracker])
            self._scale._exchange(scale)
            self._growth_tracker._exchange(tracker)
        self._finite.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale, read from the device."""
        return float(self._scale.item()) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether scaling is enabled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and settings, with PyTorch's names."""
        if not self._enabled:
            return {}
        names = ("growth_factor", "backoff_factor", "growth_interval")
        settings = {name: getattr(self, f"_{name}") for name in names}
        return {"scale": self.get_scale(), **settings, "_growth_tracker": int(self._growth_tracker.item())}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("the state is empty: it comes from a disabled scaler")
        names = ("growth_factor", "backoff_factor", "growth_interval")
        values = {name: state_dict[name] for name in names}
        device = self._scale.device
        scale, tracker = _host(state_dict["scale"]), _host(state_dict["_growth_tracker"], "int32")
        self._scale, self._growth_tracker = scale.to(device), tracker.to(device)
        for name, value in values.items():
            setattr(self, f"_{name}", value)

    def _place(self, device: Any) -> None:
        self._scale, self._growth_tracker = self._scale.to(device), self._growth_tracker.to(device)
        self._placed = True


def _host(value: Any, dtype: str = "float32") -> Tensor:
    return _engine.tensor(value, dtype=dtype, device="cpu")


def _all(conditions: list[Tensor], device: Any) -> Tensor:
    """Whether all conditions hold, computed on this device."""
    return _engine.stack([each.to(device) for each in conditions]).all() if conditions else _engine.tensor(True, device=device)
