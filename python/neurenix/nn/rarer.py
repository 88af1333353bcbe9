"""Rarer layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _engine
from .._engine import Tensor
from . import functional as F
from .container import ModuleList, Sequential
from .functional import Sizes
from .linear import Linear
from .module import Module
from .pooling import Dropout

__all__ = [
    "AdaptiveLogSoftmaxWithLoss",
    "AlphaDropout",
    "ChannelShuffle",
    "FeatureAlphaDropout",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class AlphaDropout(Dropout):
    """In training, sets each element to the negative limit of SELU with probability ``p``, and keeps mean 0 and
    variance 1: for networks of SELU. Any shape to the same.

    >>> import neurenix as nx
    >>> nx.nn.AlphaDropout(0.5).eval()(nx.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """:class:`AlphaDropout` of whole channels of (N, C, ...)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)


class ChannelShuffle(Module):
    """Divides the channels of (N, C, ...) into groups, and takes one of each group in turn. The shape is unchanged."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class _FractionalMaxPool(Module):
    _dims: int

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name, dims = type(self).__name__, self._dims
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{name}: expected either output_size or output_ratio")
        ratio = (output_ratio,) * dims if isinstance(output_ratio, float) else output_ratio
        if ratio is not None and not all(0 < each < 1 for each in ratio):
            raise ValueError(f"{name}: output_ratio must be between 0 and 1, got {output_ratio}")
        self.kernel_size = F.each(kernel_size, dims, "kernel_size")
        self.output_size = None if output_size is None else F.each(output_size, dims, "output_size")
        self.output_ratio, self.return_indices = ratio, return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        pool = F.fractional_max_pool2d if self._dims == 2 else F.fractional_max_pool3d
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest element of each window of (N, C, H, W) or (C, H, W): ``output_size`` windows, or ``output_ratio``
    times the size, at random places (Graham, "Fractional max-pooling", 2014). ``return_indices`` returns their
    positions, too.

    >>> import neurenix as nx
    >>> nx.nn.FractionalMaxPool2d(2, output_ratio=0.6)(nx.ones(1, 3, 10, 20)).shape
    torch.Size([1, 3, 6, 12])
    """

    _dims = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """:class:`FractionalMaxPool2d` of (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class _LPPool(Module):
    _dims: int

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[self._dims - 1]
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        text = f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{text}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The root of the sum of powers ``norm_type`` in each window of (N, C, L) or (C, L), which are those of
    :class:`AvgPool1d`.

    >>> import neurenix as nx
    >>> nx.nn.LPPool1d(2, 2)(nx.tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    _dims = 1


class LPPool2d(_LPPool):
    """:class:`LPPool1d` for (N, C, H, W) or (C, H, W)."""

    _dims = 2


class LPPool3d(_LPPool):
    """:class:`LPPool1d` for (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class _MaxUnpool(Module):
    _dims: int

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()

        def sizes(value: Sizes) -> Sizes:
            return (value,) * self._dims if isinstance(value, int) else tuple(value)

        self.kernel_size, self.padding = sizes(kernel_size), sizes(padding)
        self.stride = sizes(kernel_size if stride is None else stride)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[self._dims - 1]
        result: Tensor = unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)
        return result

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts the results of :class:`MaxPool1d` back to the indices that it returned, among zeros: (N, C, L) or (C, L).

    >>> import neurenix as nx
    >>> values, indices = nx.nn.MaxPool1d(2, return_indices=True)(nx.tensor([[[1.0, 2.0, 4.0, 3.0]]]))
    >>> nx.nn.MaxUnpool1d(2)(values, indices).tolist()
    [[[0.0, 2.0, 4.0, 0.0]]]
    """

    _dims = 1


class MaxUnpool2d(_MaxUnpool):
    """:class:`MaxUnpool1d` for (N, C, H, W) or (C, H, W)."""

    _dims = 2


class MaxUnpool3d(_MaxUnpool):
    """:class:`MaxUnpool1d` for (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3


class AdaptiveLogSoftmaxResult(NamedTuple):
    """The log-probabilities of the targets, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """An approximation of softmax for many classes, sorted by frequency (Grave et al., 2017). The classes below
    ``cutoffs[0]`` have their own scores; the others are in clusters between the cutoffs, each with
    ``in_features / div_value ** number`` features.

    ``forward(input, target)`` takes (N, in_features) and (N), or without N, and returns ``output`` (the
    log-probabilities of the targets) and ``loss`` (minus their mean).

    >>> import neurenix as nx
    >>> layer = nx.nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs=[2, 5])
    >>> output, loss = layer(nx.randn(3, 8), nx.tensor([0, 3, 9]))
    >>> output.shape, layer.log_prob(nx.randn(3, 8)).shape
    (torch.Size([3]), torch.Size([3, 10]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        valid = cutoffs and cutoffs == sorted(set(cutoffs)) and cutoffs[0] > 0 and cutoffs[-1] <= n_classes - 1
        if not valid or any(int(each) != each for each in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for number in range(self.n_clusters):
            features = int(in_features // div_value ** (number + 1))
            classes = self.cutoffs[number + 1] - self.cutoffs[number]
            first = Linear(in_features, features, bias=False, **place)
            self.tail.append(Sequential(first, Linear(features, classes, bias=False, **place)))

    def reset_parameters(self) -> None:
        """Draws new values."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> AdaptiveLogSoftmaxResult:
        is_batch = target.ndim > 0
        if target.ndim > 1 or input.ndim != target.ndim + 1:
            raise RuntimeError("0D or 1D target tensor expected, and an input with one dimension more")
        if is_batch and input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        rows, classes = (input, target) if is_batch else (input.unsqueeze(0), target.unsqueeze(0))
        scores = self.log_prob(rows)
        output = scores.gather(1, classes.unsqueeze(1)).squeeze(1)
        return AdaptiveLogSoftmaxResult(output if is_batch else output.squeeze(0), -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            place = self.shortlist_size + number
            parts.append(F.log_softmax(cluster(input), 1) + head[:, place : place + 1])
        return _engine.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable classes: (N)."""
        return self.log_prob(input).argmax(1)
