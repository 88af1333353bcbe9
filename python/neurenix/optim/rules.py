"""The optimisers, with PyTorch's signatures and formulas.

``foreach``, ``fused`` and ``capturable`` are accepted and have no effect: the engine always fuses the updates of all
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .optimizer import Optimizer, Params, check_choices


def _at_least_zero(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {name} value: {value}")


def _check_betas(betas: tuple[float, float]) -> None:
    for number, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {number}: {beta}")


def _not_decoupled(kind: str, decoupled: bool) -> None:
    if decoupled:
        raise NotImplementedError(f"{kind}: decoupled_weight_decay=True is not supported; use AdamW")


class SGD(Optimizer):
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
        check_choices("SGD", choices)
        _at_least_zero(momentum=momentum)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        settings = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **settings})

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(group[name]) for name in ("momentum", "dampening", "nesterov")}


class _Adaptive(Optimizer):
    _named: tuple[str, ...] = ("eps",)

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        if group.get("decoupled_weight_decay") and self._rule != "AdamW":
            raise ValueError(f"{self._rule}: decoupled_weight_decay=True is not supported; use AdamW")
        beta1, beta2 = group["betas"]
        return {"beta1": float(beta1), "beta2": float(beta2), **{name: float(group[name]) for name in self._named}}


class Adam(_Adaptive):
    """Adaptive moments (Kingma and Ba, 2015): ``m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g * g``, both
    bias-corrected: divided by ``1 - b1 ** t`` and ``1 - b2 ** t``; then ``w = w - lr * m / (sqrt(v) + eps)``.
    ``weight_decay * w`` is added to the gradient first. ``amsgrad`` uses the greatest ``v`` so far.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Adam([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    _rule, _named = "Adam", ("eps", "amsgrad")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **choices: Any,
    ) -> None:
        check_choices(type(self).__name__, choices)
        _check_betas(betas)
        _at_least_zero(epsilon=eps)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, settings)


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
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **choices)


class NAdam(_Adaptive):
    """Adam with Nesterov momentum (Dozat, 2016)."""

    _rule, _named = "NAdam", ("eps", "momentum_decay")

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
        check_choices("NAdam", choices)
        _not_decoupled("NAdam", decoupled_weight_decay)
        _check_betas(betas)
        _at_least_zero(epsilon=eps, momentum_decay=momentum_decay)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "momentum_decay": momentum_decay})


class RAdam(_Adaptive):
    """Adam with a rectified variance (Liu et al., 2020)."""

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
        check_choices("RAdam", choices)
        _not_decoupled("RAdam", decoupled_weight_decay)
        _check_betas(betas)
        _at_least_zero(epsilon=eps)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})


class Adamax(_Adaptive):
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
        check_choices("Adamax", choices)
        _check_betas(betas)
        _at_least_zero(epsilon=eps)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})


class RMSprop(Optimizer):
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
        check_choices("RMSprop", choices)
        _at_least_zero(epsilon=eps, momentum=momentum, alpha=alpha)
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "momentum": momentum, "centered": centered})

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(group[name]) for name in ("alpha", "eps", "momentum", "centered")}


class Adagrad(Optimizer):
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
        check_choices("Adagrad", choices)
        _at_least_zero(lr_decay=lr_decay, epsilon=eps)
        if initial_accumulator_value != 0.0:
            raise NotImplementedError("Adagrad: initial_accumulator_value must be 0; other values are not supported")
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay})

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(group[name]) for name in ("lr_decay", "eps")}


class Adadelta(Optimizer):
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
        check_choices("Adadelta", choices)
        if not 0.0 <= rho < 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        _at_least_zero(epsilon=eps)
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _options(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(group[name]) for name in ("rho", "eps")}


class Lion(_Adaptive):
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

    _rule, _named = "Lion", ()

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        _check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
