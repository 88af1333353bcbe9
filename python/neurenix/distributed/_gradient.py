"""Results whose gradients are computed by other means than the rules of the operations that made them."""

from __future__ import annotations

from collections.abc import Callable

from .. import _engine
from .._engine import Tensor


class _Passing:
    """The gradient of a result, on its way to what the result was computed from."""

    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        self.rule = rule
        self.gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient

    def give(self, _: Tensor) -> Tensor:
        gradient, self.gradient = self.gradient, None
        if gradient is None:
            raise RuntimeError("distributed: a backward pass reached a collective's operand, but not its result")
        return self.rule(gradient).unsqueeze(0)


def with_gradient(value: Tensor, source: Tensor, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """``value`` as a result that was computed from ``source``: ``rule`` turns its gradient into that of ``source``, of
    the same shape, dtype and device as ``source``.
    """
    if not (source.requires_grad and _engine.is_grad_enabled()):
        return value
    passing = _Passing(rule)
    view = source.unsqueeze(0)
    # The sum of no elements connects the two; less it, numbers are what they were.
    nothing = view.reshape(-1)[:0].sum().to(value.dtype).to(value.device)
    result = value.detach() - nothing
    result.register_hook(passing.receive)
    view.register_hook(passing.give)
    # Hooks of users come before ours.
    return result.unsqueeze(0).squeeze(0)


def with_hook(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Tensor:
    """The same values, with a hook on this use of them only."""
    if not (tensor.requires_grad and _engine.is_grad_enabled()):
        return tensor
    result = tensor.unsqueeze(0).squeeze(0)
    result.register_hook(hook)
    return result
