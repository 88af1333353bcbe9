"""Padding layers, and windows of images as columns."""

from __future__ import annotations

from .._engine import Tensor
from . import functional as F
from .functional import Sizes
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "Fold",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "Unfold",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

_DIMENSIONS = {1: "L", 2: "H, W", 3: "D, H, W"}
# For each padding rule: the mode of ``functional.pad``, and the description of the borders.
_RULES = {
    "value": ("constant", "one value"),
    "zeros": ("constant", "zeros"),
    "reflection": ("reflect", "the interior, mirrored"),
    "replication": ("replicate", "the outermost elements"),
    "circular": ("circular", "the elements at the opposite end"),
}
_WIDTHS = """``padding`` is one width for all sides, or a pair for each of these dimensions, from the last one to the first; a
    size grows by its two widths. """
_LIMITS = {
    "value": "A negative width removes elements.",
    "zeros": "A negative width removes elements.",
    "reflection": "A width must be less than the size; a negative one removes elements.",
    "replication": "The size must not be 0. A negative width removes elements.",
    "circular": "A width must be at most the size; a negative one removes elements.",
}


class _Pad(Module):
    """Pads the last dimensions. The class arguments set their number and the padding rule.

    >>> import neurenix as nx
    >>> nx.nn.ZeroPad2d((1, 0, 0, 2))(nx.ones(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 3])
    >>> nx.nn.CircularPad1d(1)(nx.Tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[3.0, 1.0, 2.0, 3.0, 1.0]]]
    >>> nx.nn.ReflectionPad1d((2, 0))(nx.Tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[3.0, 2.0, 1.0, 2.0, 3.0]]]
    >>> nx.nn.ReplicationPad1d(1)(nx.Tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 3.0, 3.0]]]
    >>> nx.nn.ReflectionPad3d.__doc__.splitlines()[0]
    'Pads (N, C, D, H, W), or (C, D, H, W), with the interior, mirrored.'
    """

    _dims: int
    _mode: str

    def __init_subclass__(cls, dims: int = 0, rule: str = "") -> None:
        super().__init_subclass__()
        if dims:  # A user's subclass inherits the settings instead.
            cls._dims, (cls._mode, borders) = dims, _RULES[rule]
            shape = _DIMENSIONS[dims]
            cls.__doc__ = f"Pads (N, C, {shape}), or (C, {shape}), with {borders}.\n\n    {_WIDTHS}{_LIMITS[rule]}"

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        widths = (padding,) * (2 * self._dims) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self._dims:
            raise ValueError(f"{type(self).__name__}: expected {2 * self._dims} widths or one, got {len(widths)}")
        self.padding = widths

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, dims=1, rule="value"): ...


class ConstantPad2d(_ConstantPad, dims=2, rule="value"): ...


class ConstantPad3d(_ConstantPad, dims=3, rule="value"): ...


class ZeroPad1d(_Pad, dims=1, rule="zeros"): ...


class ZeroPad2d(_Pad, dims=2, rule="zeros"): ...


class ZeroPad3d(_Pad, dims=3, rule="zeros"): ...


class ReflectionPad1d(_Pad, dims=1, rule="reflection"): ...


class ReflectionPad2d(_Pad, dims=2, rule="reflection"): ...


class ReflectionPad3d(_Pad, dims=3, rule="reflection"): ...


class ReplicationPad1d(_Pad, dims=1, rule="replication"): ...


class ReplicationPad2d(_Pad, dims=2, rule="replication"): ...


class ReplicationPad3d(_Pad, dims=3, rule="replication"): ...


class CircularPad1d(_Pad, dims=1, rule="circular"): ...


class CircularPad2d(_Pad, dims=2, rule="circular"): ...


class CircularPad3d(_Pad, dims=3, rule="circular"): ...


class Unfold(Module):
    """The windows of images as columns: (N, C, H, W), or (C, H, W), to (N, C * kernel elements, windows), or without N.

    >>> import neurenix as nx
    >>> nx.nn.Unfold(kernel_size=2)(nx.zeros(1, 3, 4, 5)).shape
    torch.Size([1, 12, 12])
    """

    def __init__(self, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        text = f"kernel_size={self.kernel_size}, dilation={self.dilation}"
        return f"{text}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Sums columns into images: (N, C * kernel elements, windows), or without N, to (N, C, *output_size): the adjoint
    of :class:`Unfold`.

    >>> import neurenix as nx
    >>> nx.nn.Fold((4, 5), kernel_size=2)(nx.zeros(1, 12, 12)).shape
    torch.Size([1, 3, 4, 5])
    """

    def __init__(
        self, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        text = f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}"
        return f"{text}, padding={self.padding}, stride={self.stride}"
