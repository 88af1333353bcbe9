"""Losses as functions. Within ``autocast`` they are computed in ``float32``."""

from __future__ import annotations

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from ._old_names import with_reduction as _with_reduction
from ._precision import full

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """``-log(softmax(scores)[class])``: scores (N, C, ...), or (C), against classes (N, ...), or (), or against
    probabilities of the scores' shape; to a number, or to the classes' shape with ``reduction="none"``. See
    :class:`neurenix.nn.CrossEntropyLoss`.

    >>> import neurenix as nx
    >>> round(nx.functional.cross_entropy(nx.Tensor([[0.0, 0.0]]), nx.tensor([1])).item(), 4)
    0.6931
    """
    input, target, weight = full(input, target, weight)
    return _engine.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """``-input[class]`` for logarithms of probabilities (N, C, ...), or (C), and classes (N, ...), or (); to a number, or
    to the classes' shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.functional.nll_loss(nx.Tensor([[-1.0, -2.0], [-3.0, -4.0]]), nx.tensor([1, 0]), reduction="none").tolist()
    [2.0, 3.0]
    """
    input, target, weight = full(input, target, weight)
    return _engine.nll_loss(input, target, weight, ignore_index, reduction)


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``(input - target) ** 2``: input and target of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.functional.mse_loss(nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 2.0]), reduction="sum").item()
    4.0
    """
    input, target = full(input, target)
    return _engine.mse_loss(input, target, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``|input - target|``: input and target of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.functional.l1_loss(nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 2.0]), reduction="none").tolist()
    [2.0, 0.0]
    """
    input, target = full(input, target)
    return _engine.l1_loss(input, target, reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """For a distance ``d = |input - target|``, ``d * d / (2 * beta)`` below ``beta``, else ``d - beta / 2``: input and
    target of one shape, to a number, or to that shape with ``reduction="none"``."""
    input, target = full(input, target)
    return _engine.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """For a distance ``d = |input - target|``, ``d * d / 2`` below ``delta``, else ``delta * (d - delta / 2)``: input and
    target of one shape, to a number, or to that shape with ``reduction="none"``."""
    input, target = full(input, target)
    return _engine.huber_loss(input, target, reduction, delta)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))`` for probabilities, with logarithms of at least -100:
    input and target of one shape, to a number, or to that shape with ``reduction="none"``. An input below 0 or above 1
    gives NaN: checking it would require reading the values.
    """
    input, target, weight = full(input, target, weight)
    return _engine.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """``binary_cross_entropy`` of ``sigmoid(input)``, without its overflow; ``pos_weight`` scales the part of ``target``:
    input and target of one shape, to a number, or to that shape with ``reduction="none"``."""
    input, target, weight, pos_weight = full(input, target, weight, pos_weight)
    return _engine.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """``target * (log(target) - input)`` for logarithms of probabilities and a target, which holds logarithms too with
    ``log_target``: input and target of one shape, to a number, or to that shape with ``reduction="none"``.
    ``"batchmean"`` divides the sum by the first dimension's size, which is the Kullback-Leibler divergence.
    """
    input, target = full(input, target)
    return _engine.kl_div(input, target, reduction, log_target)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1: input and target of one shape, to a number, or
    to that shape with ``reduction="none"``."""
    input, target = full(input, target)
    return _engine.hinge_embedding_loss(input, target, reduction, margin)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1: two tensors (N, D), or (D), and targets
    (N), or (); to a number, or to the targets' shape with ``reduction="none"``."""
    input1, input2, target = full(input1, input2, target)
    return _engine.cosine_embedding_loss(input1, input2, target, margin, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along ``dim``: two tensors of shapes that broadcast, to that shape without
    ``dim``.

    >>> import neurenix as nx
    >>> nx.functional.cosine_similarity(nx.ones(4, 3), nx.ones(4, 3)).shape
    torch.Size([4])
    """
    x1, x2 = full(x1, x2)
    if x1.shape != x2.shape:
        shape = _engine.broadcast_shapes(x1.shape, x2.shape)
        x1, x2 = x1.broadcast_to(shape), x2.broadcast_to(shape)
    if x1.ndim == 0:
        return _engine.cosine_similarity(x1.reshape(1), x2.reshape(1), dim, eps)
    return _engine.cosine_similarity(x1, x2, dim, eps)


_guard(globals())

for _name in __all__:
    if "reduction" in globals()[_name].__annotations__:
        globals()[_name] = _with_reduction(globals()[_name])
