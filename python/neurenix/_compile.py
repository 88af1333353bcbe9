"""Compiled functions of tensors: recorded once for each combination of shapes, then replayed."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from . import _engine
from ._effects import Effects, NotReady, is_recording
from ._engine import Tensor
from ._watch import Watch

# The maximum number of states to keep, and of earlier recordings in each.
_CAPACITY = 64
_VARIANTS = 7
# What a recording returns that does not fit.
_MISFIT = object()


def _flatten(value: Any, tensors: list[Tensor]) -> Any:
    """``value`` with its tensors replaced by their positions in ``tensors``; hashable, for use as a key."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        kind = type(value)
        return ("sequence", kind, tuple(_flatten(each, tensors) for each in value))
    if isinstance(value, dict):
        return ("dict", tuple((key, _flatten(each, tensors)) for key, each in value.items()))
    # 1, 1.0 and True compare equal, and so do 0.0 and -0.0, but they compute differently.
    return ("value", value, type(value), repr(value) if isinstance(value, float) else "")


def _unflatten(shape: Any, tensors: list[Tensor]) -> Any:
    kind = shape[0]
    if kind == "tensor":
        return tensors[shape[1]]
    if kind == "sequence":
        parts = [_unflatten(each, tensors) for each in shape[2]]
        return shape[1](*parts) if hasattr(shape[1], "_fields") else shape[1](parts)
    if kind == "dict":
        return {key: _unflatten(each, tensors) for key, each in shape[1]}
    return shape[1]


def _values(shape: Any) -> Iterator[Any]:
    """The parts of a shape other than tensors."""
    if shape[0] == "value":
        yield shape[1]
    elif shape[0] != "tensor":
        for each in shape[-1]:
            yield from _values(each[1] if shape[0] == "dict" else each)


def _requires_gradient(tensors: list[Tensor]) -> bool:
    return _engine.is_grad_enabled() and any(each.requires_grad for each in tensors)


class _Variant:
    """A recording: of one of the states of gradients that the function may start with."""

    def __init__(self, native: _engine.Recorded, result: Any, effects: Effects) -> None:
        self.native, self.result, self.effects = native, result, effects

    def run(self, given: list[Tensor]) -> Any:
        """The function's result, or ``_MISFIT`` if nothing was done."""
        stepping = [optimizer._stepping() for optimizer in self.effects.optimizers]
        outputs = self.native.run(given, stepping)
        if outputs is None:
            return _MISFIT
        for call in self.effects.calls:
            call()
        return _unflatten(self.result, outputs)


class _State:
    """A state of everything that the function reads, and the recordings made in it."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.variants: list[_Variant] = []


class Compiled:
    """A compiled function; see :func:`compile`."""

    # Lets the search for tensors in functions recognise compiled functions.
    is_compiled = True

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"compile: expected a function, got {type(function).__name__}")
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._states: dict[Any, list[_State]] = {}
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Not for names that copy and pickle look up, also on objects without attributes yet.
        if name == "_function" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # A function in a class becomes a method.
        is_method = instance is not None and isinstance(self._function, types.FunctionType)
        return types.MethodType(self, instance) if is_method else self

    def __reduce__(self) -> Any:
        # A decorated function is pickled by name. Recordings are dropped: they refer to this process's tensors.
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Compiled, (self._function,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_recording():
            # Inside another compiled function, this one becomes part of the outer recording.
            return self._function(*args, **kwargs)
        given: list[Tensor] = []
        shape = _flatten((args, kwargs), given)
        kinds = tuple((each.shape, each.dtype.name, each.device.name) for each in given)
        settings = (
            *(_engine.is_grad_enabled(), _engine.autocast_dtype(), _engine.get_default_device().name),
            *(_engine.get_float32_matmul_precision(), _engine.get_default_dtype().name),
        )
        key = (shape, kinds, settings)
        try:
            known = self._states.get(key, [])
        except TypeError as error:
            raise TypeError(f"compile: an argument cannot be compared with earlier ones: {error}") from None
        state = next((each for each in reversed(known) if not each.watch.changed()), None) or self._new(key)
        watch = state.watch
        # A replay has no graph for gradients. The graph's plan is cached in any case.
        if _requires_gradient(given) or (not watch.has_backward and _requires_gradient(watch.tensors)):
            return self._function(*args, **kwargs)
        if watch.refused:
            raise RuntimeError(
                f"compile: the function may read {watch.refused}, whose changes cannot be detected: a replay "
                "would use the first value. Pass the value as an argument, or make it a tensor"
            )
        for variant in state.variants:
            result = variant.run(given)
            if result is not _MISFIT:
                return result
        # An optimiser's first step creates its state.
        if not all(each._has_state() for each in watch.optimizers):
            return self._function(*args, **kwargs)
        try:
            return self._record(state, shape, given)
        except NotReady:
            return self._function(*args, **kwargs)

    def _new(self, key: Any) -> _State:
        """Creates an entry for this key and the current state of everything that the function reads."""
        state = _State(Watch(self._function, _values(key[0])))
        with self._lock:
            while sum(map(len, self._states.values())) >= _CAPACITY:
                oldest = next(iter(self._states))
                # Other threads may be iterating over the list.
                self._states[oldest] = self._states[oldest][1:]
                if not self._states[oldest]:
                    del self._states[oldest]
            self._states[key] = [*self._states.get(key, []), state]
        return state

    def _record(self, state: _State, shape: Any, given: list[Tensor]) -> Any:
        """Records the function, and computes it."""
        results: list[Any] = []

        def run(copies: list[Tensor]) -> list[Tensor]:
            args, kwargs = _unflatten(shape, copies)
            recorded = [copy.clone() for copy in copies]
            outputs: list[Tensor] = []
            results.append(_flatten(self._function(*args, **kwargs), outputs))
            if any(not copy.is_same(value) for copy, value in zip(copies, recorded, strict=True)):
                raise RuntimeError(
                    "compile: the function changes an argument in place: a replay would not. Return the new value, or "
                    "call the function itself"
                )
            if any(output._has_graph() for output in outputs):
                raise RuntimeError(
                    "compile: the function calls backward() and returns a tensor through which gradients could still "
                    "flow, but a replay has no graph: return it detached"
                )
            state.watch.accept_additions()
            changed = state.watch.changed()
            if changed:
                raise RuntimeError(
                    f"compile: {changed} changes while the function runs: a replay would not change it. Return the "
                    "new value, or call the function itself"
                )
            return [output.detach() for output in outputs]

        optimizers = state.watch.optimizers
        before = [repr(optimizer._numbers()) for optimizer in optimizers]
        effects = Effects()
        try:
            with effects:
                native = _engine.Recorded(run, given)
        finally:
            # They follow the computation.
            effects.undo()
        if before != [repr(optimizer._numbers()) for optimizer in optimizers]:
            raise RuntimeError(
                "compile: the function changes a setting of an optimizer's param_groups: a replay would not. Change it "
                "between calls, or call a schedule's step() in the function"
            )
        for look, name in effects.reads:
            state.watch.also(look, name)
        variant = _Variant(native, results[0], effects)
        result = variant.run(given)
        if result is _MISFIT:
            raise RuntimeError("compile: another thread changed the shape, dtype or gradient of a tensor: call it again")
        with self._lock:
            state.variants = [*state.variants[-_VARIANTS:], variant]
        return result


# PyTorch's modes: they tune its compiler and do not change results.
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(
    function: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = True,
    dynamic: bool | None = None,
    mode: str | None = None,
) -> Any:
    """Returns a compiled version of ``function``. It is recorded once for each combination of shapes and then replayed.

    A replay skips Python and the recording of operations. Tensors may be arguments (also in lists, tuples and dicts),
    or anything that the function and the functions it calls refer to: parameters and buffers of modules, attributes of
    objects, closures, globals. A replay reads their current values, and changes those that the function changes. Numbers and
    objects found there are part of the recording: when one of them changes, the function is recorded again. Reading
    something whose changes cannot be detected is an error that names it: the module ``random``, the clock, the
    environment, iterators, large NumPy arrays, and library objects that define ``__getitem__`` or ``__getattr__``. It is
    also an error if the function changes a global, an attribute, an element or an argument; adding an element after the
    existing ones is allowed. Reading a tensor's value (``item``, ``if x > 0``, ``numpy``, NumPy functions) is an error.
    Several threads may call the function at the same time, including the first time.

    The function may be a training step: forward pass, ``backward()``, clipping, ``GradScaler``, the optimizer's
    ``step()``, then a schedule's. Its first call runs it as it is, because it creates the optimizer's state. A function
    that does not call ``backward()`` itself runs without replay if gradients are recorded and required, because a replay
    has no graph.

    ``fullgraph``, ``dynamic`` and ``mode`` are accepted for compatibility with PyTorch and have no effect: the function
    is always recorded as a whole, once for each combination of shapes. There is one compiler, so ``backend`` and
    ``options`` are not arguments.

    >>> import neurenix as nx
    >>> f = nx.compile(lambda x: (x * 2).sum())
    >>> f(nx.Tensor([1.0, 2.0])).item(), f(nx.Tensor([3.0, 4.0])).item()
    (6.0, 14.0)
    """
    if mode not in _MODES:
        raise ValueError(f"compile: mode is {mode!r}, it must be one of {', '.join(map(repr, _MODES))}")
    return Compiled if function is None else Compiled(function)
