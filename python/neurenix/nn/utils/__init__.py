"""Functions on all gradients or parameters at once, and sparse weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ... import _engine
from ..._autograd import no_grad
from ..._engine import Tensor
from ...distributed._split import by_groups, over_all_parts
from ...utils.checkpoint import checkpoint as checkpoint
from .. import init as _init
from .._old_names import renamed as _renamed
from . import parametrizations as parametrizations
from . import parametrize as parametrize
from . import prune as prune
from . import rnn as rnn
from . import stateless as stateless
from ._hooked_norms import remove_spectral_norm as remove_spectral_norm
from ._hooked_norms import remove_weight_norm as remove_weight_norm
from ._hooked_norms import spectral_norm as spectral_norm
from ._hooked_norms import weight_norm as weight_norm
from .fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from .fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from .fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from .fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from .sparsity import compress_two_of_four as compress_two_of_four
from .sparsity import keep_two_of_four as keep_two_of_four
from .sparsity import prune_two_of_four as prune_two_of_four

if TYPE_CHECKING:
    from ..module import Module

M = TypeVar("M", bound="Module")


def skip_init(module_cls: Callable[..., M], *args: Any, **kwargs: Any) -> M:
    """``module_cls(*args, **kwargs)`` without drawing initial values: for a module whose state is loaded next.
    Parameters that would be random are zero.

    >>> import neurenix as nx
    >>> nx.nn.utils.skip_init(nx.nn.Linear, 2, 1).weight.tolist()
    [[0.0, 0.0]]
    """
    with _init._skipped():
        return module_cls(*args, **kwargs)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    pairs = [(parameter, parameter.grad) for parameter in given]
    return [(parameter, gradient) for parameter, gradient in pairs if gradient is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales all gradients so that their joint norm is at most ``max_norm``. Returns the norm before scaling, on the
    device of the first gradient. The norm includes the parts that other ranks have of parameters that are divided among
    ranks; every rank must then call it. ``foreach`` is accepted and has no effect: the engine computes all gradients
    together.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([3.0, 4.0])
    >>> (w * w / 2).sum().backward()
    >>> round(nx.nn.utils.clip_grad_norm_([w], max_norm=1.0).item(), 4)
    5.0
    >>> [round(gradient, 4) for gradient in w.grad.tolist()]
    [0.6, 0.8]
    """
    pairs = _gradients(parameters)
    owners, gradients = [parameter for parameter, _ in pairs], [gradient for _, gradient in pairs]
    total = _norm("clip_grad_norm_", gradients, owners, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(owners, max_norm, total)
    return total


@no_grad()
def _norm(name: str, tensors: list[Tensor], owners: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """The joint norm of tensors that are divided among ranks as their owners are."""
    if not tensors:
        return _engine.zeros(())
    sizes = [tensor.float() if tensor.itemsize < 4 else tensor for tensor in tensors]
    device = sizes[0].device
    totals = []
    for places in by_groups(owners):
        if math.isinf(norm_type):
            part = _engine.stack([sizes[place].abs().max().to(device) for place in places]).max()
        else:
            part = _engine.stack([(sizes[place].abs() ** norm_type).sum().to(device) for place in places]).sum()
        totals.append(over_all_parts(part, owners[places[0]], "max" if math.isinf(norm_type) else "sum"))
    total = totals[0]
    for other in totals[1:]:
        total = total.maximum(other) if math.isinf(norm_type) else total + other
    total = total if math.isinf(norm_type) else total ** (1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"{name}: the norm is {total.item()}: no gradient was scaled")
    return total


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of tensors as one vector: a number, on the device of the first tensor; 0 without
    tensors. ``foreach`` is accepted and has no effect.

    >>> import neurenix as nx
    >>> nx.nn.utils.get_total_norm([nx.tensor([3.0]), nx.tensor([[4.0]])]).item()
    5.0
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _norm("get_total_norm", given, given, float(norm_type), error_if_nonfinite)


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales all gradients by ``max_norm / (total_norm + 1e-6)``, if that is less than 1: the second half of
    :func:`clip_grad_norm_`, for a norm from :func:`get_total_norm`. ``foreach`` is accepted and has no effect.

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([3.0, 4.0])
    >>> (w * w / 2).sum().backward()
    >>> nx.nn.utils.clip_grads_with_norm_(w, 1.0, nx.nn.utils.get_total_norm(w.grad))
    >>> [round(gradient, 4) for gradient in w.grad.tolist()]
    [0.6, 0.8]
    """
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for parameter, gradient in _gradients(parameters):
        parameter.grad = gradient * factor.to(gradient.device, gradient.dtype)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamps every element of the gradients to [``-clip_value``, ``clip_value``].

    >>> import neurenix as nx
    >>> w = nx.nn.Parameter([3.0, -0.5])
    >>> (w * w / 2).sum().backward()
    >>> nx.nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad.tolist()
    [1.0, -0.5]
    """
    for parameter, gradient in _gradients(parameters):
        parameter.grad = gradient.clamp(-clip_value, clip_value)


clip_grad_norm = _renamed(clip_grad_norm_, "nn.utils")


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector.

    >>> from neurenix import nn
    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    torch.Size([9])
    """
    return _engine.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the parts of a vector into parameters, in order. If the sizes differ, nothing is changed."""
    parameters = list(parameters)
    needed = sum(parameter.numel() for parameter in parameters)
    if vec.ndim != 1 or vec.numel() != needed:
        raise ValueError(f"vector_to_parameters: expected a vector of {needed} elements, got shape {tuple(vec.shape)}")
    start = 0
    for parameter in parameters:
        size = parameter.numel()
        parameter.data = vec.detach().narrow(0, start, size).reshape(parameter.shape)
        start += size
