"""The functions that layers call, by PyTorch's names and signatures.

Within :class:`neurenix.amp.autocast`, linear layers, convolutions and attention compute in its dtype; softmax,
normalisations and losses compute in ``float32`` and return it, except batch normalisation, which returns its input's dtype.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from .. import _engine
from .._arguments import guard as _guard, guarded as _guarded
from .._autograd import no_grad
from .._engine import Tensor
from ._activations import *  # noqa: F403
from ._alignment import ctc_loss as ctc_loss
from ._bags import embedding_bag as embedding_bag
from ._composites import *  # noqa: F403
from ._fractional import *  # noqa: F403
from ._losses import *  # noqa: F403
from ._margins import *  # noqa: F403
from ._pooling import average_of_integers, greatest_of_parts, padded_for_ceiling
from ._precision import full, low
from ._rarer import *  # noqa: F403
from ._resize import interpolate as interpolate
from ._rotary import rotary_embedding as rotary_embedding
from ._sampling_grids import *  # noqa: F403
from ._windows import *  # noqa: F403
from ._windows import Sizes as Sizes, each as each, require_dims

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``; trailing dimensions of the input are flattened if only their product fits.

    >>> import neurenix as nx
    >>> nx.functional.linear(nx.ones(2, 3), nx.ones(4, 3)).shape
    torch.Size([2, 4])
    """
    return _engine.linear(*low(input, weight, bias))


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product."""
    return input @ other


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1[i] * weight[k, i, j] * input2[j] + bias[k]``, summed over ``i`` and ``j``."""
    input1, input2, weight, bias = low(input1, input2, weight, bias)
    require_dims("bilinear", weight, 3, 3)
    for name, features, size in (("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])):
        if not features.ndim or features.shape[-1] != size:
            raise ValueError(f"bilinear: expected {name} with a last dimension of {size}, got shape {tuple(features.shape)}")
    rows = [each.reshape(-1, each.shape[-1]) for each in (input1, input2)]
    result = _engine.einsum("bi,kij,bj->bk", rows[0], weight, rows[1])
    result = result.reshape(*input1.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias


def _convolution(dims: int) -> Any:
    native = getattr(_engine, f"conv{dims}d")

    def convolution(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        input, weight, bias = low(input, weight, bias)
        if padding == "valid":
            padding = 0
        elif padding == "same":
            input, padding = _same(input, weight.shape[-dims:], stride, dilation, dims)
        elif isinstance(padding, str):
            raise ValueError(f'padding is {padding!r}, it must be "same", "valid" or numbers')
        return native(input, weight, bias, stride, padding, dilation, groups)

    convolution.__name__ = convolution.__qualname__ = f"conv{dims}d"
    convolution.__doc__ = (
        f"A convolution of (N, C, {dims} spatial dimensions), or of one sample without N, with ``weight`` of shape\n"
        '    (out, C / groups, kernel...). ``padding`` may be ``"same"`` or ``"valid"``.'
    )
    return convolution


def _same(
    input: Tensor, kernel: tuple[int, ...], stride: Sizes, dilation: Sizes, dims: int
) -> tuple[Tensor, tuple[int, ...]]:
    """The padding that keeps the output as large as the input; an odd remainder goes to the end."""
    if any(step != 1 for step in each(stride, dims, "stride")):
        raise ValueError('padding="same" requires a stride of 1')
    total = [step * (size - 1) for size, step in zip(kernel, each(dilation, dims, "dilation"), strict=True)]
    if any(width % 2 for width in total):
        input = input.pad([side for width in reversed(total) for side in (0, width % 2)])
    return input, tuple(width // 2 for width in total)


def _transposed(dims: int) -> Any:
    native = getattr(_engine, f"conv_transpose{dims}d")

    def convolution(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        input, weight, bias = low(input, weight, bias)
        return native(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )

    convolution.__name__ = convolution.__qualname__ = f"conv_transpose{dims}d"
    convolution.__doc__ = "A transposed convolution, with ``weight`` of shape (C, out / groups, kernel...)."
    return convolution


conv1d, conv2d, conv3d = (_convolution(dims) for dims in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_transposed(dims) for dims in (1, 2, 3))


def _max_pool(dims: int) -> Any:
    plain = getattr(_engine, f"max_pool{dims}d")
    indexed = getattr(_engine, f"max_pool{dims}d_with_indices")

    def pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The greatest element of each window; with ``return_indices`` also its position."""
        stride = None if stride in ((), []) else stride
        return (indexed if return_indices else plain)(input, kernel_size, stride, padding, dilation, ceil_mode)

    pool.__name__ = pool.__qualname__ = f"max_pool{dims}d"
    return pool


def _adaptive(name: str, dims: int, doc: str) -> Any:
    native = getattr(_engine, f"{name}{dims}d")

    def pool(input: Tensor, output_size: int | tuple[int | None, ...] | None) -> Tensor:
        sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
        if len(sizes) != dims:
            raise ValueError(f"output_size: {len(sizes)} numbers for {dims} dimensions")
        require_dims(f"{name}{dims}d", input, dims + 1, dims + 2)
        kept = input.shape[-dims:]
        return native(
            input, [was if size is None else size for size, was in zip(sizes, kept, strict=True)]
        )

    pool.__name__ = pool.__qualname__ = f"{name}{dims}d"
    pool.__doc__ = doc
    return pool


def _adaptive_max_pool(dims: int) -> Any:
    doc = "The greatest element of each window, one window per output position."
    plain, indexed = _adaptive("adaptive_max_pool", dims, doc), _max_pool(dims)

    def pool(input: Tensor, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False) -> Any:
        if not return_indices:
            return plain(input, output_size)
        require_dims(f"adaptive_max_pool{dims}d", input, dims + 1, dims + 2)
        kept = input.shape[-dims:]
        sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
        wanted = [was if size is None else size for size, was in zip(sizes, kept, strict=True)]
        if any(size < 1 or was % size for size, was in zip(wanted, kept, strict=True)):
            if min(wanted) < 1 or not input.numel():
                found = plain(input, output_size)
                return found, _engine.full_like(found, 0, dtype="int64")
            return greatest_of_parts(input, wanted)
        return indexed(input, [was // size for size, was in zip(wanted, kept, strict=True)], return_indices=True)

    pool.__name__ = pool.__qualname__ = f"adaptive_max_pool{dims}d"
    pool.__doc__ = f"{doc} With ``return_indices``, also their positions."
    return pool


def _avg_pool(dims: int) -> Any:
    native = getattr(_engine, f"avg_pool{dims}d")

    def pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """The mean of each window, or with ``divisor_override`` its sum divided by that; of ``int64``, rounded towards 0."""
        stride = None if stride in ((), []) else stride
        if divisor_override == 0:
            raise ValueError("avg_pool: divisor_override must not be 0")
        if input.dtype.name == "int64":
            sizes = each(kernel_size, dims, "kernel_size")
            steps = sizes if stride is None else each(stride, dims, "stride")
            return average_of_integers(input, sizes, steps, each(padding, dims, "padding"), ceil_mode, count_include_pad, divisor_override)
        if divisor_override is None:
            return native(input, kernel_size, stride, padding, ceil_mode, count_include_pad)
        kernels = each(kernel_size, dims, "kernel_size")
        if ceil_mode:
            strides = kernels if stride is None else each(stride, dims, "stride")
            input, padding = padded_for_ceiling(input, kernels, strides, each(padding, dims, "padding")), 0
        return native(input, kernel_size, stride, padding, False, True) * (math.prod(kernels) / divisor_override)

    pool.__name__ = pool.__qualname__ = f"avg_pool{dims}d"
    return pool


max_pool1d, max_pool2d, max_pool3d = (_max_pool(dims) for dims in (1, 2, 3))
_means, avg_pool2d, avg_pool3d = (_avg_pool(dims) for dims in (1, 2, 3))


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window; of ``int64``, rounded towards 0."""
    return _means(input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _lp_pool(dims: int) -> Any:
    average = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1]

    def pool(
        input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> Tensor:
        """The root of the sum of powers ``norm_type`` in each window."""
        elements = math.prod(each(kernel_size, dims, "kernel_size"))
        mean = average(input**norm_type, kernel_size, stride, 0, ceil_mode)
        # Odd powers of negative elements have no root.
        return (mean.relu() * elements) ** (1.0 / norm_type)

    pool.__name__ = pool.__qualname__ = f"lp_pool{dims}d"
    return pool


lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(dims) for dims in (1, 2, 3))
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    partial(pool, return_indices=True) for pool in (max_pool1d, max_pool2d, max_pool3d)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive_max_pool(dims) for dims in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive("adaptive_avg_pool", dims, "The mean of each window, one window per output position.") for dims in (1, 2, 3)
)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeros elements with probability ``p`` and divides the others by ``1 - p``; has no effect without ``training``."""
    return _engine.dropout(input, p, training)


def _feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeros whole channels of (N, C, ...) with probability ``p`` and divides the others by ``1 - p``."""
    return _engine.dropout(input, p, training, True)


dropout1d = dropout2d = dropout3d = _feature_dropout


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` at these indices; the row ``padding_idx`` gets no gradient."""
    if max_norm is not None or scale_grad_by_freq:
        raise ValueError("embedding: max_norm and scale_grad_by_freq are not supported")
    return _engine.embedding(input, weight, padding_idx)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value`` of (..., L, E). A ``bool`` mask is true where allowed. With
    ``is_causal``, a query attends to keys up to its own index, and ``scale`` defaults to ``E ** -0.5``. ``dropout_p``, a
    multiple of ``2 ** -16``, drops weights whether the model is in training mode or not.

    With ``enable_gqa`` (grouped-query attention), the heads of (..., H, L, E) may be fewer in ``key`` and ``value``: each
    serves the same number of neighbouring query heads.
    """
    query, key, value = low(query, key, value)
    if attn_mask is not None and attn_mask.dtype.is_floating_point:
        attn_mask = attn_mask.to(query.dtype)
    if enable_gqa and not is_causal and query.ndim == key.ndim == value.ndim == 4 and (attn_mask is None or attn_mask.ndim == 2):
        batch, heads, length, size = query.shape
        groups = key.shape[1]
        if 0 < groups < heads and heads % groups == 0 and value.shape[1] == groups and key.shape[0] == batch:
            # Query heads that share keys become rows of one head: the engine repeats keys and values in memory.
            rows = query.reshape(batch, groups, heads // groups * length, size)
            if attn_mask is not None and attn_mask.shape[0] > 1:
                attn_mask = attn_mask.tile(heads // groups, 1)
            mixed = _engine.scaled_dot_product_attention(rows, key, value, attn_mask, dropout_p, scale=scale)
            return mixed.reshape(batch, heads, length, value.shape[-1])
    return _engine.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def layer_norm(
    input: Tensor, normalized_shape: Sizes, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalises over the last dimensions."""
    input, weight, bias = full(input, weight, bias)
    return _engine.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Sizes, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Divides by the root mean square over the last dimensions."""
    input, weight = full(input, weight)
    return _engine.rms_norm(input, normalized_shape, weight, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises over each channel of each sample (more than one element), and moves the running statistics towards the
    means over the samples. Without ``use_input_stats``, uses the running statistics.
    """
    input, weight, bias = full(input, weight, bias)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("instance_norm: running_mean and running_var are required without use_input_stats")
        return _engine.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    result = _engine.instance_norm(input, weight, bias, eps)
    tracked = [running for running in (running_mean, running_var) if running is not None]
    if math.prod(input.shape[2:]) == 1 or (tracked and not input.numel()):
        raise ValueError(
            f"instance_norm: an input of shape {tuple(input.shape)} has no variance over a channel of a sample; pass larger "
            "inputs, or use_input_stats=False"
        )
    for running in tracked:
        if running.shape != input.shape[1:2]:
            raise ValueError(
                f"instance_norm: running statistics of shape {tuple(running.shape)} do not fit an input of shape "
                f"{tuple(input.shape)}: expected one value per channel"
            )
    axes = tuple(range(2, input.ndim))
    with no_grad():
        moved: list[tuple[Tensor, Tensor]] = []
        if running_mean is not None:
            moved.append((running_mean, running_mean.lerp(input.mean(axes).mean(0), momentum)))
        if running_var is not None:
            moved.append((running_var, running_var.lerp(input.var(axes, correction=1).mean(0), momentum)))
        # Both or neither.
        for running, value in moved:
            running.copy_(value)
    return result


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises over the batch: in training with the batch's mean and variance, which also update the running
    statistics in place; otherwise with the running statistics. The result has the input's dtype, also within
    ``autocast``; 16-bit inputs are computed in ``float32``.
    """
    return _engine.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels (N, C, H * r, W * r) as channels (N, C * r * r, H, W)."""
    require_dims("pixel_unshuffle", input, 3)
    r = downscale_factor
    *batch, channels, height, width = input.shape
    if height % r or width % r:
        raise ValueError(f"pixel_unshuffle: height {height} and width {width} must be multiples of {r}")
    parts = input.reshape(math.prod(batch), channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*batch, channels * r * r, height // r, width // r)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divides by ``(k + alpha * mean of squares of size neighbouring channels) ** beta``, for (N, C, ...)."""
    if input.ndim < 3:
        raise ValueError(f"local_response_norm: expected an input of at least 3 dimensions, got shape {tuple(input.shape)}")
    (input,) = full(input)
    squares = (input * input).movedim(1, -1)
    channels = squares.shape[-1]
    squares = squares.pad((size // 2, (size - 1) // 2))
    total = squares.narrow(-1, 0, channels)
    for shift in range(1, size):
        total = total + squares.narrow(-1, shift, channels)
    return input / (total * (alpha / size) + k).movedim(-1, 1) ** beta


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """``x`` where not negative, else ``x`` times a slope: drawn between ``lower`` and ``upper`` in training, else their mean."""
    if not training:
        return input.leaky_relu((lower + upper) / 2)
    slope = _engine.rand(tuple(input.shape), dtype="float32", device=input.device) * (upper - lower) + lower
    return _engine.where(input >= 0, input, input * slope.to(input.dtype))


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels (N, C * r * r, H, W) as pixels (N, C, H * r, W * r)."""
    r = upscale_factor
    require_dims("pixel_shuffle", input, 3)
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise ValueError(f"pixel_shuffle: the number of channels, {channels}, must be a multiple of {r} * {r}")
    parts = input.reshape(math.prod(batch), channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*batch, channels // (r * r), height * r, width * r)


# It calls the functions above.
from ._attention import multi_head_attention_forward as multi_head_attention_forward  # noqa: E402

_guard(globals())
