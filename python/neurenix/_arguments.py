"""What functions say of arguments that are no tensors.

Functions of each element take numbers, lists and arrays beside tensors or alone. All others want tensors, as their
annotations say, and refuse what is none in one way. Only the first argument is looked at before the call; the others
where the call has failed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ._engine import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

_WANTED = {"Tensor", "Tensor | None", "Sequence[Tensor]"}


def _parts(parameter: inspect.Parameter, annotation: Any, value: Any) -> list[Any]:
    """What of an argument is to be tensors."""
    if annotation == "Tensor | None":
        return [] if value is None else [value]
    if annotation == "Sequence[Tensor]":
        if parameter.kind is parameter.VAR_POSITIONAL and len(value) == 1:
            # All in one list, or one by one.
            (value,) = value
        return list(value) if isinstance(value, (list, tuple)) else [value]
    if annotation == "Tensor":
        return list(value) if parameter.kind is parameter.VAR_POSITIONAL else [value]
    return []


def mistake(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, annotations: Mapping[str, str] | None = None
) -> TypeError | None:
    """The error of a call whose arguments are not the tensors that the annotations want, if that is what is wrong."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # Python says itself what is missing, or too much.
        return None
    for each, value in given.items():
        parameter = signature.parameters[each]
        annotation = parameter.annotation if annotations is None else annotations.get(each)
        for part in _parts(parameter, annotation, value):
            if not isinstance(part, Tensor):
                return TypeError(
                    f"{name}: a {type(part).__name__} stands where a tensor is needed, in {each}: make it one with "
                    "nx.asarray(x) or nx.Tensor(x)"
                )
    return None


def guarded(function: Function, name: str, annotations: Mapping[str, str] | None = None) -> Function:
    """``function``, which refuses what is no tensor where its annotations say one; they are given for native functions."""
    wanted = getattr(function, "__annotations__", {}) if annotations is None else annotations
    if annotations is None:
        # Annotations are not in the order of the parameters where some are positional only.
        code = getattr(function, "__code__", None)
        first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    else:
        first = next(iter(annotations), "")
    begins_with_tensor = wanted.get(first) == "Tensor"

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        # An array has methods of the same names: with other arguments, and with arrays as results.
        if begins_with_tensor and not isinstance(args[0] if args else kwargs.get(first), Tensor):
            wrong = mistake(name, function, args, kwargs, annotations)
            if wrong is not None:
                raise wrong
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError):
            wrong = mistake(name, function, args, kwargs, annotations)
            if wrong is None:
                raise
        raise wrong

    return checked  # type: ignore[return-value]


def guard(names: dict[str, Any]) -> None:
    """Guards every public function of a module that takes tensors, given the module's ``globals()``."""
    for name, value in list(names.items()):
        if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != names["__name__"]:
            continue
        if any(kind in _WANTED for each, kind in value.__annotations__.items() if each != "return"):
            names[name] = guarded(value, name)
