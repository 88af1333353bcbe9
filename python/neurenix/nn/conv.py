"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from typing import Any

from .._engine import Tensor
from . import functional as F
from . import init
from .functional import Sizes, each
from .linear import new
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Convolution(Module):
    _dims: int
    _turned = False
    weight: Parameter
    bias: Parameter | None

    def _build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        output_padding: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        dims, kind = self._dims, type(self).__name__
        modes = ("zeros",) if self._turned else ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(f"{kind}: padding_mode is {padding_mode!r}, it must be one of {', '.join(modes)}")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{kind}: {in_channels} and {out_channels} channels are not divisible by {groups} groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each(kernel_size, dims, "kernel_size")
        self.stride, self.dilation = each(stride, dims, "stride"), each(dilation, dims, "dilation")
        self.output_padding = each(output_padding, dims, "output_padding")
        for name in ("kernel_size", "stride", "dilation"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{kind}: {name} is {getattr(self, name)}, it must be at least 1")
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f'{kind}: padding is {padding!r}, it must be "same", "valid" or numbers')
            if padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError(f'{kind}: padding="same" requires a stride of 1')
            self.padding: Any = padding
        else:
            self.padding = each(padding, dims, "padding")
        outer, inner = (in_channels, out_channels) if self._turned else (out_channels, in_channels)
        self.weight = new(outer, inner // groups, *self.kernel_size, dtype=dtype, device=device)
        self.register_parameter("bias", new(out_channels, dtype=dtype, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values, uniform in +-1 / sqrt(fan_in)."""
        fan_in, _ = init.fans(self.weight)
        bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        zeros, ones = (0,) * self._dims, (1,) * self._dims
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != zeros:
            text += f", padding={self.padding}"
        if self.dilation != ones:
            text += f", dilation={self.dilation}"
        if self.output_padding != zeros:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        text += "" if self.bias is not None else ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode!r}")


# PyTorch's name, which programs give to isinstance().
_ConvNd = _Convolution


class _Forward(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._build(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            0,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._dims - 1]
        padding = self.padding
        if self.padding_mode != "zeros" and padding != "valid":
            input, padding = F.pad(input, self._borders(), mode=self.padding_mode), 0
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _borders(self) -> list[int]:
        """The widths on both sides, from the last dimension to the first; an odd remainder goes to the end."""
        widths: list[int] = []
        for dim in reversed(range(self._dims)):
            if self.padding == "same":
                total = self.dilation[dim] * (self.kernel_size[dim] - 1)
                widths += [total // 2, total - total // 2]
            else:
                widths += [self.padding[dim]] * 2
        return widths


class Conv1d(_Forward):
    """A 1D convolution: (N, in_channels, L), or (in_channels, L), to (N, out_channels, L_out), or without N.

    ``L_out = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``. ``padding`` may be ``"same"`` (with
    a stride of 1: ``L_out = L``) or ``"valid"`` (0). ``weight`` is (out_channels, in_channels / groups, kernel_size),
    ``bias`` (out_channels). As in PyTorch it is a cross-correlation: the kernel is not flipped.

    >>> import neurenix as nx
    >>> nx.nn.Conv1d(2, 4, kernel_size=3, stride=2)(nx.zeros(1, 2, 9)).shape
    torch.Size([1, 4, 4])
    """

    _dims = 1


class Conv2d(_Forward):
    """A 2D convolution: (N, in_channels, H, W), or (in_channels, H, W), to (N, out_channels, H_out, W_out), or without
    N.

    Sizes and arguments are those of :class:`Conv1d`, as one number or as one for height and one for width.

    >>> import neurenix as nx
    >>> nx.nn.Conv2d(3, 8, kernel_size=3, padding="same")(nx.zeros(1, 3, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    >>> nx.nn.Conv2d(4, 4, (3, 1), stride=(2, 1), groups=4)(nx.zeros(4, 7, 6)).shape
    torch.Size([4, 3, 6])
    """

    _dims = 2


class Conv3d(_Forward):
    """A 3D convolution: (N, in_channels, D, H, W), or (in_channels, D, H, W), to (N, out_channels, D_out, H_out,
    W_out), or without N. Sizes and arguments are those of :class:`Conv1d`, as one number or as one for each dimension.

    >>> import neurenix as nx
    >>> nx.nn.Conv3d(1, 2, kernel_size=2)(nx.zeros(1, 1, 3, 4, 5)).shape
    torch.Size([1, 2, 2, 3, 4])
    """

    _dims = 3


class _Transposed(_Convolution):
    _turned = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._build(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            each(padding, self._dims, "padding"),
            output_padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Sizes | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._dims - 1]
        return convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra(self, input: Tensor, output_size: Sizes) -> tuple[int, ...]:
        """The output padding that gives the requested size."""
        dims = self._dims
        wanted = each(output_size if isinstance(output_size, int) else tuple(output_size)[-dims:], dims, "output_size")
        settings = zip(
            input.shape[-dims:], self.kernel_size, self.stride, self.padding, self.dilation, wanted, strict=True
        )
        extra = []
        for size, kernel, stride, padding, dilation, output in settings:
            least = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
            if not least <= output < least + stride:
                raise ValueError(f"output_size: {output} must be between {least} and {least + stride - 1}")
            extra.append(output - least)
        return tuple(extra)


_ConvTransposeNd = _Transposed


class ConvTranspose1d(_Transposed):
    """A 1D transposed convolution: (N, in_channels, L), or (in_channels, L), to (N, out_channels, L_out), or without N.

    ``L_out = (L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1``; ``layer(x,
    output_size)`` finds the ``output_padding``. ``weight`` is (in_channels, out_channels / groups, kernel_size), ``bias``
    (out_channels).

    >>> import neurenix as nx
    >>> layer = nx.nn.ConvTranspose1d(4, 2, kernel_size=3, stride=2)
    >>> layer(nx.zeros(1, 4, 5)).shape, layer(nx.zeros(1, 4, 5), output_size=12).shape
    (torch.Size([1, 2, 11]), torch.Size([1, 2, 12]))
    """

    _dims = 1


class ConvTranspose2d(_Transposed):
    """A 2D transposed convolution: (N, in_channels, H, W), or (in_channels, H, W), to (N, out_channels, H_out, W_out),
    or without N. Sizes and arguments are those of :class:`ConvTranspose1d`, for both dimensions.

    >>> import neurenix as nx
    >>> nx.nn.ConvTranspose2d(4, 2, kernel_size=2, stride=2)(nx.zeros(1, 4, 3, 5)).shape
    torch.Size([1, 2, 6, 10])
    """

    _dims = 2


class ConvTranspose3d(_Transposed):
    """A 3D transposed convolution: (N, in_channels, D, H, W), or (in_channels, D, H, W), to (N, out_channels, D_out,
    H_out, W_out), or without N. Sizes and arguments are those of :class:`ConvTranspose1d`, for each dimension.
    """

    _dims = 3
