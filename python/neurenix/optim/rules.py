"""The optimisers, with PyTorch's signatures and formulas.

``maximize`` negates the gradients. ``foreach``, ``fused`` and ``capturable`` are accepted and have no effect: the
engine always fuses the updates of all parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from .. import _effects, _engine
from .._autograd import no_grad
from .._engine import Tensor
from .optimizer import Optimizer, Params, check_choices

# The engine's names of PyTorch's settings, where they differ.
_ENGINE = {"eps": "epsilon", "lr_decay": "learning_rate_decay"}
# PyTorch's words for what it refuses itself; the engine refuses the rest.
_INVALID = {
    **{name: f"{name} value" for name in ("alpha", "epsilon", "momentum", "momentum_decay", "rho")},
    "beta1": "beta parameter at index 0",
    "beta2": "beta parameter at index 1",
    "learning_rate_decay": "lr_decay value",
}
_BELOW_1 = ("beta1", "beta2", "rho")
# The engine's names of the settings of a rule.
_settings = cache(_engine.optimizer_settings)


class _Rule(Optimizer):
    """An optimiser whose rule the engine has: its settings are those of the engine's table."""

    def __init__(self, params: Params, choices: Mapping[str, Any], **settings: Any) -> None:
        settings.update(check_choices(self, choices))
        for name, value in self._values(settings).items():
            if name in _INVALID and not (value >= 0.0 and (name not in _BELOW_1 or value < 1.0)):
                raise ValueError(f"Invalid {_INVALID[name]}: {value}")
        super().__init__(params, settings)

    def _values(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """A group's settings with the engine's names."""
        values = {_ENGINE.get(name, name): value for name, value in group.items()}
        if "betas" in group:
            values["beta1"], values["beta2"] = group["betas"]
        return {name: values[name] for name in _settings(self._rule)}

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(value) for name, value in self._values(group).items()}


class _Decoupled(_Rule):
    """A rule whose weight decay may be applied to the parameters themselves: ``w = w - lr * weight_decay * w``."""

    def _is_decoupled(self, group: Mapping[str, Any]) -> bool:
        return bool(group.get("decoupled_weight_decay"))

    def _decays(self) -> list[tuple[dict[str, Any], float]]:
        """The groups with decoupled weight decay, and what is left of their parameters."""
        groups = [group for group in self._groups if self._is_decoupled(group) and group["weight_decay"]]
        # A recording depends on these numbers.
        _effects.note_read(lambda: [(group["lr"], group["weight_decay"]) for group in groups], "lr")
        return [(group, 1.0 - float(group["lr"]) * float(group["weight_decay"])) for group in groups]

    def _stepping(self) -> tuple[_engine.Optimizer, list[tuple[float, float]]]:
        native, rates = super()._stepping()
        is_decoupled = [self._is_decoupled(group) for group in self._groups]
        return native, [(rate, 0.0 if apart else decay) for (rate, decay), apart in zip(rates, is_decoupled, strict=True)]

    def _take(self, native: _engine.Optimizer, rates: list[tuple[float, float]]) -> None:
        before: list[tuple[Tensor, Tensor]] = []
        try:
            for group, left in self._decays():
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        value = parameter.detach().clone()
                        before.append((parameter, value))
                        factor: Any = left
                        if self._condition is not None:
                            kept = _engine.full_like(self._condition, 1.0, dtype=value.dtype)
                            factor = _engine.where(self._condition, kept * left, kept).to(value.device)
                        with no_grad():
                            parameter.mul_(factor)
            super()._take(native, rates)
        except BaseException:
            for parameter, value in before:
                parameter.data = value
            raise


class SGD(_Rule):
    """Stochastic gradient descent: ``w = w - lr * g``, or with ``momentum`` ``v = momentum * v + (1 - dampening) * g; w =
    w - lr * v``; with ``nesterov`` the step is ``lr * (g + momentum * v)``. ``weight_decay * w`` is added to the gradient
    first.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.SGD([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.0]
    """

    _rule = "SGD"
    _choices = ("maximize", "foreach", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **choices: Any,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        settings = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        super().__init__(params, choices, lr=lr, weight_decay=weight_decay, **settings)


class Adam(_Decoupled):
    """Adaptive moments (Kingma and Ba, 2015): ``m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g * g``, both
    bias-corrected: divided by ``1 - b1 ** t`` and ``1 - b2 ** t``; then ``w = w - lr * m / (sqrt(v) + eps)``.
    ``weight_decay * w`` is added to the gradient first, or with ``decoupled_weight_decay``, weights decay as in AdamW.
    ``amsgrad`` uses the greatest ``v`` so far.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Adam([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    _rule = "Adam"
    _choices = ("maximize", "foreach", "capturable", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        decoupled_weight_decay: bool = False,
        **choices: Any,
    ) -> None:
        settings = {"amsgrad": amsgrad, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, choices, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **settings)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): ``w = w - lr * weight_decay * w``, then the step
    of :class:`Adam`.
    """

    _rule = "AdamW"

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **choices: Any,
    ) -> None:
        if "decoupled_weight_decay" in choices:
            raise TypeError("AdamW() got an unexpected keyword argument 'decoupled_weight_decay'")
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True, **choices)

    def _is_decoupled(self, group: Mapping[str, Any]) -> bool:
        # The engine's rule decays the weights.
        return False


class NAdam(_Decoupled):
    """Adam with Nesterov momentum (Dozat, 2016). With ``decoupled_weight_decay``, weights decay as in AdamW."""

    _rule = "NAdam"

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **choices: Any,
    ) -> None:
        settings = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, choices, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **settings)


class RAdam(_Decoupled):
    """Adam with a rectified variance (Liu et al., 2020). With ``decoupled_weight_decay``, weights decay as in AdamW."""

    _rule = "RAdam"

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **choices: Any,
    ) -> None:
        settings = {"weight_decay": weight_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, choices, lr=lr, betas=betas, eps=eps, **settings)


class Adamax(_Rule):
    """Adam with the greatest gradient instead of the mean square (Kingma and Ba, 2015): ``u = max(b2 * u, |g| + eps); w
    = w - lr / (1 - b1 ** t) * m / u``.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Adamax([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    _rule = "Adamax"

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **choices: Any,
    ) -> None:
        super().__init__(params, choices, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


class RMSprop(_Rule):
    """Divides by the root of the mean of squared gradients (Hinton, 2012): ``v = alpha * v + (1 - alpha) * g * g; w = w -
    lr * g / (sqrt(v) + eps)``, with ``momentum`` over these steps; ``centered`` subtracts the square of the mean
    gradient.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.RMSprop([w], lr=0.01)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.9
    """

    _rule = "RMSprop"

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **choices: Any,
    ) -> None:
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, choices, **settings, momentum=momentum, centered=centered)


class Adagrad(_Rule):
    """Divides by the root of the sum of squared gradients (Duchi et al., 2011): ``s = s + g * g; w = w - lr / (1 + (t -
    1) * lr_decay) * g / (sqrt(s) + eps)``.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Adagrad([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    _rule = "Adagrad"
    _choices = ("maximize", "foreach", "differentiable", "fused")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **choices: Any,
    ) -> None:
        if not initial_accumulator_value >= 0.0:
            raise ValueError(f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        settings = {"eps": eps, "initial_accumulator_value": initial_accumulator_value}
        super().__init__(params, choices, lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, **settings)

    def _built(self, groups: list[dict[str, Any]], state: Mapping[int, Mapping[str, Any]]) -> Any:
        sums = [(parameter, group["initial_accumulator_value"]) for group in groups for parameter in group["params"]]
        with no_grad():
            first = {
                place: {"step": 0.0, "sum": _engine.full_like(parameter, value)}
                for place, (parameter, value) in enumerate(sums)
                if value != 0.0 and place not in state
            }
        return super()._built(groups, {**first, **state})

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Adds parameters with their own settings."""
        super().add_param_group(param_group)
        if self._groups[-1]["initial_accumulator_value"] != 0.0:
            self._native = self._built(self._groups, self._state())


class Adadelta(_Rule):
    """Steps in the parameter's own units (Zeiler, 2012): ``v = rho * v + (1 - rho) * g * g; d = sqrt(u + eps) / sqrt(v +
    eps) * g; u = rho * u + (1 - rho) * d * d; w = w - lr * d``."""

    _rule = "Adadelta"

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **choices: Any,
    ) -> None:
        super().__init__(params, choices, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay)


class Lion(_Rule):
    """The sign of an interpolated momentum (Chen et al., 2023): ``w = w - lr * (sign(b1 * m + (1 - b1) * g) +
    weight_decay * w); m = b2 * m + (1 - b2) * g``. PyTorch does not have this rule.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Lion([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    _rule = "Lion"
    _choices = ()

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {}, lr=lr, betas=betas, weight_decay=weight_decay)
