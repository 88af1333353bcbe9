"""Windows brought to one number each, and dropout."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import functional as F
from .functional import Sizes
from .module import Module


class _MaxPool(Module):
    _dims: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[self._dims - 1]
        return pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        text = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{text}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPool):
    """The greatest element of each window of (N, C, L)."""

    _dims = 1


class MaxPool2d(_MaxPool):
    """The greatest element of each window of (N, C, H, W)."""

    _dims = 2


class MaxPool3d(_MaxPool):
    """The greatest element of each window of (N, C, D, H, W)."""

    _dims = 3


class _AvgPool(Module):
    _dims: int

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        if divisor_override is not None and self._dims == 1:
            raise TypeError("AvgPool1d: divisor_override is for images and volumes")
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        if self._dims == 1:
            return F.avg_pool1d(input, *settings)
        pool = F.avg_pool2d if self._dims == 2 else F.avg_pool3d
        return pool(input, *settings, self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L)."""

    _dims = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W)."""

    _dims = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    _dims = 3


class _Adaptive(Module):
    _function: str

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return getattr(F, self._function)(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The greatest elements of as many windows as the output has places."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The greatest elements of as many windows as the output has places; ``None`` keeps a size."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The greatest elements of as many windows as the output has places; ``None`` keeps a size."""

    _function = "adaptive_max_pool3d"


class AdaptiveAvgPool1d(_Adaptive):
    """The means of as many windows as the output has places."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive):
    """The means of as many windows as the output has places; ``None`` keeps a size."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive):
    """The means of as many windows as the output has places; ``None`` keeps a size."""

    _function = "adaptive_avg_pool3d"


class Dropout(Module):
    """In training, zeros elements with probability ``p`` and divides the others by ``1 - p``."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"{type(self).__name__}: p is {p}, a probability is between 0 and 1")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """In training, zeros whole channels of (N, C, L) with probability ``p``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(Dropout1d):
    """In training, zeros whole channels of (N, C, H, W) with probability ``p``."""


class Dropout3d(Dropout1d):
    """In training, zeros whole channels of (N, C, D, H, W) with probability ``p``."""
