"""Padding of tensors, and the windows of images as columns."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor
from .._manipulation import cat

__all__ = ["fold", "pad", "unfold"]

Sizes = int | tuple[int, ...] | list[int]


def each(value: Sizes, dims: int, name: str) -> tuple[int, ...]:
    """One number for each of the spatial dimensions."""
    numbers = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(numbers) == 1:
        numbers *= dims
    if len(numbers) != dims:
        raise ValueError(f"{name}: {len(numbers)} numbers for {dims} dimensions")
    return numbers


def require_dims(name: str, input: Tensor, least: int, most: int | None = None) -> None:
    """Raises ``ValueError`` unless the input has ``least`` to ``most`` dimensions, or any number from ``least`` on."""
    if input.ndim < least or (most is not None and input.ndim > most):
        counts = f"at least {least}" if most is None else f"{least} {'or' if most == least + 1 else 'to'} {most}"
        raise ValueError(f"{name}: expected an input of {counts} dimensions, got shape {tuple(input.shape)}")


def pad(input: Tensor, pad: Sizes, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads a tensor: pairs of widths from the last dimension to the first. ``mode`` sets the values: ``"constant"``
    (``value``, or 0), ``"reflect"``, ``"replicate"`` or ``"circular"``. Negative widths remove elements.

    >>> import neurenix as nx
    >>> nx.functional.pad(nx.Tensor([1.0, 2.0, 3.0]), (2, 1), mode="reflect").tolist()
    [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """
    if mode == "constant":
        return input.pad(pad, value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f'pad: mode is {mode!r}, it must be "constant", "reflect", "replicate" or "circular"')
    if value is not None:
        raise ValueError(f'pad: value is only supported with mode "constant", not with {mode!r}')
    widths = (pad, pad) if isinstance(pad, int) else tuple(pad)
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ValueError(f"pad: {len(widths)} widths for {input.ndim} dimensions: pass a pair for each dimension, starting with the last")
    for number in range(len(widths) // 2):
        input = _bordered(input, input.ndim - 1 - number, widths[2 * number], widths[2 * number + 1], mode)
    return input


def _bordered(x: Tensor, dim: int, left: int, right: int, mode: str) -> Tensor:
    """Pads one dimension with these widths."""
    size = x.shape[dim]
    if min(left, right) < 0 and mode == "replicate" and size and size + left + right >= 0:
        return x.index_select(dim, _engine.arange(-left, size + right, device=x.device).clamp(0, size - 1))
    if min(left, right) < 0 and size + min(left, 0) + min(right, 0) >= 0:
        # Negative widths remove elements first.
        size += min(left, 0) + min(right, 0)
        x, left, right = x.narrow(dim, max(-left, 0), size), max(left, 0), max(right, 0)
    most = {"reflect": size - 1, "circular": size}.get(mode)
    if min(left, right) < 0 or (size == 0 and max(left, right) > 0) or (most is not None and max(left, right) > most):
        allowed = "at least 0" if most is None else f"0 to {max(most, 0)}"
        raise ValueError(f"pad: widths {left} and {right} of mode {mode} for dimension {dim} of size {size} must be {allowed}")
    parts = [x]
    if left:
        parts.insert(0, _border(x, dim, left, mode, True))
    if right:
        parts.append(_border(x, dim, right, mode, False))
    return cat(parts, dim) if len(parts) > 1 else x


def _border(x: Tensor, dim: int, width: int, mode: str, left: bool) -> Tensor:
    size = x.shape[dim]
    if mode == "reflect":
        return x.narrow(dim, 1 if left else size - 1 - width, width).flip(dim)
    if mode == "circular":
        return x.narrow(dim, size - width if left else 0, width)
    shape = list(x.shape)
    shape[dim] = width
    return x.narrow(dim, 0 if left else size - 1, 1).broadcast_to(shape)


def _places(sizes: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes, device: Any) -> tuple[
    tuple[int, int], tuple[int, int], tuple[int, int], Tensor
]:
    """The paddings, the padded sizes and the numbers of windows in both directions, and for each window element, in
    rows, its position in the padded image.
    """
    size, kernels, dilations, paddings, strides = (
        each(value, 2, name)
        for value, name in (
            (sizes, "output_size"), (kernel, "kernel_size"), (dilation, "dilation"), (padding, "padding"), (stride, "stride")
        )
    )
    padded = [size[i] + 2 * paddings[i] for i in (0, 1)]
    windows = [(padded[i] - dilations[i] * (kernels[i] - 1) - 1) // strides[i] + 1 for i in (0, 1)]
    if min(windows) < 1:
        raise ValueError(f"windows of {kernels} with dilation {dilations} do not fit into an image of {tuple(padded)}")

    def numbers(count: int, step: int, *shape: int) -> Tensor:
        return (_engine.arange(count, device=device) * step).reshape(shape)

    rows = numbers(kernels[0], dilations[0], -1, 1, 1, 1) + numbers(windows[0], strides[0], 1, 1, -1, 1)
    columns = numbers(kernels[1], dilations[1], 1, -1, 1, 1) + numbers(windows[1], strides[1], 1, 1, 1, -1)
    place = (rows * padded[1] + columns).reshape(-1)
    return (paddings[0], paddings[1]), (padded[0], padded[1]), (windows[0], windows[1]), place


def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of images (N, C, H, W) as columns (N, C * kernel elements, windows).

    >>> import neurenix as nx
    >>> nx.functional.unfold(nx.ones(1, 2, 4, 5), (2, 3)).shape
    torch.Size([1, 12, 9])
    """
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if input.ndim != 4:
        raise ValueError(f"unfold: expected an input of shape (N, C, H, W) or (C, H, W), got {input.ndim} dimensions")
    count, channels, *sizes = input.shape
    paddings, padded, windows, place = _places(sizes, kernel_size, dilation, padding, stride, input.device)
    image = input.pad((paddings[1], paddings[1], paddings[0], paddings[0])).reshape(count * channels, padded[0] * padded[1])
    columns = windows[0] * windows[1]
    return image.index_select(1, place).reshape(count, channels * place.numel() // columns, columns)


def fold(
    input: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """Columns (N, C * kernel elements, windows) summed into images (N, C, H, W): the adjoint of ``unfold``."""
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    if input.ndim != 3:
        raise ValueError(f"fold: expected an input of shape (N, C * elements, windows), got {input.ndim} dimensions")
    paddings, padded, windows, place = _places(output_size, kernel_size, dilation, padding, stride, input.device)
    height, width = each(output_size, 2, "output_size")
    elements = place.numel() // (windows[0] * windows[1])
    count, rows, columns = input.shape
    if columns != windows[0] * windows[1] or rows % elements:
        raise ValueError(
            f"fold: the input is {tuple(input.shape)}: {elements} elements of a channel and {windows[0]} * {windows[1]} "
            "windows are needed"
        )
    channels = rows // elements
    image = _engine.zeros(count * channels, padded[0] * padded[1], dtype=input.dtype, device=input.device)
    image = image.index_add(1, place, input.reshape(count * channels, elements * columns))
    image = image.reshape(count, channels, *padded)
    return image.narrow(2, paddings[0], height).narrow(3, paddings[1], width)


_guard(globals())
