"""Functions of layers that PyTorch also has in its top namespace, with that namespace's signatures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._engine import Tensor
from . import functional as F
from .functional import Sizes

SAME = """
adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d cosine_similarity max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pixel_shuffle
pixel_unshuffle relu_ rms_norm rrelu selu_ threshold_
""".split()
"""Functions that are those of ``nn.functional``."""

_REDUCTION = {
    "binary_cross_entropy_with_logits": 4, "cosine_embedding_loss": 4, "ctc_loss": 5, "hinge_embedding_loss": 3, "kl_div": 2,
    "margin_ranking_loss": 4, "poisson_nll_loss": 5, "triplet_margin_loss": 7,
}  # fmt: skip
"""Losses, and the place of their reduction, which is a number here."""


def _loss(name: str) -> Callable[..., Tensor]:
    loss, place = getattr(F, name), _REDUCTION[name]

    @functools.wraps(loss)
    def function(*args: Any, **kwargs: Any) -> Tensor:
        given = list(args)
        if len(given) > place:
            kwargs["reduction"] = given.pop(place)
        if name == "binary_cross_entropy_with_logits" and len(given) > 3:
            kwargs["pos_weight"] = given.pop(3)
        if len(given) > place:
            # Of the losses with an argument after the reduction, ``ctc_loss`` has it by position.
            kwargs["zero_infinity"] = given.pop(place)
        reduction = kwargs.get("reduction", 1)
        kwargs["reduction"] = {0: "none", 1: "mean", 2: "sum"}.get(reduction, reduction)
        return loss(*given, **kwargs)

    return function


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.dropout``."""
    return F.dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.dropout2d``."""
    return F.dropout2d(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.alpha_dropout``."""
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.feature_alpha_dropout``."""
    return F.feature_alpha_dropout(input, p, train)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """``nn.functional.adaptive_max_pool1d`` with the positions."""
    found: tuple[Tensor, Tensor] = F.adaptive_max_pool1d(input, output_size, return_indices=True)
    return found


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """``nn.functional.embedding``, with the weight first; a negative ``padding_idx`` is none."""
    return F.embedding(indices, weight, None if padding_idx < 0 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``nn.functional.batch_norm``, with another order of arguments."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``nn.functional.instance_norm``, with another order of arguments."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Sizes,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """``nn.functional.layer_norm``."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``nn.functional.group_norm``."""
    return F.group_norm(input, num_groups, weight, bias, eps)


_OWN = """
adaptive_max_pool1d alpha_dropout batch_norm dropout embedding feature_alpha_dropout feature_dropout group_norm instance_norm
layer_norm
""".split()

FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(F, name) for name in SAME}
FUNCTIONS |= {name: _loss(name) for name in _REDUCTION}
FUNCTIONS |= {name: globals()[name] for name in _OWN}
