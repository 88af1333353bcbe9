"""Pooling and dropout."""

from __future__ import annotations

from typing import Any

from .._engine import Tensor
from . import functional as F
from .functional import Sizes
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


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
    """The greatest element of each window: (N, C, L), or (C, L), to (N, C, L_out), or (C, L_out).

    ``L_out = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``. The default ``stride`` is
    ``kernel_size``; with ``ceil_mode`` a last window may extend beyond the end; padding is never the maximum. With
    ``return_indices`` the elements' indices are returned too.

    >>> import neurenix as nx
    >>> nx.nn.MaxPool1d(2)(nx.Tensor([[[1.0, 3.0, 4.0, 2.0]]])).tolist()
    [[[3.0, 4.0]]]
    """

    _dims = 1


class MaxPool2d(_MaxPool):
    """The greatest element of each window: (N, C, H, W), or (C, H, W), to (N, C, H_out, W_out), or without N. Sizes and
    arguments are those of :class:`MaxPool1d`, as one number or as one for height and one for width.

    >>> import neurenix as nx
    >>> nx.nn.MaxPool2d(2)(nx.arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    _dims = 2


class MaxPool3d(_MaxPool):
    """The greatest element of each window: (N, C, D, H, W), or (C, D, H, W), to (N, C, D_out, H_out, W_out), or without
    N. Sizes and arguments are those of :class:`MaxPool1d`, as one number or as one for each dimension."""

    _dims = 3


# PyTorch's name, which programs give to isinstance().
_MaxPoolNd = _MaxPool


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
            raise TypeError("AvgPool1d: divisor_override is only supported in two and three dimensions")
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
    """The mean of each window: (N, C, L), or (C, L), to (N, C, L_out), or (C, L_out).

    ``L_out = (L + 2 * padding - kernel_size) // stride + 1``. The default ``stride`` is ``kernel_size``; with
    ``ceil_mode`` a last window may extend beyond the end. Padding counts as zeros, or not at all without
    ``count_include_pad``.

    >>> import neurenix as nx
    >>> nx.nn.AvgPool1d(2)(nx.Tensor([[[1.0, 3.0, 2.0, 6.0]]])).tolist()
    [[[2.0, 4.0]]]
    """

    _dims = 1


class AvgPool2d(_AvgPool):
    """The mean of each window: (N, C, H, W), or (C, H, W), to (N, C, H_out, W_out), or without N. Sizes and arguments are
    those of :class:`AvgPool1d`, as one number or as one for height and one for width.

    >>> import neurenix as nx
    >>> nx.nn.AvgPool2d(3, stride=2, padding=1)(nx.zeros(1, 4, 7, 8)).shape
    torch.Size([1, 4, 4, 4])
    """

    _dims = 2


class AvgPool3d(_AvgPool):
    """The mean of each window: (N, C, D, H, W), or (C, D, H, W), to (N, C, D_out, H_out, W_out), or without N. Sizes and
    arguments are those of :class:`AvgPool1d`, as one number or as one for each dimension."""

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
    """The greatest element of each window, one window per output position: (N, C, L), or (C, L), to (N, C,
    output_size), or without N.

    Window ``i`` goes from ``i * L // output_size`` to ``(i + 1) * L / output_size``, rounded up: windows may overlap.

    >>> import neurenix as nx
    >>> nx.nn.AdaptiveMaxPool1d(3)(nx.Tensor([[[1.0, 5.0, 2.0, 4.0]]])).tolist()
    [[[5.0, 5.0, 4.0]]]
    """

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The greatest element of each window, one window per output position: (N, C, H, W), or (C, H, W), to (N, C,
    *output_size), or without N. ``None`` keeps a size; the windows are those of :class:`AdaptiveMaxPool1d`.
    """

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The greatest element of each window, one window per output position: (N, C, D, H, W), or (C, D, H, W), to (N, C,
    *output_size), or without N. ``None`` keeps a size; the windows are those of :class:`AdaptiveMaxPool1d`.
    """

    _function = "adaptive_max_pool3d"


class AdaptiveAvgPool1d(_Adaptive):
    """The mean of each window, one window per output position: (N, C, L), or (C, L), to (N, C, output_size), or without
    N. The windows are those of :class:`AdaptiveMaxPool1d`.

    >>> import neurenix as nx
    >>> nx.nn.AdaptiveAvgPool1d(2)(nx.Tensor([[[1.0, 3.0, 4.0, 8.0]]])).tolist()
    [[[2.0, 6.0]]]
    """

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive):
    """The mean of each window, one window per output position: (N, C, H, W), or (C, H, W), to (N, C, *output_size), or
    without N. ``None`` keeps a size; the windows are those of :class:`AdaptiveMaxPool1d`.

    >>> import neurenix as nx
    >>> nx.nn.AdaptiveAvgPool2d(1)(nx.zeros(2, 8, 5, 7)).shape, nx.nn.AdaptiveAvgPool2d((3, None))(nx.zeros(8, 5, 7)).shape
    (torch.Size([2, 8, 1, 1]), torch.Size([8, 3, 7]))
    """

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive):
    """The mean of each window, one window per output position: (N, C, D, H, W), or (C, D, H, W), to (N, C,
    *output_size), or without N. ``None`` keeps a size; the windows are those of :class:`AdaptiveMaxPool1d`.
    """

    _function = "adaptive_avg_pool3d"


class Dropout(Module):
    """In training, zeros each element with probability ``p`` and divides the others by ``1 - p``; any shape to the
    same. ``inplace`` is accepted and has no effect.

    >>> import neurenix as nx
    >>> nx.nn.Dropout(0.5).eval()(nx.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    >>> set(nx.nn.Dropout(0.5)(nx.ones(1000)).tolist()) == {0.0, 2.0}
    True
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"{type(self).__name__}: p is {p}, it must be a probability between 0 and 1")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """In training, zeros whole channels of (N, C, L) with probability ``p`` and divides the others by ``1 - p``. The
    shape is unchanged.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(Dropout1d):
    """In training, zeros whole channels of (N, C, H, W) with probability ``p`` and divides the others by ``1 - p``. The
    shape is unchanged.
    """


class Dropout3d(Dropout1d):
    """In training, zeros whole channels of (N, C, D, H, W) with probability ``p`` and divides the others by ``1 - p``.
    The shape is unchanged.
    """
