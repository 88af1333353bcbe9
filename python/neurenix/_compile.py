"""Functions of tensors that are recorded once for each combination of shapes, and then replayed."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from . import _engine
from ._engine import Tensor

# More recordings than this are not kept.
_CAPACITY = 64
# Whether this thread records a compiled function.
_RECORDING = threading.local()


def _flatten(value: Any, tensors: list[Tensor]) -> Any:
    """``value`` with its tensors replaced by their positions in ``tensors``: hashable, so that it can be a key."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        kind = type(value)
        return ("sequence", kind, tuple(_flatten(each, tensors) for each in value))
    if isinstance(value, dict):
        return ("dict", tuple((key, _flatten(each, tensors)) for key, each in value.items()))
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they do not compute alike.
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


def _held(function: Any, arguments: Any) -> tuple[list[Tensor], tuple[bool, ...]]:
    """The tensors that a function holds: parameters and buffers of modules, and tensors of its closure; and the modes of
    these modules."""
    found: dict[int, Tensor] = {}
    modes: list[bool] = []
    seen: set[int] = set()

    def look(value: Any, depth: int) -> None:
        if depth > 4 or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Tensor):
            found[id(value)] = value
        elif hasattr(value, "_parameters") and hasattr(value, "modules"):
            for module in value.modules():
                modes.append(module.training)
                for each in (*module._parameters.values(), *module._buffers.values()):
                    if each is not None:
                        found[id(each)] = each
        elif isinstance(value, (list, tuple)):
            for each in value:
                look(each, depth + 1)
        elif isinstance(value, dict):
            for each in value.values():
                look(each, depth + 1)
        elif isinstance(value, functools.partial):
            look((value.func, value.args, value.keywords), depth + 1)

    while isinstance(function, Compiled):
        function = function._function
    inner = getattr(function, "__func__", function)
    look(getattr(function, "__self__", None), 0)
    look(function, 0)
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            look(cell.cell_contents, 0)
        except ValueError:
            continue
    code, scope = getattr(inner, "__code__", None), getattr(inner, "__globals__", {})
    for name in getattr(code, "co_names", ()):
        look(scope.get(name), 0)
    for argument in arguments:
        if not isinstance(argument, Tensor):
            look(argument, 0)
    return list(found.values()), tuple(modes)


class Compiled:
    """A function that is replayed; see :func:`compile`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"compile: a {type(function).__name__} stands where a function is needed")
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._recordings: dict[Any, tuple[Any, list[Any]]] = {}
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Not what copies and pickles ask for, also of an object that has no attributes yet.
        if name == "_function" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # A function in a class is a method.
        is_method = instance is not None and isinstance(self._function, types.FunctionType)
        return types.MethodType(self, instance) if is_method else self

    def __reduce__(self) -> Any:
        # A decorated function is found by its name. Recordings stay behind: they are of this process's tensors.
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Compiled, (self._function,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: list[Tensor] = []
        shape = _flatten((args, kwargs), given)
        held, modes = _held(self._function, (*args, *kwargs.values()))
        tensors = given + held
        if getattr(_RECORDING, "under_way", False):
            # Inside another compiled function it is a part of that one's recording.
            return self._function(*args, **kwargs)
        if _engine.is_grad_enabled() and any(each.requires_grad for each in tensors):
            # A replay has no graph for gradients to flow through; the plan of the graph is known all the same.
            return self._function(*args, **kwargs)
        kinds = tuple((each.shape, each.dtype.name, each.device.name) for each in given)
        key = (shape, kinds, tuple(id(each) for each in held), modes, _engine.autocast_dtype())
        try:
            known = self._recordings.get(key)
        except TypeError as error:
            raise TypeError(f"compile: an argument cannot be compared with earlier ones: {error}") from None
        if known is None:
            with self._lock:
                known = self._recordings.get(key)
                if known is None:
                    while len(self._recordings) >= _CAPACITY:
                        self._recordings.pop(next(iter(self._recordings)))
                    known = self._recordings[key] = self._record(shape, len(given), held)
        captured, result = known
        outputs = list(captured(tensors))
        return _unflatten(result[0], outputs)

    def _record(self, shape: Any, count: int, held: list[Tensor]) -> tuple[Any, list[Any]]:
        result: list[Any] = [None]

        def run(copies: list[Tensor]) -> list[Tensor]:
            args, kwargs = _unflatten(shape, copies[:count])
            _RECORDING.under_way = True
            try:
                # On this thread alone: others go on with what is held.
                with _engine.GradientMode(False), _engine.StandIns(held, copies[count:]):
                    places = held + copies[:count]
                    recorded = [place.detach() for place in places]
                    outputs: list[Tensor] = []
                    result[0] = _flatten(self._function(*args, **kwargs), outputs)
                    if any(not place.is_same(value) for place, value in zip(places, recorded, strict=True)):
                        raise RuntimeError(
                            "compile: the function changes a tensor in place (a running mean, a counter): a replay would "
                            "not. Return the new value, or call the function itself"
                        )
                    # What is held and given back is the stand-in, too.
                    return [output.detach() for output in outputs]
            finally:
                _RECORDING.under_way = False

        return _engine.Captured(run), result


def compile(function: Callable[..., Any] | None = None) -> Any:
    """A function that does what ``function`` does, recorded once for each combination of shapes and then replayed.

    Replaying skips Python and the recording of operations. Tensors may come in as arguments (in lists, tuples and dicts
    too), as parameters and buffers of modules, and from the closure and the globals that the function names; what else it
    computes with (tensors in other objects, or that functions it calls reach by themselves) is taken as it was when it was
    recorded. It must not change a tensor in place, which is an error. The function must not read a tensor's value (``item``,
    ``if x > 0``, ``numpy``, functions of NumPy), which is an error.
    Threads may call it at the same time, also for the first time, and use what it holds beside it.

    Where gradients are recorded and something requires them, the function runs as it is: a replay has no graph.

    >>> import neurenix as nx
    >>> f = nx.compile(lambda x: (x * 2).sum())
    >>> f(nx.Tensor([1.0, 2.0])).item(), f(nx.Tensor([3.0, 4.0])).item()
    (6.0, 14.0)
    """
    return Compiled if function is None else Compiled(function)
