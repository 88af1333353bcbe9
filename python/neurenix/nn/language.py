"""Parts of language models: rotary positions, gated feed-forward layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import functional as F
from .linear import Linear
from .module import Module

__all__ = ["RotaryEmbedding", "SwiGLU"]


class RotaryEmbedding(Module):
    """Rotary positions (Su et al., 2021): rotates pairs of features of queries and keys, (..., L, dim) to the same shape,
    by ``position * base ** (-2 * i / dim)`` for the pair ``i``.

    ``query, key = layer(query, key, positions)``: ``positions`` is (L), by default 0 to L - 1. Pairs are the features ``i``
    and ``i + dim / 2``, as in Hugging Face's models, or with ``interleaved`` the features ``2 * i`` and ``2 * i + 1``.

    ``scaling`` stretches the positions for long contexts. It is a mapping as in Hugging Face's configurations: ``{"rope_type":
    "linear", "factor": 2.0}`` divides them, and ``"llama3"`` divides them for the slow rotations only (``factor``,
    ``low_freq_factor``, ``high_freq_factor``, ``original_max_position_embeddings``).

    >>> import neurenix as nx
    >>> query, key = nx.nn.RotaryEmbedding(8)(nx.ones(1, 4, 5, 8), nx.ones(1, 2, 5, 8))
    >>> query.shape, key.shape
    (torch.Size([1, 4, 5, 8]), torch.Size([1, 2, 5, 8]))
    """

    def __init__(
        self, dim: int, base: float = 10000.0, interleaved: bool = False, scaling: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(f"RotaryEmbedding: dim is {dim}, it must be a positive even number")
        if not 0.0 < base < math.inf:
            raise ValueError(f"RotaryEmbedding: base is {base}, it must be positive and finite")
        self.dim, self.base, self.interleaved = dim, base, interleaved
        self.scaling = None if scaling is None else dict(scaling)
        # Not a buffer: half() would round the frequencies.
        self.frequencies = _scaled([base ** (-2.0 * pair / dim) for pair in range(dim // 2)], self.scaling)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cosines and sines of the angles at ``positions`` (L), each (L, dim / 2), in ``float32``. Layers that share
        positions can share these: see :func:`neurenix.functional.rotary_embedding`.
        """
        frequencies = _engine.tensor(self.frequencies, dtype="float32", device=positions.device)
        angles = positions.to("float32").unsqueeze(-1) * frequencies
        return angles.cos(), angles.sin()

    def forward(self, query: Tensor, key: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if query.ndim < 2 or query.shape[-1] != self.dim or key.shape[-2:] != query.shape[-2:]:
            raise ValueError(
                f"RotaryEmbedding: expected queries and keys of the same shape (..., L, {self.dim}) except for leading "
                f"dimensions, got {tuple(query.shape)} and {tuple(key.shape)}"
            )
        if positions is None:
            positions = _engine.arange(query.shape[-2], device=query.device)
        cos, sin = self.angles(positions)
        rotated = [F.rotary_embedding(each, cos, sin, self.interleaved) for each in (query, key)]
        return rotated[0], rotated[1]

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"{self.dim}, base={self.base}" + (", interleaved=True" if self.interleaved else "") + scaling


def _scaled(frequencies: list[float], scaling: Mapping[str, Any] | None) -> list[float]:
    """The frequencies changed as Hugging Face's ``rope_type`` says."""
    if scaling is None:
        return frequencies
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    needed = {
        "default": (),
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    }
    if kind not in needed:
        raise NotImplementedError(f"RotaryEmbedding: rope_type {kind!r} is not supported; supported: {', '.join(needed)}")
    missing = [name for name in needed[kind] if name not in scaling]
    if missing:
        raise ValueError(f"RotaryEmbedding: scaling of rope_type {kind!r} lacks {', '.join(missing)}")
    values = [float(scaling[name]) for name in needed[kind]]
    if kind == "default":
        return frequencies
    if kind == "linear":
        return [frequency / values[0] for frequency in frequencies]
    factor, low, high, context = values

    def stretched(frequency: float) -> float:
        rotations = context * frequency / (2.0 * math.pi)
        # 0 for slow rotations, which are divided by the factor, 1 for fast ones, which are kept.
        kept = min(max((rotations - low) / (high - low), 0.0), 1.0)
        return (1.0 - kept) * frequency / factor + kept * frequency

    return [stretched(frequency) for frequency in frequencies]


class SwiGLU(Module):
    """A gated feed-forward layer (Shazeer, 2020), as in Llama: ``down_proj(silu(gate_proj(x)) * up_proj(x))``, (...,
    in_features) to (..., out_features), by default the number of inputs.

    >>> import neurenix as nx
    >>> nx.nn.SwiGLU(8, 16)(nx.zeros(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        out_features = in_features if out_features is None else out_features
        self.gate_proj = Linear(in_features, hidden_features, bias, device, dtype)
        self.up_proj = Linear(in_features, hidden_features, bias, device, dtype)
        self.down_proj = Linear(hidden_features, out_features, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self.down_proj(F.swiglu(self.gate_proj(input), self.up_proj(input)))
