"""Automatic differentiation with PyTorch's names: ``grad``, ``backward``, ``Function``, ``gradcheck`` and others.

>>> import neurenix as nx
>>> x = nx.tensor([1.0, 2.0], requires_grad=True)
>>> nx.autograd.grad((x ** 3).sum(), x)[0].tolist()
[3.0, 12.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import forward_ad as forward_ad, function as function, functional as functional
from . import grad_mode as grad_mode, graph as graph, profiler as profiler
from .anomaly_mode import detect_anomaly as detect_anomaly, set_detect_anomaly as set_detect_anomaly
from .function import Function as Function
from .grad_mode import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from .gradcheck import gradcheck as gradcheck, gradgradcheck as gradgradcheck
from .variable import Variable as Variable

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def _list(tensors: Any, name: str) -> list[Tensor]:
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected tensors, got {type(tensor).__name__}")
    return tensors


def _gradients(outputs: list[Tensor], given: Any, name: str) -> list[Tensor | None]:
    """A gradient for each output; ``None`` for the unit gradient of a scalar."""
    if given is None:
        gradients: list[Tensor | None] = [None] * len(outputs)
    else:
        gradients = [given] if isinstance(given, Tensor) else list(given)
    if len(gradients) != len(outputs):
        raise RuntimeError(f"{name}: got {len(outputs)} tensors and {len(gradients)} gradients")
    for output, gradient in zip(outputs, gradients):
        if not output.requires_grad:
            raise RuntimeError(f"{name}: a tensor does not require gradients, so it has none to compute")
        if gradient is None and output.numel() != 1:
            raise RuntimeError(
                f"{name}: a gradient is implicit only for scalars, but a tensor has the shape {tuple(output.shape)}: pass its "
                "gradient"
            )
        if gradient is not None and tuple(gradient.shape) != tuple(output.shape):
            raise RuntimeError(
                f"{name}: a gradient has the shape {tuple(gradient.shape)}, and its tensor {tuple(output.shape)}"
            )
    return [
        gradient if gradient is None or gradient.dtype == output.dtype else gradient.to(output.dtype)
        for output, gradient in zip(outputs, gradients)
    ]


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``: a tuple with one for each input. ``grad`` does not
    change. ``only_inputs`` has no effect, as in PyTorch.

    ``grad_outputs`` has the gradient of each output; ``None`` stands for 1, for scalars. The graph is released unless
    ``retain_graph``, which is ``create_graph`` by default; with the latter, the gradients can be differentiated. An
    input that no output depends on is an error, unless ``allow_unused`` (then it gets ``None``) or
    ``materialize_grads`` (then it gets zeros). With ``is_grads_batched``, each of ``grad_outputs`` has a new first
    axis, and so do the results: several products with one Jacobian.

    >>> import neurenix as nx
    >>> x = nx.tensor(3.0, requires_grad=True)
    >>> (first,) = nx.autograd.grad(x ** 3, x, create_graph=True)
    >>> nx.autograd.grad(first, x)[0].item()
    18.0
    """
    outputs, inputs = _list(outputs, "grad"), _list(inputs, "grad")
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: allow_unused=False contradicts materialize_grads=True")
    if not outputs:
        raise RuntimeError("grad: outputs is empty")
    for one in inputs:
        if not one.requires_grad:
            raise RuntimeError("grad: one of the inputs does not require gradients")
    retain_graph = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        found = _batched(outputs, inputs, grad_outputs, retain_graph, create_graph)
    else:
        seeds = _gradients(outputs, grad_outputs, "grad")
        found = _engine.gradients_of_all(outputs, seeds, inputs, retain_graph, create_graph)
    if materialize_grads:
        found = [_engine.full_like(one.detach(), 0) if each is None else each for one, each in zip(inputs, found)]
    elif not allow_unused and any(each is None for each in found):
        raise RuntimeError(
            "grad: one of the inputs was not used in the graph: pass allow_unused=True if that is intended"
        )
    return tuple(found)


def _batched(
    outputs: list[Tensor], inputs: list[Tensor], given: Any, retain_graph: bool, create_graph: bool
) -> list[Tensor | None]:
    from ..func import vmap

    seeds = [given] if isinstance(given, Tensor) else list(given or [])
    if not seeds or any(seed is None for seed in seeds):
        raise RuntimeError("grad: is_grads_batched needs a tensor in grad_outputs for each output")
    used: list[bool] = []

    def product(*seeds: Tensor) -> list[Tensor]:
        found = _engine.gradients_of_all(
            outputs, _gradients(outputs, seeds, "grad"), inputs, retain_graph, create_graph
        )
        used.extend(each is not None for each in found)
        return [each for each in found if each is not None]

    rest = iter(vmap(product)(*seeds))
    return [next(rest) if one else None for one in used]


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of ``tensors`` to ``grad`` of all leaves, or of ``inputs`` only, which need not be leaves.

    ``grad_tensors`` has the gradient of each tensor; ``None`` stands for 1, for scalars. ``retain_graph`` is
    ``create_graph`` by default.

    >>> import neurenix as nx
    >>> x = nx.tensor(2.0, requires_grad=True)
    >>> nx.autograd.backward([x * 3, x * x], [nx.tensor(1.0), nx.tensor(10.0)])
    >>> x.grad.item()
    43.0
    """
    if grad_variables is not None:
        raise RuntimeError("backward: grad_variables was replaced by grad_tensors")
    tensors = _list(tensors, "backward")
    if not tensors:
        return
    gradients = _gradients(tensors, grad_tensors, "backward")
    targets = None if inputs is None else _list(inputs, "backward")
    retain_graph = create_graph if retain_graph is None else retain_graph
    _engine.backward_all(tensors, gradients, targets, retain_graph, create_graph)
