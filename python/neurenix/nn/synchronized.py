"""Batch normalisation over the rows of all ranks."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ..distributed import _groups, functional
from .module import Module
from .normalization import _BatchNorm

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """As :class:`BatchNorm1d`, for inputs (N, C, ...) of at least 2 dimensions, but in training with mean and variance
    over the rows of all ranks of ``process_group`` (by default of the job). The ranks may have different numbers of
    rows.

    One collective gathers each rank's count, means and sums of squared deviations. Its gradient is another one, so
    every rank must compute the backward pass. In evaluation, on a single rank, and without a process group, it is
    :class:`BatchNorm1d`.

    >>> import neurenix as nx
    >>> model = nx.nn.Sequential(nx.nn.Linear(3, 2), nx.nn.BatchNorm1d(2))
    >>> nx.nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]
    SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replaces every batch normalisation in a module, and returns the module: a ``SyncBatchNorm`` if it is one
        itself. Parameters and buffers stay the same objects, so optimisers can be made before or after.
        """
        if isinstance(module, _BatchNorm):
            if isinstance(module, SyncBatchNorm):
                return module
            sizes = (module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            converted = cls(*sizes, process_group)
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
            return converted
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = cls.convert_sync_batchnorm(child, process_group)
        return module

    def _check(self, input: Tensor) -> None:
        if input.ndim < 2 or input.shape[1] != self.num_features:
            shape = f"(N, {self.num_features}, ...)"
            raise ValueError(f"SyncBatchNorm: expected an input of shape {shape}, got {tuple(input.shape)}")

    def _group(self) -> ProcessGroup | None:
        if self.process_group is None and not _groups.is_initialized():
            return None
        return _groups.group_or_world(self.process_group, "SyncBatchNorm")

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        group = self._group()
        by_batch = self.training or self.running_mean is None
        if group is None or group.size() == 1 or not by_batch:
            return super().forward(input)
        wide = input.float() if input.itemsize < 4 else input
        shape = (1, -1, *[1] * (input.ndim - 2))
        mean, squares, total = self._statistics(wide, shape, group)
        if self.training:
            self._follow(mean, squares, total)
        factor = (squares / total + self.eps).rsqrt()
        if self.weight is not None:
            factor = factor * self.weight.to(wide.dtype)
        result = (wide - mean.reshape(shape)) * factor.reshape(shape)
        if self.bias is not None:
            result = result + self.bias.to(wide.dtype).reshape(shape)
        return result.to(input.dtype)

    def _statistics(
        self, input: Tensor, shape: tuple[int, ...], group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mean and the sum of squared deviations of each channel over all ranks, and their number of rows."""
        axes, channels = (0, *range(2, input.ndim)), self.num_features
        rows = input.numel() // max(channels, 1)
        own_mean = input.sum(axes) / max(rows, 1)
        # Deviations from the rank's own mean: a difference of large sums would lose digits.
        own_squares = (input - own_mean.reshape(shape)).square().sum(axes)
        own_rows = _engine.full((1,), float(rows), dtype=input.dtype, device=input.device)
        ranks = functional.all_gather(_engine.cat([own_mean, own_squares, own_rows], 0).unsqueeze(0), group)
        means, squares, counts = ranks[:, :channels], ranks[:, channels:-1], ranks[:, -1:]
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        return mean, (squares + counts * (means - mean).square()).sum(0), total

    def _follow(self, mean: Tensor, squares: Tensor, total: Tensor) -> None:
        """Moves the running statistics towards those of the batch."""
        running_mean, running_variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if running_mean is None or running_variance is None or count is None:
            return
        momentum = 1.0 / (count.item() + 1) if self.momentum is None else self.momentum
        _engine.follow_step([running_mean, running_variance, count])
        with no_grad():
            running_mean.copy_(running_mean.lerp(mean.detach().to(running_mean.dtype), momentum))
            unbiased = squares.detach() / (total - 1)
            running_variance.copy_(running_variance.lerp(unbiased.to(running_variance.dtype), momentum))
            count.add_(1)
