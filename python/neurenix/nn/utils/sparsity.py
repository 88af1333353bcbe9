"""2:4 sparsity: pruning weights, and compressing models whose weights are pruned."""

from __future__ import annotations

from collections import Counter

from ... import _engine
from ..._arguments import guard as _guard
from ..._engine import Tensor
from ..linear import Linear
from ..module import Module
from ..sparse import SparseLinear


def keep_two_of_four(tensor: Tensor) -> Tensor:
    """``tensor`` with zeros for the two smallest magnitudes of each four neighbours along the last dimension. Of equal
    magnitudes the first are kept; NaN counts as the greatest.

    >>> import neurenix as nx
    >>> nx.nn.utils.keep_two_of_four(nx.Tensor([1.0, -3.0, 2.0, 0.5])).tolist()
    [0.0, -3.0, 2.0, 0.0]
    """
    return _engine.keep_two_of_four(tensor)


def _layers(function: str, model: Module) -> list[tuple[str, Linear]]:
    """The layers that can be compressed, with their names: their weights belong to no other module, such as an
    embedding. Subclasses may compute something else."""
    if not isinstance(model, Module):
        raise TypeError(f"{function}: model must be a Module, got {type(model).__name__}")
    weights = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    linear = [(name, module) for name, module in model.named_modules() if type(module) is Linear]
    return [(name, m) for name, m in linear if m.in_features % 8 == 0 and weights[id(m.weight)] == 1]


def _weight_name(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def prune_two_of_four(model: Module) -> list[str]:
    """Applies :func:`keep_two_of_four` to the weight of every ``nn.Linear`` of ``model`` whose ``in_features`` is a
    multiple of 8, in place, except weights that another module has too. Returns the names of these weights.

    A pruned weight is not held at zero: an optimiser's step changes it, and it has to be pruned again.

    >>> from neurenix import nn
    >>> nn.utils.prune_two_of_four(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)))
    ['0.weight']
    """
    layers = _layers("prune_two_of_four", model)
    pruned = [keep_two_of_four(layer.weight.detach()) for _, layer in layers]
    # An error leaves all weights as they were.
    _engine.evaluate(pruned)
    for (_, layer), weight in zip(layers, pruned):
        layer.weight.data = weight
    return [_weight_name(name) for name, _ in layers]


def compress_two_of_four(model: Module) -> Module:
    """Replaces every ``nn.Linear`` of ``model`` whose ``in_features`` is a multiple of 8 by an ``nn.SparseLinear`` of
    the same weight, for inference, and returns the model; a model that is such a layer itself is unchanged, and its
    replacement is returned. Other layers stay, and those whose weight another module has too. A weight that has more
    than two numbers other than 0 in four neighbours is an error, which names it, and the model is unchanged.

    >>> from neurenix import nn
    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    >>> nn.utils.prune_two_of_four(model)
    ['0.weight']
    >>> nn.utils.compress_two_of_four(model)[0]
    SparseLinear(in_features=8, out_features=4, bias=True)
    """
    made: dict[int, SparseLinear] = {}
    for name, layer in _layers("compress_two_of_four", model):
        try:
            made[id(layer)] = SparseLinear.from_linear(layer)
        except ValueError as error:
            message = f"{_weight_name(name)} is not 2:4 sparse: call prune_two_of_four(model) first"
            raise ValueError(f"compress_two_of_four: {message}") from error
    if id(model) in made:
        return made[id(model)]
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            # A layer registered under two names stays one layer.
            if id(child) in made:
                module._modules[name] = made[id(child)]
    return model


_guard(globals())
