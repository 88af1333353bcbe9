"""L-BFGS: a quasi-Newton method, which evaluates the loss several times in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _engine
from .._autograd import enable_grad, no_grad
from .._engine import Tensor
from ._line_search import Point, strong_wolfe
from ._python_rules import refuse_recording
from .optimizer import Optimizer, Params

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Follows directions that estimate the inverse Hessian from the last ``history_size`` steps (Liu and Nocedal, 1989;
    Nocedal and Wright, Numerical Optimization, algorithm 7.4).

    ``step(closure)`` iterates up to ``max_iter`` times. ``closure`` clears the gradients, computes the loss, calls
    ``backward`` and returns the loss. It is called at most ``max_eval`` times (by default ``max_iter * 5 // 4``). Steps
    have the length ``lr``, or satisfy the strong Wolfe conditions if ``line_search_fn`` is ``"strong_wolfe"``. A step
    ends when no element of the gradient exceeds ``tolerance_grad``, or when neither the parameters nor the loss
    change by more than ``tolerance_change``. All parameters are in one group, on one device, with one dtype.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([3.0, -2.0])
    >>> optimizer = nx.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - nx.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> round(optimizer.step(closure).item(), 4)
    20.0
    >>> [round(value, 4) for value in w.tolist()]
    [1.0, 2.0]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        settings: dict[str, Any] = {"lr": lr, "max_iter": max_iter}
        settings["max_eval"] = max_iter * 5 // 4 if max_eval is None else max_eval
        settings |= {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        settings |= {"history_size": history_size, "line_search_fn": line_search_fn, "maximize": maximize}
        super().__init__(params, settings)
        if len(self._groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros for parameters that have none."""
        group = self._groups[0]
        parts = [_engine.full_like(p, 0) if p.grad is None else p.grad for p in group["params"]]
        flat = _engine.cat([part.detach().reshape(-1) for part in parts])
        return -flat if group["maximize"] else flat

    def _move(self, places: list[Tensor], length: float, direction: Tensor) -> None:
        """Sets the parameters to a point at a distance from these values."""
        start = 0
        for parameter, place in zip(self._groups[0]["params"], places, strict=True):
            part = direction.narrow(0, start, place.numel()).reshape(place.shape)
            parameter.data = place + part * length
            start += place.numel()

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[float, Tensor]:
        with enable_grad():
            loss = float(closure())
        return (-loss if self._groups[0]["maximize"] else loss), self._gradient()

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimises the loss that ``closure`` computes, and returns its first value."""
        refuse_recording(self)
        if closure is None:
            raise TypeError("LBFGS.step: pass a closure, which computes the loss and its gradients")
        group = self._groups[0]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        if not group["params"]:
            return closure()
        rate, tolerance = float(group["lr"]), group["tolerance_change"]
        state = self.state[group["params"][0]]
        with enable_grad():
            first_loss = closure()
        loss = -float(first_loss) if group["maximize"] else float(first_loss)
        gradient, evaluations = self._gradient(), 1
        state["func_evals"], state["n_iter"] = state.get("func_evals", 0) + 1, state.get("n_iter", 0)
        greatest = _greatest(gradient)
        if greatest <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = _direction(state, gradient, group["history_size"])
            state["d"], state["prev_flat_grad"], state["prev_loss"] = direction, gradient, loss
            length = rate if state["n_iter"] > 1 else min(1.0, 1.0 / float(gradient.abs().sum().item())) * rate
            state["t"] = length
            slope = float(gradient.dot(direction).item())
            if slope > -tolerance:
                break
            places = [parameter.detach().clone() for parameter in group["params"]]
            used = 0
            if search is not None:

                def at(length: float, places: list[Tensor] = places, direction: Tensor = direction) -> Point:
                    self._move(places, length, direction)
                    value, found = self._evaluate(closure)
                    return Point(length, value, found, float(found.dot(direction).item()))

                start = Point(0.0, loss, gradient, slope)
                point, used = strong_wolfe(
                    at, start, length, _greatest(direction), limit=group["max_eval"] - evaluations
                )
                loss, gradient, length = point.loss, point.gradient, point.length
                state["t"] = length
                self._move(places, length, direction)
            else:
                self._move(places, length, direction)
                if iteration != group["max_iter"]:
                    loss, gradient = self._evaluate(closure)
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if iteration == group["max_iter"] or evaluations >= group["max_eval"]:
                break
            if _greatest(gradient) <= group["tolerance_grad"] or abs(loss - state["prev_loss"]) < tolerance:
                break
            if _greatest(direction) * abs(length) <= tolerance:
                break
        _engine.evaluate([*group["params"], *_tensors(state)])
        return first_loss


def _greatest(vector: Tensor) -> float:
    return float(vector.abs().max().item()) if vector.numel() else 0.0


def _tensors(state: dict[str, Any]) -> list[Tensor]:
    values = [each for value in state.values() for each in (value if isinstance(value, list) else [value])]
    return [each for each in values if isinstance(each, Tensor)]


def _direction(state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
    """The next direction: minus the gradient at first, then by the two-loop recursion over earlier steps."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return -gradient
    change, step = gradient - state["prev_flat_grad"], state["d"] * float(state["t"])
    changes, steps, inverses = (list(state[name]) for name in ("old_dirs", "old_stps", "ro"))
    curvature = change.dot(step)
    if float(curvature.item()) > 1e-10:
        kept = slice(1, None) if len(changes) == history_size else slice(None)
        changes, steps, inverses = (
            [*each[kept], new]
            for each, new in ((changes, change), (steps, step), (inverses, 1.0 / curvature))
        )
        state.update(old_dirs=changes, old_stps=steps, ro=inverses, H_diag=curvature / change.dot(change))
    direction, factors = -gradient, []
    for old_change, old_step, inverse in reversed([*zip(changes, steps, inverses, strict=True)]):
        factors.append(old_step.dot(direction) * inverse)
        direction = direction - old_change * factors[-1]
    direction = direction * state["H_diag"]
    for old_change, old_step, inverse, factor in zip(changes, steps, inverses, reversed(factors), strict=True):
        direction = direction + old_step * (factor - old_change.dot(direction) * inverse)
    return direction
