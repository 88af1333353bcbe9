"""Errors for arguments that are not tensors.

Elementwise functions take numbers, lists and arrays, alone or with tensors. All others require tensors, as their
annotations say, and refuse other objects with the same error. Only the first argument is checked before the call; the
others are checked if the call has failed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ._complex import implementation
from ._engine import NoComplexNumbers, Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

_WANTED = {"Tensor", "Tensor | None", "Sequence[Tensor]"}

_TORCH = {"x": "input", "x1": "input", "x2": "other", "arrays": "tensors"}
"""PyTorch's names of parameters that use the standard's names here."""
_TORCH_OF: dict[str, dict[str, str]] = {
    "allclose": {"y": "other"},
    "bmm": {"x2": "mat2"},
    **dict.fromkeys("cholesky cond det eigh eigvalsh inv matrix_rank qr slogdet svd svdvals".split(), {"x": "A"}),
    **dict.fromkeys("matrix_norm matrix_power pinv".split(), {"x": "A"}),
    "solve": {"x1": "A", "x2": "B"},
    "cdist": {"x1": "x1", "x2": "x2"},
    "dot": {"x2": "tensor"},
    "isclose": {"y": "other"},
    "mm": {"x2": "mat2"},
    "outer": {"x2": "vec2"},
    "permute": {"axes": "dims"},
    "roll": {"shift": "shifts"},
    "searchsorted": {"x1": "sorted_sequence", "x2": "input"},
    "split": {"x": "tensor", "split_size": "split_size_or_sections"},
    "take": {"indices": "index"},
    "tensordot": {"x1": "a", "x2": "b"},
    "tile": {"repetitions": "dims"},
    "trapezoid": {"x": "x"},
    "trapz": {"x": "x"},
}
"""Additional names for single functions."""


def _order(function: Callable[..., Any], name: str) -> list[str]:
    """PyTorch's names of the first parameters, up to the last one that is named differently or positional only."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    here: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    of: dict[str, str] = {**_TORCH, **_TORCH_OF.get(name, {})}
    theirs: list[str] = [of.get(each, each) for each in here]
    last = max((place for place, each in enumerate(here, 1) if theirs[place - 1] != each), default=0)
    return theirs[: max(last, code.co_posonlyargcount)]


def _parts(parameter: inspect.Parameter, annotation: Any, value: Any) -> list[Any]:
    """The parts of an argument that must be tensors."""
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
    """The error for a call whose arguments are not the tensors that the annotations require, if that is the cause."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # Python itself reports missing and extra arguments.
        return None
    for each, value in given.items():
        parameter = signature.parameters[each]
        annotation = parameter.annotation if annotations is None else annotations.get(each)
        for part in _parts(parameter, annotation, value):
            if not isinstance(part, Tensor):
                return TypeError(
                    f"{name}: expected a tensor, got {type(part).__name__}, in {each}: convert it with nx.asarray(x) or "
                    "nx.Tensor(x)"
                )
    return None


def guarded(function: Function, name: str, annotations: Mapping[str, str] | None = None) -> Function:
    """Wraps ``function`` to refuse objects that are not tensors where its annotations require one; native functions
    pass the annotations.
    """
    wanted = getattr(function, "__annotations__", {}) if annotations is None else annotations
    if annotations is None:
        # Annotations do not follow the parameter order if some parameters are positional only.
        code = getattr(function, "__code__", None)
        first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    else:
        first = next(iter(annotations), "")
    begins_with_tensor = wanted.get(first) == "Tensor"
    order = _order(function, name)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for each in order[len(args) :]:
                if each not in kwargs:
                    break
                args = (*args, kwargs.pop(each))
        # Array methods of the same name take other arguments and return arrays.
        if begins_with_tensor and not isinstance(args[0] if args else kwargs.get(first), Tensor):
            wrong = mistake(name, function, args, kwargs, annotations)
            if wrong is not None:
                raise wrong
        try:
            return function(*args, **kwargs)
        except NoComplexNumbers as refusal:
            return implementation(name, refusal)(*args, **kwargs)
        except (AttributeError, TypeError):
            wrong = mistake(name, function, args, kwargs, annotations)
            if wrong is None:
                raise
        raise wrong

    return checked  # type: ignore[return-value]


def guard(names: dict[str, Any]) -> None:
    """Guards every public function of a module that takes tensors, given the module's ``globals()``. They also accept
    PyTorch's argument names.
    """
    for name, value in list(names.items()):
        if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != names["__name__"]:
            continue
        takes_tensors = any(kind in _WANTED for each, kind in value.__annotations__.items() if each != "return")
        if takes_tensors or _order(value, name):
            names[name] = guarded(value, name)
