"""Cases of pooling that the engine lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import _engine
from .._engine import Tensor


def padded_for_ceiling(
    input: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """The input with zeros around it, so that windows without further padding are those of ``ceil_mode``."""
    widths: list[int] = []
    for size, width, step, border in zip(input.shape[-len(kernel) :], kernel, stride, padding, strict=True):
        count = -((size + 2 * border - width) // -step) + 1
        # The last window begins in the input or in the padding before it.
        if (count - 1) * step >= size + border:
            count -= 1
        after = (count - 1) * step + width - size - border
        widths = [border, after, *widths]
    return input.pad(widths)


def greatest_of_parts(input: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The greatest element of each window of adaptive pooling to these sizes, and its index in the last dimensions."""
    dims = len(sizes)
    planes, kept = tuple(input.shape[:-dims]), tuple(input.shape[-dims:])
    place = _engine.zeros((), dtype="int64", device=input.device)
    inside = _engine.full((), True, dtype="bool", device=input.device)
    for axis, (size, count) in enumerate(zip(kept, sizes, strict=True)):
        part = _engine.arange(count, device=input.device)
        begin, end = part * size // count, ((part + 1) * size + count - 1) // count
        longest = max(-((number + 1) * size // -count) - number * size // count for number in range(count))
        member = begin.unsqueeze(1) + _engine.arange(longest, device=input.device)
        # Sizes (1, .., count, .., 1, longest, .., 1): windows first, then positions in them.
        shape = [1] * (2 * dims)
        shape[axis], shape[dims + axis] = count, longest
        inside = inside & (member < end.unsqueeze(1)).reshape(shape)
        place = place * size + member.clamp(max=size - 1).reshape(shape)
    shape = list(place.shape)
    place = place.reshape(math.prod(sizes), math.prod(shape[dims:]))
    inside = inside.reshape(place.shape)
    flat = input.reshape(*planes, math.prod(kept))
    windows = flat.detach().index_select(-1, place.flatten()).reshape(*planes, *place.shape)
    least = float("-inf")
    best = _engine.where(inside, windows, least).argmax(-1, True)
    index = place.broadcast_to((*planes, *place.shape)).gather(-1, best).squeeze(-1)
    return flat.gather(-1, index).reshape(*planes, *sizes), index.reshape(*planes, *sizes)


def average_of_integers(
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """The sum of each window, divided by ``divisor`` or by the number of elements, without the fraction."""
    dims = len(kernel)
    if any(2 * border > width for border, width in zip(padding, kernel, strict=True)):
        raise ValueError(f"avg_pool: the padding {tuple(padding)} must be at most half of the windows {tuple(kernel)}")
    if input.ndim not in (dims + 1, dims + 2) or any(step < 1 for step in stride):
        raise ValueError(
            f"avg_pool: expected {dims + 1} or {dims + 2} dimensions and strides of at least 1, got the shape "
            f"{tuple(input.shape)} and the strides {tuple(stride)}"
        )
    sides = [border for border in reversed(padding) for _ in range(2)]
    x = padded_for_ceiling(input, kernel, stride, padding) if ceil_mode else input.pad(sides)
    counted = _engine.ones(tuple(input.shape[-dims:]), dtype="int64", device=input.device)
    counted = counted.pad(sides, value=int(count_include_pad))
    # Beyond the padding, elements do not count.
    counted = counted.pad([width for axis in range(1, dims + 1) for width in (0, x.shape[-axis] - counted.shape[-axis])])

    def summed(x: Tensor) -> Tensor:
        for axis, (width, step) in enumerate(zip(kernel, stride, strict=True)):
            x = x.unfold(axis - dims, width, step).sum(-1)
        return x

    total = summed(x)
    if divisor is None:
        return total.abs() // summed(counted) * total.sign()
    return total.abs() // abs(divisor) * total.sign() * (1 if divisor > 0 else -1)
