"""Functions with gradients of the user's own."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._autograd import enable_grad, no_grad
from .._engine import Tensor
from . import graph

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]


def _snapshot(tensor: Tensor) -> Tensor:
    """The tensor's value now, connected with its graph."""
    with enable_grad():
        return tensor.reshape(tensor.shape)


class FunctionCtx:
    """What ``forward`` leaves for ``backward``: the argument ``ctx`` of both. Other attributes can be set freely."""

    needs_input_grad: tuple[bool, ...] = ()
    """Whether the gradient of each argument of ``forward`` is needed."""

    def __init__(self) -> None:
        self._saved: list[Any] = []
        # The places of saved tensors, and their versions then.
        self._versions: list[tuple[Tensor, int]] = []
        self._saved_forward: tuple[Tensor | None, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materializes = True
        # Weak: the graph holds the link, which holds this.
        self._link: Callable[[], _Link | None] = lambda: None
        self._to_save: tuple[Tensor | None, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves arguments, results and other tensors (or ``None``) for ``saved_tensors``. A later in-place change of one is
        an error there."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(f"save_for_backward: expected tensors or None, got {type(tensor).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves tensors for ``jvp``, which then finds them in ``saved_tensors`` if nothing was saved for ``backward``."""
        self._saved_forward = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` saved. A tensor that was changed in place since then is a ``RuntimeError``."""
        for place, version in self._versions:
            if place._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: a saved "
                    f"tensor of shape {tuple(place.shape)} is at version {place._version}, but version {version} was saved"
                )
        return tuple(self._opened(each) for each in self._saved) or self._saved_forward

    def mark_dirty(self, *args: Tensor) -> None:
        """Declares arguments that ``forward`` changed in place. It must return them."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Declares results that have no gradient."""
        self._constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Sets whether ``backward`` gets zeros (the default) or ``None`` for results whose gradient is not needed."""
        self._materializes = value

    def _opened(self, saved: Any) -> Any:
        kind, value = saved
        if kind == "result":
            index, output = value
            link = self._link()
            return output if link is None else link.result(index)
        if kind == "packed":
            packed, unpack = value
            return unpack(packed)
        return value

    def _save(self, args: list[Any], results: list[Any], link: _Link | None) -> None:
        """Notes what each saved tensor is, so that gradients can flow through it."""
        if link is not None:
            self._link = weakref.ref(link)
        saved, self._to_save = self._to_save, ()
        for tensor in saved:
            position = next((at for at, arg in enumerate(args) if arg is tensor), None)
            made = next((at for at, result in enumerate(results) if result is tensor), None)
            if tensor is not None and not graph.current.hooks:
                self._versions.append((tensor.detach(), tensor._version))
            if tensor is None:
                self._saved.append(("value", None))
            elif graph.current.hooks:
                pack, unpack = graph.current.hooks[-1]
                self._saved.append(("packed", (pack(tensor.detach()), unpack)))
            elif made is not None and link is not None and made in link.tracked:
                self._saved.append(("result", (made, link.outputs[made])))
            elif position is not None and link is not None and link.snapshots[position] is not None:
                self._saved.append(("value", link.snapshots[position]))
            else:
                self._saved.append(("value", tensor.detach().reshape(tensor.shape)))


class _Received:
    """The gradients of a call's results in the backward pass that runs. The results hold this, and nothing else of the
    call."""

    def __init__(self) -> None:
        self.sweep = 0
        self.gradients: dict[int, Tensor] = {}

    def receive(self, result: int, gradient: Tensor) -> None:
        # An earlier pass may not have reached the arguments.
        if self.sweep != _engine.running_sweep():
            self.sweep, self.gradients = _engine.running_sweep(), {}
        self.gradients[result] = gradient

    def take(self) -> dict[int, Tensor]:
        taken, self.gradients = self.gradients, {}
        return taken


class _Link:
    """Connects the results of a call with its arguments: the sum of no elements of an argument is subtracted from each
    result, and hooks put the gradients that ``backward`` finds in the place of those."""

    def __init__(self, function: type[Function], ctx: FunctionCtx, args: list[Any]) -> None:
        self.function, self.ctx = function, ctx
        # Values and graphs of the arguments that require gradients, before anything changes in place.
        self.snapshots = [
            _snapshot(arg) if isinstance(arg, Tensor) and needed else None for arg, needed in zip(args, ctx.needs_input_grad)
        ]
        self.count = len(args)
        self.outputs: list[Any] = []
        self.tracked: set[int] = set()

    def connect(self) -> list[Any]:
        """The results, connected with the arguments."""
        received = _Received()
        found: dict[int, Any] = {}
        views: list[Tensor] = []

        def gradient(position: int, _: Tensor) -> Any:
            taken = received.take()
            if taken:
                found.clear()
                found.update(self.gradients(taken))
            each = found.pop(position, None)
            return NotImplemented if each is None else each.unsqueeze(0)

        with enable_grad():
            for position, snapshot in enumerate(self.snapshots):
                if snapshot is not None:
                    view = snapshot.unsqueeze(0)
                    view.register_hook(functools.partial(gradient, position))
                    views.append(view)
            nothing = [view.reshape(-1)[:0].sum().to("float32") for view in views]
            results: list[Any] = []
            for index, output in enumerate(self.outputs):
                if index in self.tracked:
                    result = output
                    for each in nothing:
                        result = result - each.to(output.dtype).to(output.device)
                    result.register_hook(functools.partial(received.receive, index))
                    # Hooks of users come before ours.
                    output = result.unsqueeze(0).squeeze(0)
                results.append(output)
        return results

    def result(self, index: int) -> Tensor:
        """A result for ``backward``, connected with the arguments if gradients are recorded."""
        return self.connect()[index] if _engine.is_grad_enabled() else self.outputs[index]

    def gradients(self, received: dict[int, Tensor]) -> dict[int, Tensor]:
        """The gradients of arguments by position, from those of results."""
        given: list[Tensor | None] = []
        for index, output in enumerate(self.outputs):
            gradient = received.get(index)
            if gradient is None and self.ctx._materializes and isinstance(output, Tensor):
                gradient = _engine.full_like(output, 0)
            given.append(gradient)
        own = self.function
        backward = own.vjp if own.backward is Function.backward else own.backward
        found = backward(self.ctx, *given)
        if not isinstance(found, (tuple, list)):
            found = (found,)
        name = f"{self.function.__name__}.backward"
        extra = found[self.count :]
        if len(found) < self.count or any(each is not None for each in extra):
            raise RuntimeError(f"{name}: returned {len(found)} gradients, expected {self.count}")
        gradients = {}
        for position, (each, snapshot) in enumerate(zip(found, self.snapshots)):
            if each is not None and snapshot is not None:
                gradients[position] = _fitting(each, snapshot, name, position)
        return gradients


def _fitting(gradient: Any, argument: Tensor, name: str, position: int) -> Tensor:
    """A gradient with the shape, dtype and device of its argument; axes that were broadcast are summed."""
    if not isinstance(gradient, Tensor):
        kind = type(gradient).__name__
        raise TypeError(f"{name}: expected a tensor or None as the gradient of argument {position}, got {kind}")
    wanted, given = tuple(argument.shape), tuple(gradient.shape)
    if wanted != given:
        leading = len(given) - len(wanted)
        if leading < 0 or any(a not in (1, b) for a, b in zip(wanted, given[leading:])):
            raise RuntimeError(
                f"{name}: the gradient of argument {position} has the shape {given}, which does not fit {wanted}"
            )
        axes = [*range(leading)] + [at + leading for at, size in enumerate(wanted) if size == 1 != given[at + leading]]
        gradient = gradient.sum(axes, keepdim=True).reshape(wanted)
    return gradient.to(argument.dtype).to(argument.device)


class Function:
    """A function whose gradient is written in Python. Derive from it, define the static methods ``forward`` and
    ``backward``, and call ``apply``.

    ``forward(ctx, *args)`` computes the result: a tensor, or a tuple of tensors and other values. With a method
    ``setup_context(ctx, inputs, output)``, ``forward`` has no argument ``ctx``. ``backward(ctx, *gradients)`` gets a
    gradient for each result and returns one, or ``None``, for each argument. Neither is recorded, except ``backward``
    when its gradients are to be differentiated (``create_graph``).

    ``jvp`` and ``vmap`` of a derived class are not called. Derivatives along a direction are found by ``backward``,
    which must then be differentiable. Within ``vmap``, gradients must be computed in the function: ``vmap(grad(f))``.

    >>> import neurenix as nx
    >>> class Cube(nx.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         (x,) = ctx.saved_tensors
    ...         return gradient * 3 * x * x
    >>> x = nx.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad.item()
    12.0
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{type(self).__name__}: a Function is not instantiated: call {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the result."""
        raise NotImplementedError("a class derived from autograd.Function must define the static method forward")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Computes the gradients of the arguments."""
        raise NotImplementedError("a class derived from autograd.Function must define the static method backward")

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name that ``backward`` may have."""
        return Function.backward(ctx, *grad_outputs)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        ctx = FunctionCtx()
        enabled = _engine.is_grad_enabled()
        given = list(args)
        ctx.needs_input_grad = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in given)
        link = _Link(cls, ctx, given) if enabled and any(ctx.needs_input_grad) else None
        with no_grad():
            if "setup_context" in {name for kind in cls.__mro__[:-1] for name in vars(kind)}:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)  # type: ignore[attr-defined]
            else:
                output = cls.forward(ctx, *args, **kwargs)
        is_tuple = isinstance(output, tuple)
        results = list(output) if is_tuple else [output]
        if link is not None:
            results = _tracked(cls, ctx, link, given, results)
        else:
            ctx._save(given, results, None)
        return tuple(results) if is_tuple else results[0]


def _tracked(cls: type[Function], ctx: FunctionCtx, link: _Link, given: list[Any], results: list[Any]) -> list[Any]:
    """The results, connected with the arguments."""
    constant = {id(tensor) for tensor in ctx._constant}
    dirty = {id(tensor) for tensor in ctx._dirty}
    for tensor in ctx._dirty:
        if tensor.is_leaf and tensor.requires_grad:
            raise RuntimeError(f"{cls.__name__}: a leaf that requires gradients was changed in place")
        if not any(tensor is result for result in results):
            raise RuntimeError(f"{cls.__name__}: a tensor that is marked dirty must be returned")
    for index, result in enumerate(results):
        is_float = isinstance(result, Tensor) and result.dtype.name.startswith(("float", "bfloat", "complex"))
        if is_float and id(result) not in constant:
            link.tracked.add(index)
    # Without later changes in place, and without graphs that the tensors have besides.
    link.outputs = [
        result.detach().reshape(result.shape) if index in link.tracked else result for index, result in enumerate(results)
    ]
    ctx._save(given, results, link)
    connected = link.connect()
    link.outputs = [result.detach() if isinstance(result, Tensor) else result for result in link.outputs]
    for index, result in enumerate(results):
        if index in link.tracked and id(result) in dirty:
            with enable_grad():
                connected[index] = result.copy_(connected[index])
        elif index not in link.tracked and isinstance(result, Tensor):
            connected[index] = result.detach()
    return connected


class InplaceFunction(Function):
    """A function with the attribute ``inplace``, as older programs expect it."""


class _Refused(Function):
    """Values whose gradient is an error."""

    @staticmethod
    def forward(ctx: Any, message: str, *tensors: Any) -> Any:
        ctx.message = message
        return tuple(tensor.detach() if isinstance(tensor, Tensor) else tensor for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(ctx.message)


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a ``backward`` that cannot be differentiated: what it returns is computed without a graph. If its
    arguments can be differentiated, differentiating what it returns is an error; otherwise that is constant.

    >>> class Twice(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @once_differentiable
    ...     def backward(ctx, gradient):
    ...         return gradient * 2
    """

    @functools.wraps(function)
    def wrapped(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            found = function(ctx, *gradients)
        sources = [each for each in gradients if isinstance(each, Tensor) and each.requires_grad]
        if not _engine.is_grad_enabled() or not sources:
            return found
        message = "trying to differentiate twice a function that was marked with @once_differentiable"
        several = found if isinstance(found, tuple) else (found,)
        # With the sources, the results require gradients.
        refused = _Refused.apply(message, *several, *sources)[: len(several)]
        return refused if isinstance(found, tuple) else refused[0]

    return wrapped
