"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._engine import Tensor
from . import functional as F
from ._old_names import reduction_of, with_reduction
from .module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class Loss(Module):
    """The base class of losses. ``reduction`` is ``"mean"`` or ``"sum"``, which return a number, or ``"none"``, which
    returns the loss of each element or sample."""

    def __init__(
        self, size_average: bool | str | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if isinstance(size_average, str):
            # Alone, the first argument may be the reduction.
            reduction = size_average
        elif size_average is not None or reduce is not None:
            reduction = reduction_of(size_average, reduce)
        allowed = ("mean", "sum", "none", "batchmean") if isinstance(self, KLDivLoss) else ("mean", "sum", "none")
        if reduction not in allowed:
            raise ValueError(f"{type(self).__name__}: reduction is {reduction!r}, it must be one of {', '.join(allowed)}")
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MSELoss(Loss):
    """``(input - target) ** 2``: two tensors of one shape, to a number, or to that shape with ``reduction="none"``.
    Unlike in PyTorch, shapes that differ are an error.

    >>> import neurenix as nx
    >>> nx.nn.MSELoss()(nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 2.0])).item()
    2.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(Loss):
    """``|input - target|``: two tensors of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.nn.L1Loss()(nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 2.0])).item()
    1.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class SmoothL1Loss(Loss):
    """For a distance ``d = |input - target|``, ``d * d / (2 * beta)`` below ``beta``, else ``d - beta / 2``: two tensors
    of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.nn.SmoothL1Loss(reduction="none")(nx.Tensor([0.5, 2.0]), nx.Tensor([0.0, 0.0])).tolist()
    [0.125, 1.5]
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(Loss):
    """For a distance ``d = |input - target|``, ``d * d / 2`` below ``delta``, else ``delta * (d - delta / 2)``: two
    tensors of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.nn.HuberLoss(reduction="none", delta=2.0)(nx.Tensor([1.0, 4.0]), nx.Tensor([0.0, 0.0])).tolist()
    [0.5, 6.0]
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class _Weighted(Loss):
    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_Weighted):
    """``-log(softmax(scores)[class])``: scores (N, C, ...), or (C), against classes (N, ...), or (), or against
    probabilities of the scores' shape; to a number, or to the classes' shape with ``reduction="none"``.

    ``weight`` (C) weights the classes, and the mean is divided by the weights of the target classes. Samples of the
    class ``ignore_index`` are ignored. ``label_smoothing`` is the part of the target that is spread over all classes.

    >>> import neurenix as nx
    >>> round(nx.nn.CrossEntropyLoss()(nx.zeros(2, 4), nx.tensor([0, 3])).item(), 4)
    1.3863
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(_Weighted):
    """``-input[class]`` for logarithms of probabilities (N, C, ...), or (C), and classes (N, ...), or (); to a number, or
    to the classes' shape with ``reduction="none"``. ``weight`` and ``ignore_index`` are those of
    :class:`CrossEntropyLoss`.

    >>> import neurenix as nx
    >>> nx.nn.NLLLoss()(nx.Tensor([[-1.0, -2.0], [-3.0, -4.0]]), nx.tensor([1, 0])).item()
    2.5
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class BCELoss(_Weighted):
    """``-(target * log(input) + (1 - target) * log(1 - input))`` for probabilities and targets from 0 to 1 of one shape;
    to a number, or to that shape with ``reduction="none"``. Logarithms are at least -100, as in PyTorch.

    >>> import neurenix as nx
    >>> round(nx.nn.BCELoss()(nx.Tensor([0.5, 0.5]), nx.Tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Weighted):
    """:class:`BCELoss` of ``sigmoid(input)``, without overflow; the shapes are the same. ``pos_weight`` scales the part
    of ``target``, for example for rare classes.

    >>> import neurenix as nx
    >>> round(nx.nn.BCEWithLogitsLoss()(nx.zeros(2, 3), nx.ones(2, 3)).item(), 4)
    0.6931
    """

    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        # The argument order of the published library: weight, pos_weight, reduction.
        if isinstance(reduction, Tensor):
            reduction, pos_weight = (pos_weight if isinstance(pos_weight, str) else "mean"), reduction
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence: ``target * (log(target) - input)`` for logarithms of probabilities and a target
    of one shape; to a number, or to that shape with ``reduction="none"``.

    ``reduction="batchmean"`` divides the sum by the first dimension's size, which is the divergence; ``"mean"`` divides
    by the number of elements. With ``log_target`` the target holds logarithms too.

    >>> import neurenix as nx
    >>> round(nx.nn.KLDivLoss(reduction="batchmean")(nx.Tensor([[-1.0, -2.0]]), nx.Tensor([[1.0, 0.0]])).item(), 4)
    1.0
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class HingeEmbeddingLoss(Loss):
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1: two tensors of one shape, to a number, or to
    that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.nn.HingeEmbeddingLoss(reduction="none")(nx.Tensor([0.5, 0.25]), nx.Tensor([1.0, -1.0])).tolist()
    [0.5, 0.75]
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class CosineEmbeddingLoss(Loss):
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1: two tensors (N, D), or (D), and targets
    (N), or (); to a number, or to the targets' shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> x, y = nx.Tensor([[1.0, 0.0], [1.0, 0.0]]), nx.Tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(nx.nn.CosineEmbeddingLoss()(x, y, nx.Tensor([1.0, 1.0])).item(), 4)
    0.5
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class CTCLoss(Loss):
    """Connectionist temporal classification: the labels of a sequence, at unknown positions.

    Logarithms of probabilities (T, N, C), or (T, C), and targets (N, S), or all labels in a row; lengths are N numbers,
    or one. To a number, or to (N) with ``reduction="none"``; ``"mean"`` first divides each loss by its number of
    labels. See :func:`neurenix.functional.ctc_loss`.

    >>> import neurenix as nx
    >>> scores = nx.randn(20, 2, 5, requires_grad=True)
    >>> loss = nx.nn.CTCLoss()(scores.log_softmax(2), nx.tensor([[1, 2, 2], [3, 4, 0]]), [20, 18], [3, 2])
    >>> loss.shape
    torch.Size([])
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class MarginRankingLoss(Loss):
    """``max(0, margin - target * (x1 - x2))``: a target of 1 requires the first to be greater, -1 the second. Three
    tensors of one shape, to a number, or to that shape with ``reduction="none"``.

    >>> import neurenix as nx
    >>> loss = nx.nn.MarginRankingLoss(margin=1.0)
    >>> loss(nx.Tensor([3.0, 1.0]), nx.Tensor([1.0, 3.0]), nx.Tensor([1.0, 1.0])).item()
    1.5
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class MultiMarginLoss(_Weighted):
    """The mean over classes of ``max(0, margin - score of the correct class + score of another) ** p``: scores (N, C),
    or (C), and classes (N), or (); to a number, or to the classes' shape with ``reduction="none"``. ``weight`` is (C).

    >>> import neurenix as nx
    >>> nx.nn.MultiMarginLoss()(nx.Tensor([[2.0, 1.5, 0.0, 1.0]]), nx.tensor([0])).item()
    0.125
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(Loss):
    """The mean over classes of ``max(0, 1 - score of a correct class + score of a wrong one)``, summed over all such
    pairs: scores (N, C), or (C), and targets of the same shape, whose rows list the correct classes up to the first -1;
    to a number, or to (N) with ``reduction="none"``.

    >>> import neurenix as nx
    >>> nx.nn.MultiLabelMarginLoss()(nx.Tensor([[1.0, 0.5, 0.0, 0.0]]), nx.tensor([[0, -1, 0, 0]])).item()
    0.125
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class SoftMarginLoss(Loss):
    """``log(1 + exp(-target * x))`` for targets of 1 and -1: two tensors of one shape, to a number, or to that shape with
    ``reduction="none"``.

    >>> import neurenix as nx
    >>> round(nx.nn.SoftMarginLoss()(nx.zeros(2), nx.Tensor([1.0, -1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_Weighted):
    """The mean over classes of :class:`BCEWithLogitsLoss`, each class against its absence: scores and targets (N, C), to
    a number, or to (N) with ``reduction="none"``. ``weight`` is (C).

    >>> import neurenix as nx
    >>> nx.nn.MultiLabelSoftMarginLoss(reduction="none")(nx.zeros(2, 3), nx.ones(2, 3)).shape
    torch.Size([2])
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class TripletMarginLoss(Loss):
    """``max(0, distance to the positive - distance to the negative + margin)``: three tensors (N, D), or (D), to a
    number, or to (N), or (), with ``reduction="none"``. With ``swap`` the distance from the positive to the negative
    is used if it is smaller than the latter.

    >>> import neurenix as nx
    >>> anchor, like, unlike = nx.Tensor([[0.0, 0.0]]), nx.Tensor([[3.0, 4.0]]), nx.Tensor([[6.0, 8.0]])
    >>> round(nx.nn.TripletMarginLoss(margin=6.0)(anchor, like, unlike).item(), 4)
    1.0
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(Loss):
    """:class:`TripletMarginLoss` with a custom distance: a function of two tensors that returns one number for each
    pair. The default is that of :class:`PairwiseDistance`.
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class PoissonNLLLoss(Loss):
    """The negative log-likelihood of counts under a Poisson distribution: ``exp(x) - target * x``, or without
    ``log_input`` ``x - target * log(x + eps)``; two tensors of one shape, to a number, or to that shape with
    ``reduction="none"``. ``full`` adds Stirling's approximation of the term that depends on the target alone.

    >>> import neurenix as nx
    >>> round(nx.nn.PoissonNLLLoss(log_input=False)(nx.Tensor([1.0]), nx.Tensor([2.0])).item(), 4)
    1.0
    """

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, self.log_input, self.full, self.eps, self.reduction)


class GaussianNLLLoss(Loss):
    """The negative log-likelihood under normal distributions: ``(log(var) + (input - target) ** 2 / var) / 2``, where
    ``var`` is at least ``eps``; means and targets of one shape, and variances of that shape, or one for each row of the
    last dimension; to a number, or to that shape with ``reduction="none"``. ``full`` adds ``log(2 * pi) / 2``.

    >>> import neurenix as nx
    >>> round(nx.nn.GaussianNLLLoss()(nx.Tensor([1.0]), nx.Tensor([3.0]), nx.Tensor([1.0])).item(), 4)
    2.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


# PyTorch's names of the base classes, for losses of a program's own.
_Loss, _WeightedLoss = Loss, _Weighted

for _name in __all__:
    _class = globals()[_name]
    if _class is not Loss and "__init__" in vars(_class):
        _class.__init__ = with_reduction(_class.__init__)
