"""Rotary positions."""

from __future__ import annotations

from .. import _engine
from .._arguments import guard as _guard
from .._engine import Tensor

__all__ = ["rotary_embedding"]


def rotary_embedding(input: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotates pairs of features of (..., L, E) by the angles whose cosines and sines are given as (..., L, E / 2).

    The pair ``i`` consists of the features ``i`` and ``i + E / 2``, as in Hugging Face's models. With ``interleaved``, it
    consists of the features ``2 * i`` and ``2 * i + 1``, as in the paper (Su et al., 2021).
    """
    size = input.shape[-1] if input.ndim else 0
    if size % 2 or cos.shape != sin.shape or not cos.ndim or cos.shape[-1] * 2 != size:
        raise ValueError(
            f"rotary_embedding: expected an input of shape (..., L, E) with an even E, and cos and sin of shape (..., L, "
            f"E / 2), got {tuple(input.shape)}, {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    axis = -1 if interleaved else -2
    pairs = input.unflatten(-1, (size // 2, 2) if interleaved else (2, size // 2))
    # (first * cos - second * sin, second * cos + first * sin), as one kernel: halves would be joined by another one.
    signs = _engine.arange(-1, 2, 2, dtype=sin.dtype, device=sin.device).reshape((2,) if interleaved else (2, 1))
    result = pairs * cos.unsqueeze(axis) + pairs.flip(axis) * (sin.unsqueeze(axis) * signs)
    return result.flatten(-2).to(input.dtype)


_guard(globals())
