"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import _engine
from .._engine import Tensor
from ..nn.module import Module

Tensors = Mapping[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other tensors in place of some of its parameters and buffers: a dictionary by their names, or
    a sequence of dictionaries. ``args`` is a tuple, or the only argument.

    Parameters that are one tensor under several names are replaced together, unless ``tie_weights`` is false. With
    ``strict``, every parameter and buffer must be given.

    >>> import neurenix as nx
    >>> layer = nx.nn.Linear(2, 1, bias=False)
    >>> nx.func.functional_call(layer, {"weight": nx.tensor([[3.0, 4.0]])}, nx.ones(2)).tolist()
    [7.0]
    """
    given = parameter_and_buffer_dicts
    parts = [given] if isinstance(given, Mapping) else list(given)
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for name, tensor in part.items():
            if name in tensors:
                raise ValueError(f"functional_call: {name} was given twice")
            tensors[name] = tensor
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, tensors, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def _replaced(module: Module, tensors: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    places: dict[str, tuple[dict[str, Tensor | None], str]] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            for name, tensor in members.items():
                if tensor is not None:
                    places[f"{path}.{name}" if path else name] = (members, name)
    unknown = [name for name in tensors if name not in places]
    if unknown:
        raise RuntimeError(f"functional_call: the module has no parameter or buffer {unknown[0]!r}")
    new = dict(tensors)
    if tie_weights:
        owners: dict[int, list[str]] = {}
        for name, (members, key) in places.items():
            owners.setdefault(id(members[key]), []).append(name)
        for names in owners.values():
            chosen = {id(tensors[name]): tensors[name] for name in names if name in tensors}
            if len(chosen) > 1:
                raise ValueError(f"functional_call: got different tensors for {names}, which are one tensor")
            for name in names:
                new.update((name, tensor) for tensor in chosen.values())
    if strict and len(new) < len(places):
        missing = [name for name in places if name not in new]
        raise RuntimeError(f"functional_call: missing tensors for {missing}")
    former = [(members, key, members[key]) for members, key in (places[name] for name in new)]
    try:
        for name, tensor in new.items():
            members, key = places[name]
            members[key] = tensor
        yield
    finally:
        for members, key, tensor in former:
            members[key] = tensor


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several modules of one kind, each stacked along a new first axis, as
    :func:`vmap` takes them.

    >>> import neurenix as nx
    >>> models = [nx.nn.Linear(2, 1) for _ in range(3)]
    >>> parameters, buffers = nx.func.stack_module_state(models)
    >>> run = lambda parameters, x: nx.func.functional_call(models[0], parameters, x)
    >>> nx.func.vmap(run, in_dims=(0, None))(parameters, nx.ones(2)).shape
    torch.Size([3, 1])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: expected at least one module")
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: expected modules of one class")
    if any(model.training != models[0].training for model in models):
        raise RuntimeError("stack_module_state: expected modules that are all in training mode or all in evaluation mode")

    def stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {name: _stack([state[name] for state in states]) for name in states[0]}

    return (
        stacked([dict(model.named_parameters()) for model in models]),
        stacked([dict(model.named_buffers()) for model in models]),
    )


def _stack(tensors: list[Tensor]) -> Tensor:
    if len({tensor.requires_grad for tensor in tensors}) > 1:
        raise RuntimeError("stack_module_state: expected parameters that all require gradients, or none of them")
    stacked = _engine.stack([tensor.detach() for tensor in tensors])
    return stacked.requires_grad_() if tensors[0].requires_grad else stacked


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Makes the batch norms of a module compute with the statistics of the batch alone, also in evaluation mode, so
    that nothing changes in place. Returns the module."""
    from ..nn.normalization import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
