"""Hooks on the gradients of a module's arguments and results.

A tensor's hook sees one gradient. These hooks see those of all arguments, or of all results, at once. Each tensor
becomes ``inner = outer + 0 * (all outer tensors)``, computed from none of their elements. So a backward pass reaches
an outer tensor after every inner one: hooks of the inner tensors collect the gradients, and those of the outer ones
replace them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import _engine
from .._engine import Tensor

Gradients = tuple[Tensor | None, ...]


class _Barrier:
    """Tensors whose gradients are seen together, as ``then`` does, which returns what they become."""

    def __init__(self, count: int, then: Callable[[Gradients], Gradients]) -> None:
        self.count, self.then = count, then
        self.sweep = -1
        self.collected: dict[int, Tensor] = {}
        self.replaced: Gradients | None = None

    def pass_through(self, values: Sequence[Any]) -> list[Any]:
        """The values, of which tensors with gradients pass through the barrier."""
        places = [place for place, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
        outer = {place: _same(values[place]) for place in places}
        for place, tensor in outer.items():
            tensor.register_hook(functools.partial(self.replace, place))
        results = list(values)
        for place, tensor in outer.items():
            inner = _same(tensor)
            for other in outer.values():
                if other is not tensor:
                    nothing = other.reshape(-1)[:0].sum().to(inner.dtype).to(inner.device)
                    inner = inner - nothing
            inner.register_hook(functools.partial(self.collect, place))
            results[place] = _same(inner)
        return results

    def collect(self, place: int, gradient: Tensor) -> None:
        # An earlier pass may have ended before it reached the outer tensors.
        if self.sweep != _engine.running_sweep() or self.replaced is not None:
            self.sweep, self.collected, self.replaced = _engine.running_sweep(), {}, None
        self.collected[place] = gradient

    def replace(self, place: int, gradient: Tensor) -> Tensor:
        if self.replaced is None:
            self.replaced = self.then(tuple(self.collected.get(each) for each in range(self.count)))
        replaced = self.replaced[place]
        return gradient if replaced is None else replaced


def _same(tensor: Tensor) -> Tensor:
    """The same values in another place of the graph."""
    return tensor.unsqueeze(0).squeeze(0)


class _Watched:
    """A call of a module whose gradients are watched."""

    def __init__(self, module: Any, args: Any, before: list[Any], after: list[Any]) -> None:
        self.module, self.before, self.after, self.count = module, before, after, len(args)
        self.received: Gradients = ()
        has_gradient = any(isinstance(each, Tensor) and each.requires_grad for each in args)
        self.ends_at_results = not has_gradient and bool(after)

    def at_results(self, gradients: Gradients) -> Gradients:
        for hook in self.before:
            gradients = _changed(hook(self.module, gradients), gradients, "full backward pre-hook")
        self.received = gradients
        if self.ends_at_results:
            for hook in self.after:
                hook(self.module, (None,) * self.count, gradients)
        return gradients

    def at_arguments(self, gradients: Gradients) -> Gradients:
        for hook in self.after:
            gradients = _changed(hook(self.module, gradients, self.received), gradients, "full backward hook")
        return gradients


def _changed(result: Any, before: Gradients, name: str) -> Gradients:
    if result is None:
        return before
    result = result if isinstance(result, tuple) else (result,)
    if len(result) != len(before):
        raise RuntimeError(f"{name}: the hook returned {len(result)} gradients, expected {len(before)}")
    return result


def watched_inputs(module: Any, args: Any, before: list[Any], after: list[Any]) -> tuple[Any, _Watched | None]:
    """The arguments of a call, and what watches it."""
    if not _engine.is_grad_enabled():
        return args, None
    watch = _Watched(module, args, before, after)
    return (tuple(_Barrier(len(args), watch.at_arguments).pass_through(args)) if after else args), watch


def watched_outputs(watch: _Watched, result: Any) -> Any:
    """The result of a call: a tensor, or a tuple, list or dictionary of them."""
    parts = list(result.values()) if isinstance(result, dict) else result
    values = list(parts) if isinstance(parts, (tuple, list)) else [parts]
    values = _Barrier(len(values), watch.at_results).pass_through(values)
    if isinstance(result, dict):
        return dict(zip(result, values, strict=True))
    if isinstance(result, tuple):
        return type(result)(*values) if hasattr(result, "_fields") else tuple(values)
    return values if isinstance(result, list) else values[0]
