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
from contextlib import ExitStack
from typing import Any

from .. import _engine
from .._autograd import enable_grad, no_grad
from .._compile import _flatten, _unflatten, _values
from .._engine import Tensor
from ..nn._lent import lent, loans


# What a function may return beside tensors, lists, tuples and dictionaries.
_PLAIN = (type(None), bool, int, float, str)


class _Received:
    """The gradients of a segment's outputs in the backward pass that runs. They come before those of its inputs are
    asked for. The results hold this, and nothing else of the segment."""

    def __init__(self) -> None:
        self.sweep = 0
        self.gradients: dict[int, Tensor] = {}

    def receive(self, output: int, gradient: Tensor) -> None:
        # An earlier pass may not have reached the inputs.
        if self.sweep != _engine.running_sweep():
            self.sweep, self.gradients = _engine.running_sweep(), {}
        self.gradients[output] = gradient

    def take(self) -> dict[int, Tensor]:
        taken, self.gradients = self.gradients, {}
        return taken


class _Segment:
    """A call whose intermediate results are not kept, and the gradients of one backward pass through it."""

    def __init__(self, function: Callable[..., Any], arguments: Any, inputs: list[Tensor]) -> None:
        self.function = function
        # The arguments without their tensors, and the values of these: later changes are not theirs.
        self.arguments = arguments
        self.values = [tensor.detach().clone() for tensor in inputs]
        # What is connected to the inputs that require gradients, as they are now.
        self.attached = [tensor.clone().unsqueeze(0) if tensor.requires_grad else None for tensor in inputs]
        self.autocast = _engine.autocast_dtype()
        self.state: Any = _engine.get_rng_state()
        # Parameters of a sharded network, which its layers have during the first call only.
        self.loans = loans()
        # Other tensors that the function computes from.
        self.others: list[Tensor] = []
        self.received = _Received()
        self.found: list[Tensor | None] = []

    def call(self, tensors: list[Tensor]) -> tuple[Any, list[Tensor]]:
        """The shape of the result and its tensors."""
        args, kwargs = _unflatten(self.arguments, tensors)
        outputs: list[Tensor] = []
        with enable_grad():
            shape = _flatten(self.function(*args, **kwargs), outputs)
        return shape, outputs

    def gradient(self, index: int, _: Tensor) -> Tensor:
        """The gradient of a view of an input, or of another tensor."""
        received = self.received.take()
        if received:
            self.found = [*self.recompute(received)]
        # Each is taken once: nothing may stay here after a backward pass.
        found, self.found[index] = self.found[index], None
        if found is None:
            raise RuntimeError("checkpoint: a backward pass asked twice for a gradient")
        return found.unsqueeze(0)

    def recompute(self, received: dict[int, Tensor]) -> list[Tensor]:
        create_graph = _engine.is_grad_enabled()
        tensors = [
            attached.squeeze(0) if create_graph and attached is not None
            else _after(value, next(iter(received.values())), attached is not None)
            for value, attached in zip(self.values, self.attached)
        ]
        state, autocast = _engine.get_rng_state(), _engine.autocast_dtype()
        if self.state is not None:
            _engine.set_rng_state(self.state)
        _engine.set_autocast_dtype(self.autocast)
        try:
            with ExitStack() as stack:
                for loan in self.loans:
                    stack.enter_context(lent(loan))
                _, outputs = self.call(tensors)
        finally:
            _engine.set_autocast_dtype(autocast)
            if self.state is not None:
                _engine.set_rng_state(state)
        variables = [tensor for tensor, attached in zip(tensors, self.attached) if attached is not None] + self.others
        found: list[Tensor] = []
        for output, gradient in received.items():
            each = _engine.gradients_before_hooks(outputs[output], variables, gradient, create_graph)
            found = [a + b for a, b in zip(found, each)] if found else each
        return found


def _after(value: Tensor, gradient: Tensor, requires_grad: bool) -> Tensor:
    """The same values, but computed from a gradient, so that what is computed from them is not what the forward pass has
    computed, and comes after it."""
    with no_grad():
        copy = value.detach()
        if gradient.numel() > 0 and copy.dtype.name != "bool":
            zero = gradient.reshape(-1)[0].isnan().to("int32").to(copy.device) >> 1
            copy = copy * (1 - zero).to(copy.dtype)
    return copy.requires_grad_() if requires_grad else copy


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Any] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate results are not kept for the backward pass, which calls the
    function again. That takes less memory and more time. The values of the arguments are kept. The results are tensors,
    or lists, tuples and dictionaries of them; tensors that the function leaves elsewhere have no gradient.

    Random numbers are the same in the second call, unless ``preserve_rng_state`` is false; a function that ``nx.compile``
    records must not draw any. ``autocast`` is that of the first call. Parameters must not change before the backward
    pass. ``use_reentrant``, ``determinism_check`` and ``debug`` have no effect, and ``context_fn`` is refused.

    >>> import neurenix as nx
    >>> layer = nx.nn.Linear(2, 2)
    >>> y = checkpoint(lambda x: layer(x).relu(), nx.ones(1, 2))
    >>> y.sum().backward()
    >>> layer.weight.grad is not None
    True
    """
    if not callable(function):
        raise TypeError(f"checkpoint: expected a function, got {type(function).__name__}")
    if context_fn is not None:
        raise ValueError("checkpoint: context_fn is not supported: enter the contexts in the function")
    return _through_segment(function, args, kwargs, preserve_rng_state)


def _through_segment(function: Callable[..., Any], args: Any, kwargs: Any, preserve_rng_state: bool) -> Any:
    if not _engine.is_grad_enabled():
        return function(*args, **kwargs)
    inputs: list[Tensor] = []
    arguments = _flatten((args, kwargs), inputs)
    segment = _Segment(function, arguments, inputs)
    copies = [value.detach().requires_grad_(at is not None) for value, at in zip(segment.values, segment.attached)]
    boundary = _engine.recorded_number(_engine.zeros(()))
    draws = _engine.recorded_draws()
    shape, outputs = segment.call(copies)
    strange = [type(value).__name__ for value in _values(shape) if not isinstance(value, _PLAIN)]
    if strange:
        raise TypeError(
            f"checkpoint: the function returned a {strange[0]}: return tensors, or lists, tuples and dictionaries of them"
        )
    if _engine.recorded_draws() != draws:
        raise RuntimeError("checkpoint: the function draws random numbers, which nx.compile cannot draw again")
    if not preserve_rng_state or segment.state == _engine.get_rng_state():
        segment.state = None
    tracked = [output.requires_grad for output in outputs]
    sources = _engine.release_graphs(outputs, boundary)
    segment.others = [source for source in sources if not any(source.is_same(copy) for copy in copies)]
    # Views whose gradients are what the second call finds.
    views = [tensor.unsqueeze(0) for tensor in [*(x for x in inputs if x.requires_grad), *segment.others]]
    for index, view in enumerate(views):
        view.register_hook(functools.partial(segment.gradient, index))
    # The sum of no elements connects the results with the inputs; less it, numbers are what they were.
    nothing = [view.reshape(-1)[:0].sum().to("float32") for view in views]
    results = []
    for index, output in enumerate(outputs):
        if not tracked[index]:
            results.append(output)
            continue
        result = output.detach()
        for each in nothing:
            result = result - each.to(output.dtype).to(output.device)
        result.register_hook(functools.partial(segment.received.receive, index))
        # Hooks of users come before ours.
        results.append(result.unsqueeze(0).squeeze(0))
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
    torch.Size([4, 1])
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
