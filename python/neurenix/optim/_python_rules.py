"""Optimisers whose steps are computed by operations on tensors, with PyTorch's formulas and state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .. import _effects, _engine
from .._autograd import enable_grad, no_grad
from .._creation import finfo
from .._engine import Tensor
from .optimizer import Optimizer, Params, check_choices, number_dtype

__all__ = ["ASGD", "Adafactor", "Muon", "Rprop", "SparseAdam"]


def refuse_recording(optimizer: Optimizer) -> None:
    """Raises an error in a function that is being compiled: the step decides by numbers that the host reads."""
    if _effects.is_recording():
        name = type(optimizer).__name__
        raise RuntimeError(f"compile: {name}'s step runs in Python: call it after the compiled function, not inside")


class PythonRule(Optimizer):
    """An optimiser that computes a parameter's new value and state from the old ones."""

    def __init__(self, params: Params, choices: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(params, {**settings, **check_choices(self, choices)})

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """The parameter and its state after a step. The state is empty before the first."""
        raise NotImplementedError

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. ``closure`` computes the loss and its gradients first."""
        refuse_recording(self)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        values = self.state
        changes: dict[Tensor, tuple[Tensor, dict[str, Any]]] = {}
        for group in self._groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    gradient = -gradient if group.get("maximize") else gradient
                    # A duplicate continues from the first update.
                    value, state = changes.get(parameter, (parameter.detach(), values.get(parameter, {})))
                    changes[parameter] = self._update(value, gradient, state, group)
        tensors = [each for value, state in changes.values() for each in (value, *state.values()) if isinstance(each, Tensor)]
        _engine.evaluate(tensors)
        # Nothing has changed before this.
        for parameter, (value, state) in changes.items():
            parameter.data = value
            values[parameter] = state
        return loss


def _next_step(state: Mapping[str, Any]) -> float:
    """The number of the step that is taken, from 1."""
    return float(state.get("step", 0.0)) + 1.0


def _number(value: float) -> Tensor:
    """A count or a rate, which PyTorch stores on the host."""
    return _engine.tensor(value, dtype=number_dtype(), device="cpu")


def _mixed(old: Tensor, new: Tensor, share: float) -> Tensor:
    return old + (new - old) * share


def _root_mean_square(x: Tensor) -> float:
    return float(x.norm().item()) / math.sqrt(x.numel())


class ASGD(PythonRule):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992): ``w = (1 - lambd * e) * w - e * g`` with ``e =
    lr / (1 + lambd * lr * t) ** alpha``. The state ``ax`` is the average of the weights since step ``t0``.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.ASGD([w], lr=0.5, lambd=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.0]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        **choices: Any,
    ) -> None:
        _require(lambd >= 0.0, f"Invalid lambd value: {lambd}")
        _require(alpha >= 0.0, f"Invalid alpha value: {alpha}")
        super().__init__(params, choices, lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay)

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        step, rate, decay = _next_step(state), float(group["lr"]), group["lambd"]
        eta, mu = float(state.get("eta", _number(rate))), float(state.get("mu", 1.0))
        if group["weight_decay"] != 0:
            gradient = gradient + parameter * group["weight_decay"]
        value = parameter * (1.0 - decay * eta) - gradient * eta
        average = value if mu == 1.0 else _mixed(state["ax"], value, mu)
        return value, {
            "step": _number(step),
            "eta": _number(rate / (1.0 + decay * rate * step) ** group["alpha"]),
            "mu": _number(1.0 / max(1.0, step - group["t0"])),
            "ax": average.clone(),
        }


class Rprop(PythonRule):
    """Resilient backpropagation (Riedmiller and Braun, 1993): each element's step, at first ``lr``, is multiplied by
    ``etas[1]`` where the gradient keeps its sign, and by ``etas[0]`` where the sign changes, which skips one step
    there. Steps stay within ``step_sizes``.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([1.0])
    >>> optimizer = nx.optim.Rprop([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        **choices: Any,
    ) -> None:
        _require(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, choices, lr=lr, etas=etas, step_sizes=step_sizes)

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        less, more = group["etas"]
        least, most = group["step_sizes"]
        before = state.get("prev", _engine.full_like(gradient, 0))
        size = state.get("step_size", _engine.full_like(gradient, float(group["lr"])))
        sign = gradient * before
        one = _engine.full_like(gradient, 1)
        factor = _engine.where(sign > 0, one * more, _engine.where(sign < 0, one * less, one))
        size = (size * factor).clamp(least, most)
        gradient = _engine.where(sign < 0, _engine.full_like(gradient, 0), gradient)
        value = parameter - gradient.sign() * size
        return value, {"step": _number(_next_step(state)), "prev": gradient, "step_size": size}


class Adafactor(PythonRule):
    """Adam without momentum, whose mean squares of a matrix are kept as those of its rows and columns (Shazeer and
    Stern, 2018). PyTorch's variant: steps are at most ``lr``, relative to the parameter's root mean square, and
    updates have a root mean square of at most ``d``. ``eps`` is a pair: of squares (by default the dtype's precision)
    and of parameters.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter(nx.ones(2, 2))
    >>> optimizer = nx.optim.Adafactor([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w[0, 0].item(), 4)
    0.5
    """

    _choices = ("maximize", "foreach")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        **choices: Any,
    ) -> None:
        _require(beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        _require(eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        _require(eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        _require(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        super().__init__(
            params, choices, lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay
        )

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        step, rate = _next_step(state), float(group["lr"])
        least = group["eps"][0]
        least = finfo(parameter.dtype).eps if least is None else least
        share = step ** group["beta2_decay"]
        scale = max(group["eps"][1], _root_mean_square(parameter)) * min(rate, step**-0.5)
        if group["weight_decay"] != 0:
            parameter = parameter * (1.0 - rate * group["weight_decay"])
        squares = gradient * gradient
        new: dict[str, Any] = {"step": _number(step)}
        if gradient.ndim > 1:
            for name, dim in (("row_var", -1), ("col_var", -2)):
                mean = squares.mean(dim, keepdim=True)
                new[name] = _mixed(state.get(name, _engine.full_like(mean, 0)), mean, share)
            row = new["row_var"]
            estimate = row @ new["col_var"] / row.mean(-2, keepdim=True).clamp(min=least)
        else:
            estimate = new["variance"] = _mixed(state.get("variance", _engine.full_like(squares, 0)), squares, share)
        update = gradient * estimate.clamp(min=least * least).rsqrt()
        return parameter - update * (scale / max(1.0, _root_mean_square(update) / group["d"])), new


class Muon(PythonRule):
    """Momentum whose steps are made orthogonal matrices by ``ns_steps`` iterations of Newton and Schulz in ``bfloat16``
    (Jordan, 2024), for parameters with two dimensions: ``w = w - lr * weight_decay * w - lr * a * step``, with ``a =
    sqrt(max(1, rows / columns))``; or ``a = 0.2 * sqrt(max(rows, columns))`` if ``adjust_lr_fn`` is
    ``"match_rms_adamw"``; or ``a = sqrt(rows / columns)`` if it is ``"spectral_unclamped"``.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter(nx.eye(2))
    >>> optimizer = nx.optim.Muon([w], lr=0.1, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> 0.85 < w[0, 0].item() < 0.95
    True
    """

    _choices = ()

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        _require(momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}")
        _require(ns_steps < 100, f"Number of steps must be less than 100, but is: {ns_steps}")
        _require(len(ns_coefficients) == 3, "Coefficients must be a tuple of exactly 3 values")
        known = (None, "original", "match_rms_adamw", "spectral_unclamped")
        _require(adjust_lr_fn in known, f"Adjust learning rate function {adjust_lr_fn} is not supported")
        settings = {"momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps}
        settings |= {"ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {}, lr=lr, weight_decay=weight_decay, **settings)

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        group = super()._checked(given)
        for parameter in group["params"]:
            _require(parameter.ndim == 2, f"Muon only supports 2D parameters whereas we found a parameter with size: {tuple(parameter.shape)}")
        return group

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        rate, momentum = float(group["lr"]), group["momentum"]
        mean = _mixed(state.get("momentum_buffer", _engine.full_like(gradient, 0)), gradient, 1.0 - momentum)
        update = _mixed(gradient, mean, momentum) if group["nesterov"] else mean
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"]).to(parameter.dtype)
        rows, columns = parameter.shape
        factor = {
            None: math.sqrt(max(1.0, rows / columns)),
            "match_rms_adamw": 0.2 * math.sqrt(max(rows, columns)),
            "spectral_unclamped": math.sqrt(rows / columns),
        }[None if group["adjust_lr_fn"] == "original" else group["adjust_lr_fn"]]
        value = parameter * (1.0 - rate * group["weight_decay"]) - update * (rate * factor)
        return value, {"momentum_buffer": mean}


def _orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, least: float) -> Tensor:
    """A matrix with the singular vectors of this one, and singular values near 1."""
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16().T if is_tall else matrix.bfloat16()
    x = (x / x.norm().clamp(min=least)).bfloat16()
    for _ in range(steps):
        gram = (x @ x.T).float()
        # Sums with products are rounded once, as by PyTorch's ``addmm``.
        polynomial = (gram * b + gram @ gram * c).bfloat16().float()
        x = (x.float() * a + polynomial @ x.float()).bfloat16()
    return x.T if is_tall else x


class SparseAdam(PythonRule):
    """Adam that updates only the rows (along the first dimension) that have a gradient, as for an embedding. The
    engine's gradients are dense: a row of zeros counts as a row without gradient.

    >>> import neurenix as nx
    >>> table = nx.nn.Embedding(3, 2)
    >>> before = table.weight.detach().clone()
    >>> optimizer = nx.optim.SparseAdam(table.parameters(), lr=0.1)
    >>> table(nx.tensor([1])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(1).tolist()
    [False, True, False]
    """

    _choices = ("maximize",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        _require(lr > 0.0, f"Invalid learning rate: {lr}")
        _require(eps > 0.0, f"Invalid epsilon value: {eps}")
        for number, beta in enumerate(betas):
            _require(0.0 <= beta < 1.0, f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, {"maximize": maximize}, lr=lr, betas=betas, eps=eps)

    def _update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        step, (first, second) = _next_step(state), group["betas"]
        has_gradient = gradient != 0
        if gradient.ndim > 1:
            has_gradient = has_gradient.any(tuple(range(1, gradient.ndim)), keepdim=True)
        new: dict[str, Any] = {"step": step if not isinstance(state.get("step"), Tensor) else _number(step)}
        for name, value, beta in (("exp_avg", gradient, first), ("exp_avg_sq", gradient * gradient, second)):
            old = state.get(name, _engine.full_like(gradient, 0))
            new[name] = _engine.where(has_gradient, _mixed(old, value, 1.0 - beta), old)
        rate = float(group["lr"]) * math.sqrt(1.0 - second**step) / (1.0 - first**step)
        update = new["exp_avg"] / (new["exp_avg_sq"].sqrt() + group["eps"]) * rate
        return _engine.where(has_gradient, parameter - update, parameter), new


def _require(is_valid: bool, message: str) -> None:
    if not is_valid:
        raise ValueError(message)
