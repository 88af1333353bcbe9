"""Gradient checkpointing: a part of a network keeps its inputs only, and computes what its gradient needs again.

>>> import neurenix as nx
>>> from neurenix.utils.checkpoint import checkpoint
>>> x = nx.Tensor([1.0, 2.0]).requires_grad_()
>>> checkpoint(lambda x: (x * x).exp(), x).sum().backward()
>>> [round(gradient, 2) for gradient in x.grad.tolist()]
[5.44, 218.39]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import _engine
from .._autograd import enable_grad, no_grad
from .._compile import _flatten, _unflatten
from .._engine import Tensor


_NOTHING = _engine.zeros(())


class _Segment:
    """A call whose intermediate results are not kept, and the gradients of one backward pass through it."""

    def __init__(self, function: Callable[..., Any], arguments: Any, inputs: list[Tensor], preserve: bool) -> None:
        self.function = function
        # The arguments without their tensors, and these.
        self.arguments = arguments
        self.inputs = inputs
        self.autocast = _engine.autocast_dtype()
        self.state = _engine.get_rng_state() if preserve else None
        self.parameters: list[Tensor] = []
        self.received: dict[int, Tensor] = {}
        self.found: list[Tensor] = []

    def call(self, tensors: list[Tensor]) -> tuple[Any, list[Tensor]]:
        """The shape of the result and its tensors."""
        args, kwargs = _unflatten(self.arguments, tensors)
        outputs: list[Tensor] = []
        with enable_grad():
            shape = _flatten(self.function(*args, **kwargs), outputs)
        return shape, outputs

    def receive(self, output: int, gradient: Tensor) -> None:
        """Notes the gradient of an output. They come before the gradients of inputs are asked for."""
        self.received[output] = gradient

    def gradient(self, index: int, _: Tensor) -> Tensor:
        """The gradient of a view of an input or parameter."""
        if _engine.is_grad_enabled():
            raise RuntimeError("checkpoint: it has no gradients of gradients: call the function itself")
        if self.received:
            self.found = self.recompute()
            self.received = {}
        # Each is taken once: nothing may stay here after a backward pass.
        found, self.found[index] = self.found[index], _NOTHING
        return found.unsqueeze(0)

    def recompute(self) -> list[Tensor]:
        tensors = [_after(tensor, next(iter(self.received.values()))) for tensor in self.inputs]
        state, autocast = _engine.get_rng_state(), _engine.autocast_dtype()
        # A function that is recorded draws when it is replayed. That it sets the state tells that it cannot be.
        drawn = self.state if self.state != state or _engine.is_recording() else None
        if drawn is not None:
            _engine.set_rng_state(drawn)
        _engine.set_autocast_dtype(self.autocast)
        try:
            _, outputs = self.call(tensors)
        finally:
            _engine.set_autocast_dtype(autocast)
            if drawn is not None:
                _engine.set_rng_state(state)
        variables = [tensor for tensor in tensors if tensor.requires_grad] + self.parameters
        pairs = [(outputs[output], gradient) for output, gradient in self.received.items()]
        if len(pairs) == 1:
            return _engine.gradients(pairs[0][0], variables, pairs[0][1])
        with enable_grad():
            total = functools.reduce(lambda a, b: a + b, [(output * gradient).sum() for output, gradient in pairs])
        return _engine.gradients(total, variables)


def _after(tensor: Tensor, gradient: Tensor) -> Tensor:
    """The same tensor, but computed from a gradient, so that what is computed from it is not what the forward pass has
    computed, and comes after it."""
    with no_grad():
        copy = tensor.detach()
        if gradient.numel() > 0 and copy.dtype.name != "bool":
            zero = gradient.reshape(-1)[0].isnan().to("int32") >> 1
            copy = copy * (1 - zero).to(copy.dtype)
    return copy.requires_grad_() if tensor.requires_grad else copy


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate results are not kept for the backward pass, which calls the
    function again. That takes less memory and more time. The arguments are kept, and the results are tensors, or lists,
    tuples and dictionaries of them.

    Random numbers are the same in the second call, unless ``preserve_rng_state`` is false. ``nx.compile`` records a
    step with checkpoints only if it is false, for functions that draw none. ``autocast`` is that of the first call.
    Parameters must not change before the backward pass. Gradients of gradients are an error. ``use_reentrant`` is
    accepted and has no effect.

    >>> import neurenix as nx
    >>> layer = nx.nn.Linear(2, 2)
    >>> y = checkpoint(lambda x: layer(x).relu(), nx.ones(1, 2))
    >>> y.sum().backward()
    >>> layer.weight.grad is not None
    True
    """
    if not _engine.is_grad_enabled():
        return function(*args, **kwargs)
    inputs: list[Tensor] = []
    arguments = _flatten((args, kwargs), inputs)
    segment = _Segment(function, arguments, inputs, preserve_rng_state)
    copies = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in inputs]
    shape, outputs = segment.call(copies)
    if segment.state == _engine.get_rng_state() and not _engine.is_recording():
        segment.state = None
    differentiable = [tensor for tensor in inputs if tensor.requires_grad]
    tracked = [output.requires_grad for output in outputs]
    leaves = _engine.release_graphs(outputs)
    segment.parameters = [leaf for leaf in leaves if not any(leaf.is_same(copy) for copy in copies)]
    # The gradient of such a view is what the second call finds.
    views = [tensor.unsqueeze(0) for tensor in [*differentiable, *segment.parameters]]
    for index, view in enumerate(views):
        view.register_hook(functools.partial(segment.gradient, index))
    # The sum of no elements connects the results with the inputs, and adds nothing.
    nothing = [view.reshape(-1)[:0].sum().to("float32") for view in views]
    results = []
    for index, output in enumerate(outputs):
        if not tracked[index]:
            results.append(output)
            continue
        result = output.detach() + functools.reduce(lambda a, b: a + b, nothing).to(output.dtype)
        result.register_hook(functools.partial(segment.receive, index))
        results.append(result)
    return _unflatten(shape, results)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Calls the functions of a sequence (``nn.Sequential``) one after another, with a checkpoint for each of so many
    segments but the last.

    >>> import neurenix as nx
    >>> model = nx.nn.Sequential(nx.nn.Linear(2, 3), nx.nn.ReLU(), nx.nn.Linear(3, 1))
    >>> checkpoint_sequential(model, 2, nx.ones(4, 2)).shape
    (4, 1)
    """
    layers: Sequence[Callable[..., Any]] = list(functions)
    if not 1 <= segments <= max(1, len(layers)):
        raise ValueError(f"checkpoint_sequential: segments is {segments}, it must be from 1 to {max(1, len(layers))}")

    def run(start: int, end: int, value: Any) -> Any:
        return functools.reduce(lambda value, layer: layer(value), layers[start:end], value)

    size = len(layers) // segments
    for segment in range(segments - 1):
        part = functools.partial(run, segment * size, (segment + 1) * size)
        input = checkpoint(part, input, use_reentrant=use_reentrant, **kwargs)
    return run((segments - 1) * size, len(layers), input)


__all__ = ["checkpoint", "checkpoint_sequential"]
