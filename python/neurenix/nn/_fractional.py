"""Fractional max pooling (Graham, "Fractional max-pooling", 2014)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from ._windows import Sizes, each

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]


def _starts(samples: Tensor, size: int, count: int, width: int) -> Tensor:
    """Where the windows of a dimension begin, (..., count), for samples between 0 and 1: at pseudorandom distances, the
    last one at the end.
    """
    last = _engine.full((*samples.shape, 1), size - width, dtype="int64", device=samples.device)
    if count < 2:
        return last[..., :count]
    distance = (size - width) / (count - 1)
    place = _engine.arange(count - 1, dtype=samples.dtype, device=samples.device)
    sample = samples.unsqueeze(-1)
    # Positive numbers: a conversion to integers rounds down.
    found = ((place + sample) * distance).long() - (sample * distance).long()
    return _engine.cat([found, last], -1)


def _pooled(
    name: str, dims: int, input: Tensor, kernel_size: Sizes, output_size: Any, output_ratio: Any, samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    if input.ndim not in (dims + 1, dims + 2) or input.numel() == 0:
        shape = tuple(input.shape)
        raise ValueError(f"{name}: expected an input of {dims + 1} or {dims + 2} dimensions with elements, got shape {shape}")
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name}: output_size or output_ratio must be given")
    sizes = tuple(input.shape[-dims:])
    if output_size is None:
        ratios = (output_ratio,) * dims if isinstance(output_ratio, float) else tuple(output_ratio)
        if len(ratios) != dims:
            raise ValueError(f"{name}: output_ratio must be a number or {dims} numbers, got {len(ratios)}")
        output_size = [int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    counts, widths = each(output_size, dims, "output_size"), each(kernel_size, dims, "kernel_size")
    if any(count < 0 or width < 1 or count + width - 1 > size for count, width, size in zip(counts, widths, sizes, strict=True)):
        raise ValueError(f"{name}: {counts} windows of {widths} elements do not fit in {sizes}: they may begin at different places only")
    batched = input if input.ndim == dims + 2 else input.unsqueeze(0)
    planes = tuple(batched.shape[:2])
    if samples is None:
        kind = input.dtype if input.dtype.name == "float64" else "float32"
        samples = _engine.rand((*planes, dims), dtype=kind, device=input.device)
    elif tuple(samples.shape) != (*planes, dims):
        raise ValueError(f"{name}: expected random samples of shape {(*planes, dims)}, got {tuple(samples.shape)}")
    place = _engine.zeros((), dtype="int64", device=input.device)
    for axis, (size, count, width) in enumerate(zip(sizes, counts, widths, strict=True)):
        # PyTorch's samples of two dimensions begin with the last one.
        drawn = samples.detach()[..., dims - 1 - axis if dims == 2 else axis]
        member = _starts(drawn, size, count, width).unsqueeze(-1) + _engine.arange(width, device=input.device)
        # Sizes (N, C, 1, .., count, .., 1, 1, .., width, .., 1): windows first, then positions in them.
        laid_out = [*planes, *([1] * 2 * dims)]
        laid_out[2 + axis], laid_out[2 + dims + axis] = count, width
        place = place * size + member.reshape(laid_out)
    place = place.reshape(*planes, math.prod(counts), math.prod(widths))
    flat = batched.reshape(*planes, math.prod(sizes))
    windows = flat.detach().gather(-1, place.flatten(2)).reshape(tuple(place.shape))
    index = place.gather(-1, windows.argmax(-1, True)).squeeze(-1)
    values, index = (x.reshape(*planes, *counts) for x in (flat.gather(-1, index), index))
    return (values, index) if input.ndim == dims + 2 else (values.squeeze(0), index.squeeze(0))


def _fractional(dims: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    name = f"fractional_max_pool{dims}d"

    def with_indices(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        return _pooled(name, dims, input, kernel_size, output_size, output_ratio, _random_samples)

    def pool(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = _pooled(name, dims, input, kernel_size, output_size, output_ratio, _random_samples)
        return found if return_indices else found[0]

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = (
        "The greatest element of each window of ``kernel_size``. There are ``output_size`` windows, or ``output_ratio`` times "
        f"the size, at random places in each plane, which ``_random_samples`` of shape (N, C, {dims}) decides if given. "
        "``return_indices`` returns their positions in the plane, too."
    )
    with_indices.__name__ = with_indices.__qualname__ = f"{name}_with_indices"
    with_indices.__doc__ = f":func:`{name}` with the positions in the plane."
    return pool, with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(3)

_guard(globals())
