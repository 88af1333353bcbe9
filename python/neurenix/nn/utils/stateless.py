"""Calls of a module with other parameters and buffers.

>>> import neurenix as nx
>>> layer = nx.nn.Linear(1, 1, bias=False)
>>> nx.nn.utils.stateless.functional_call(layer, {"weight": nx.tensor([[3.0]])}, nx.tensor([2.0])).tolist()
[6.0]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..._engine import Tensor
from ..module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with these parameters and buffers by name, through which gradients flow. Others are
    the module's own. ``args`` may be a single argument.

    With ``tie_weights``, a name also replaces the other names of the same tensor. With ``strict``, every parameter and
    buffer must be named. In-place changes go to the given tensors.
    """
    given: dict[str, Tensor] = {}
    for each in [parameters_and_buffers] if isinstance(parameters_and_buffers, Mapping) else parameters_and_buffers:
        repeated = given.keys() & each.keys()
        if repeated:
            raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given |= each
    with _replaced(module, given, tie_weights, strict):
        arguments = args if isinstance(args, tuple) else (args,)
        return module(*arguments, **(kwargs or {}))


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where each parameter and buffer is, by all its names."""
    return {
        f"{prefix}.{name}" if prefix else name: (kind, name)
        for prefix, part in module.named_modules(remove_duplicate=False)
        for kind in (part._parameters, part._buffers)
        for name, tensor in kind.items()
        if tensor is not None
    }


@contextmanager
def _replaced(module: Module, given: Mapping[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    places = _places(module)
    unknown = [name for name in given if name not in places]
    if unknown:
        raise RuntimeError(f"functional_call: the module has no parameter or buffer {unknown[0]!r}")
    values = dict(given)
    if tie_weights:
        tied: dict[int, list[str]] = {}
        for name, (kind, key) in places.items():
            tied.setdefault(id(kind[key]), []).append(name)
        for names in tied.values():
            named = [name for name in names if name in given]
            if len({id(given[name]) for name in named}) > 1:
                raise ValueError(f"functional_call: {named} are one tensor of the module, but were given different values")
            values.update({name: given[named[0]] for name in names if named})
    missing = [name for name in places if name not in values]
    if strict and missing:
        raise RuntimeError(f"functional_call: missing key(s) {missing} with strict=True")
    before = [(*places[name], places[name][0][places[name][1]]) for name in values]
    try:
        for name, value in values.items():
            kind, key = places[name]
            kind[key] = value
        yield
    finally:
        # A module may be in several places; the order restores the first values.
        for kind, key, tensor in reversed(before):
            kind[key] = tensor
