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
    if not pairs:
        return _engine.zeros(())
    with no_grad():
        sizes = [gradient.float() if gradient.itemsize < 4 else gradient for _, gradient in pairs]
        device = sizes[0].device
        parameters = [parameter for parameter, _ in pairs]
        totals = []
        for places in by_groups(parameters):
            if math.isinf(norm_type):
                part = _engine.stack([sizes[place].abs().max().to(device) for place in places]).max()
            else:
                part = _engine.stack([(sizes[place].abs() ** norm_type).sum().to(device) for place in places]).sum()
            totals.append(over_all_parts(part, parameters[places[0]], "max" if math.isinf(norm_type) else "sum"))
        total = totals[0]
        for other in totals[1:]:
            total = total.maximum(other) if math.isinf(norm_type) else total + other
        total = total if math.isinf(norm_type) else total ** (1.0 / norm_type)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise RuntimeError(f"clip_grad_norm_: the norm is {total.item()}: no gradient was scaled")
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for parameter, gradient in pairs:
            parameter.grad = gradient * factor.to(gradient.device, gradient.dtype)
    return total


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
