"""Normalisations."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from . import functional as F, init
from .functional import Sizes
from .linear import new
from .module import Module
from .parameter import Parameter

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
]


def _ones(*sizes: int, dtype: Any, device: Any) -> Parameter:
    return Parameter(_engine.ones(*sizes, dtype=dtype, device=device))


class _Running(Module):
    """Weight, bias and running statistics of channels."""

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _version = 2

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        place: dict[str, Any] = {"dtype": dtype, "device": device}
        self.register_parameter("weight", _ones(num_features, **place) if affine else None)
        self.register_parameter("bias", new(num_features, **place) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", _engine.zeros(num_features, **place) if tracked else None)
        self.register_buffer("running_var", _engine.ones(num_features, **place) if tracked else None)
        count = _engine.zeros((), dtype="int64", device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    _ranks: tuple[int, ...]

    def _load_from_state_dict(  # pyright: ignore
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        # States of before version 2, as those without a version count, may lack the number of batches.
        key, count = f"{prefix}num_batches_tracked", self.num_batches_tracked
        if count is not None and key not in state_dict and local_metadata.get("version", 1) < 2:
            state_dict[key] = count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def reset_running_stats(self) -> None:
        """Sets the running means to 0, the variances to 1, and the count of batches to 0."""
        with no_grad():
            for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
                if buffer is not None:
                    buffer.fill_(value)

    def reset_parameters(self) -> None:
        """Resets the running statistics, and sets the weights to 1 and the biases to 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check(self, input: Tensor) -> None:
        kind = type(self).__name__
        if input.ndim not in self._ranks:
            ranks = " or ".join(map(str, self._ranks))
            raise ValueError(f"{kind}: expected an input of {ranks} dimensions, got shape {tuple(input.shape)}")

    def extra_repr(self) -> str:
        text = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{text}, track_running_stats={self.track_running_stats}"


class _BatchNorm(_Running):
    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if not self.training or mean is None or variance is None or count is None:
            by_batch = self.training or mean is None
            return F.batch_norm(input, mean, variance, self.weight, self.bias, by_batch, 0.0, self.eps)
        momentum = 1.0 / (count.item() + 1) if self.momentum is None else self.momentum
        _engine.follow_step([mean, variance, count])
        result = F.batch_norm(input, mean, variance, self.weight, self.bias, True, momentum, self.eps)
        # Counted only if the input was accepted.
        count.add_(1)
        return result


class BatchNorm1d(_BatchNorm):
    """Normalises each feature of (N, C) or (N, C, L) over the batch: ``(x - mean) / sqrt(variance + eps) * weight +
    bias``. The shape is unchanged.

    In training, mean and (biased) variance are those of the batch, and ``running = (1 - momentum) * running + momentum
    * batch``, with the unbiased variance. With a ``momentum`` of ``None``, the running statistics are the mean over all
    batches. In evaluation, the running statistics are used. ``weight``, ``bias``, ``running_mean`` and ``running_var``
    are (C).

    >>> import neurenix as nx
    >>> layer = nx.nn.BatchNorm1d(2, momentum=0.5)
    >>> layer(nx.Tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    torch.Size([2, 2])
    >>> layer.running_mean.tolist(), layer.num_batches_tracked.item()
    ([1.0, 1.5], 1)
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises each channel of (N, C, H, W) over the batch, as :class:`BatchNorm1d` does. The shape is unchanged."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises each channel of (N, C, D, H, W) over the batch, as :class:`BatchNorm1d` does. The shape is unchanged.
    """

    _ranks = (5,)


class _InstanceNorm(_Running):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        single = input.ndim < max(self._ranks)
        mean, variance, momentum = self.running_mean, self.running_var, self.momentum
        by_sample = self.training or mean is None
        if self.training and mean is not None and variance is not None:
            _engine.follow_step([mean, variance])
        result = F.instance_norm(
            input.unsqueeze(0) if single else input,
            mean,
            variance,
            self.weight,
            self.bias,
            by_sample,
            0.0 if momentum is None else momentum,
            self.eps,
        )
        return result.squeeze(0) if single else result


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, L), or (C, L): ``(x - mean) / sqrt(variance + eps)``, times
    ``weight`` plus ``bias`` with ``affine``, both (C). The shape is unchanged.

    >>> import neurenix as nx
    >>> nx.nn.InstanceNorm1d(3)(nx.zeros(2, 3, 5)).shape
    torch.Size([2, 3, 5])
    """

    _ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, H, W), or (C, H, W), as :class:`InstanceNorm1d` does. The shape
    is unchanged.
    """

    _ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, D, H, W), or (C, D, H, W), as :class:`InstanceNorm1d` does. The
    shape is unchanged.
    """

    _ranks = (4, 5)


class LayerNorm(Module):
    """Normalises over the last dimensions: ``(x - mean) / sqrt(variance + eps) * weight + bias`` with the biased
    variance, (..., *normalized_shape) to the same shape. ``weight`` and ``bias`` have the shape ``normalized_shape``.

    >>> import neurenix as nx
    >>> layer = nx.nn.LayerNorm((4, 5))
    >>> layer(nx.zeros(2, 3, 4, 5)).shape, layer.weight.shape
    (torch.Size([2, 3, 4, 5]), torch.Size([4, 5]))
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        affine, place = elementwise_affine, {"dtype": dtype, "device": device}
        self.register_parameter("weight", _ones(*shape, **place) if affine else None)
        self.register_parameter("bias", new(*shape, **place) if affine and bias else None)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """Divides by the root mean square over the last dimensions: ``x / sqrt(mean(x * x) + eps) * weight``, (...,
    *normalized_shape) to the same shape. The default ``eps`` is the epsilon of the dtype of the computation.

    >>> import neurenix as nx
    >>> nx.nn.RMSNorm(8)(nx.zeros(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        weight = _ones(*shape, dtype=dtype, device=device) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """Divides by a power of the mean square of neighbouring channels of (N, C, ...)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class GroupNorm(Module):
    """Normalises over groups of neighbouring channels of each sample: (N, C, ...) to the same shape, by
    :class:`LayerNorm`'s formula. ``weight`` and ``bias`` are (C).

    >>> import neurenix as nx
    >>> nx.nn.GroupNorm(2, 6)(nx.zeros(4, 6, 5, 5)).shape
    torch.Size([4, 6, 5, 5])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels are not divisible by {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        place = {"dtype": dtype, "device": device}
        self.register_parameter("weight", _ones(num_channels, **place) if affine else None)
        self.register_parameter("bias", new(num_channels, **place) if affine else None)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
