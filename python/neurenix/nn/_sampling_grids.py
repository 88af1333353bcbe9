"""Sampling of images at places between their pixels."""

from __future__ import annotations

import itertools
from typing import Any

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor

__all__ = ["affine_grid", "grid_sample"]


def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The places that affine maps ``theta`` give the pixels of images of a size: (N, 2, 3) and (N, C, H, W) to
    (N, H, W, 2), or (N, 3, 4) and (N, C, D, H, W) to (N, D, H, W, 3). Places are x, y and z from -1 to 1, from one
    border of the image to the other, or between the centres of the outermost pixels with ``align_corners``.

    >>> import neurenix as nx
    >>> same = nx.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> nx.functional.affine_grid(same, (1, 1, 1, 2), align_corners=False).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    sizes = [int(each) for each in size]
    dims = len(sizes) - 2
    if dims not in (2, 3) or tuple(theta.shape) != (sizes[0], dims, dims + 1):
        raise ValueError(
            "affine_grid: expected theta (N, 2, 3) and a size of 4 numbers, or (N, 3, 4) and 5 numbers, got "
            f"{tuple(theta.shape)} and {tuple(sizes)}"
        )
    if not theta.is_floating_point():
        raise TypeError(f"affine_grid: expected theta of a floating-point dtype, got {theta.dtype}")
    place: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    axes = []
    for number, count in enumerate(sizes[2:]):
        steps = _engine.arange(count, device=theta.device).to(theta.dtype)
        if align_corners:
            axis = steps * (2.0 / (count - 1)) - 1.0 if count > 1 else steps
        else:
            axis = (steps * 2.0 + 1.0) / count - 1.0
        shape = [1] * dims
        shape[number] = count
        axes.append(axis.reshape(shape).expand(sizes[2:]))
    # x is along the last dimension.
    places = _engine.stack([*reversed(axes), _engine.full(sizes[2:], 1.0, **place)], -1).reshape(-1, dims + 1)
    return (places @ theta.mT).reshape(sizes[0], *sizes[2:], dims)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The values of images at places: (N, C, H, W) and (N, H_out, W_out, 2) to (N, C, H_out, W_out), or (N, C, D, H,
    W) and (N, D_out, H_out, W_out, 3) to (N, C, D_out, H_out, W_out). Places are as those of :func:`affine_grid`.

    ``mode`` is ``"bilinear"``, ``"nearest"``, or ``"bicubic"`` for four dimensions. ``padding_mode`` says what is
    beyond the border: ``"zeros"``, ``"border"`` (the outermost pixels), or ``"reflection"``. NaN places count as -1.

    >>> import neurenix as nx
    >>> image = nx.tensor([[[[1.0, 3.0]]]])
    >>> nx.functional.grid_sample(image, nx.tensor([[[[0.0, 0.0]]]]), align_corners=False).tolist()
    [[[[2.0]]]]
    """
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0] or grid.shape[-1] != dims:
        raise ValueError(
            "grid_sample: expected input (N, C, H, W) and grid (N, H_out, W_out, 2), or with one dimension more, got "
            f"{tuple(input.shape)} and {tuple(grid.shape)}"
        )
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and dims == 3):
        raise ValueError(f'grid_sample: mode is {mode!r}, it must be "bilinear", "nearest" or, for 4 dimensions, "bicubic"')
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f'grid_sample: padding_mode is {padding_mode!r}, it must be "zeros", "border" or "reflection"')
    if min(input.shape[2:]) < 1:
        raise ValueError(f"grid_sample: the image is empty: {tuple(input.shape)}")
    image = _Image(input, padding_mode, bool(align_corners))
    grid = _engine.where(grid.isnan(), _engine.full_like(grid, -1.0), grid)
    # From the first spatial dimension to the last.
    places = [image.in_pixels(grid[..., dims - 1 - number], number) for number in range(dims)]
    if mode == "bicubic":
        return image.bicubic(places)
    places = [image.inside(place, number) for number, place in enumerate(places)]
    return image.at([place.round() for place in places]) if mode == "nearest" else image.linear(places)


class _Image:
    """Images (N, C, ...), and what is beyond their borders."""

    def __init__(self, input: Tensor, padding_mode: str, align_corners: bool) -> None:
        self.sizes = input.shape[2:]
        self.flat = input.reshape(*input.shape[:2], -1)
        self.padding_mode, self.align_corners = padding_mode, align_corners

    def in_pixels(self, place: Tensor, number: int) -> Tensor:
        """A coordinate from -1 to 1 as a pixel's number."""
        size = self.sizes[number]
        return (place + 1.0) * ((size - 1) / 2.0) if self.align_corners else ((place + 1.0) * size - 1.0) / 2.0

    def inside(self, place: Tensor, number: int) -> Tensor:
        """A pixel's number within the image, unless zeros are beyond it."""
        size = self.sizes[number]
        if self.padding_mode == "zeros":
            return place
        if self.padding_mode == "reflection":
            low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
            if low == high:
                return place * 0.0
            span = high - low
            distance = (place - low).abs()
            flips = (distance / span).floor().detach()
            rest = distance - flips * span
            is_even = (flips.remainder(2.0) == 0.0)
            place = _engine.where(is_even, rest + low, span - rest + low)
        return place.clamp(0.0, size - 1.0)

    def at(self, places: list[Tensor]) -> Tensor:
        """The pixels with these numbers, which are whole; 0 outside."""
        index, is_inside = None, None
        for place, size in zip(places, self.sizes, strict=True):
            within = (place >= 0.0) & (place <= size - 1.0)
            whole = _engine.where(within, place, place * 0.0).detach()
            # Infinite places are outside.
            number = _engine.where(within, whole, _engine.full_like(whole, 0.0)).to("int64")
            index = number if index is None else index * size + number
            is_inside = within if is_inside is None else is_inside & within
        assert index is not None and is_inside is not None
        count, channels = self.flat.shape[:2]
        shape = (count, channels, *index.shape[1:])
        flat = index.reshape(count, 1, -1).expand(count, channels, index.numel() // max(1, count))
        values = self.flat.gather(2, flat).reshape(shape)
        return _engine.where(is_inside.unsqueeze(1), values, _engine.full_like(values, 0.0))

    def linear(self, places: list[Tensor]) -> Tensor:
        """The mean of the pixels around a place, weighted by their closeness."""
        lower = [place.detach().floor() for place in places]
        result = None
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight = None
            for place, low, side in zip(places, lower, corner, strict=True):
                share = place - low if side else 1.0 - (place - low)
                weight = share if weight is None else weight * share
            assert weight is not None
            value = self.at([low + side for low, side in zip(lower, corner, strict=True)])
            part = value * weight.unsqueeze(1).to(value.dtype)
            result = part if result is None else result + part
        assert result is not None
        return result

    def bicubic(self, places: list[Tensor]) -> Tensor:
        """Cubic convolution of 4 * 4 pixels, with a = -0.75."""
        lower = [place.detach().floor() for place in places]
        weights = [_cubic(place - low) for place, low in zip(places, lower, strict=True)]
        result = None
        for row, column in itertools.product(range(4), repeat=2):
            numbers = [low + (step - 1) for low, step in zip(lower, (row, column), strict=True)]
            value = self.at([self.inside(each, number) for number, each in enumerate(numbers)])
            part = value * (weights[0][row] * weights[1][column]).unsqueeze(1).to(value.dtype)
            result = part if result is None else result + part
        assert result is not None
        return result


def _cubic(t: Tensor) -> list[Tensor]:
    """The weights of the four pixels around a place, which is ``t`` after the second."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


_guard(globals())
