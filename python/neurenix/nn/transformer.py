"""Attention and transformer encoders."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .._engine import Tensor
from . import functional as F
from . import init
from ._attention import attention, part_of
from .container import ModuleList, check_layers
from .linear import Linear, new
from .module import Module
from .normalization import LayerNorm
from .pooling import Dropout

__all__ = ["MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer"]


class MultiheadAttention(Module):
    """Multi-head attention: ``softmax(q @ k.T / sqrt(embed_dim / num_heads) + mask) @ v`` for each head, concatenated
    and projected.

    ``output, weights = layer(query, key, value)``: a query (L, N, embed_dim), a key (S, N, kdim) and a value (S, N,
    vdim); with ``batch_first``, N comes first; all may be without N. The output has the query's shape. ``weights`` are
    (N, L, S), the mean over the heads; (N, num_heads, L, S) without ``average_attn_weights``; or ``None`` without
    ``need_weights``, which is faster.

    ``attn_mask`` is (L, S) or (N * num_heads, L, S), ``key_padding_mask`` (N, S). A ``bool`` mask is true where
    attention is **not** allowed, as in PyTorch; a numeric mask is added. ``is_causal`` is a hint about ``attn_mask``
    and does not create a mask.

    >>> import neurenix as nx
    >>> x = nx.zeros(5, 3, 8)
    >>> output, weights = nx.nn.MultiheadAttention(8, 2)(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 5, 5]))
    """

    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: {embed_dim} dimensions are not divisible by {num_heads} heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        place = {"device": device, "dtype": dtype}
        together = self.kdim == self.vdim == embed_dim
        self.register_parameter("in_proj_weight", new(3 * embed_dim, embed_dim, **place) if together else None)
        for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if together else new(embed_dim, size, **place))
        self.register_parameter("in_proj_bias", new(3 * embed_dim, **place) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **place)
        self.add_zero_attn = add_zero_attn
        for name in ("bias_k", "bias_v"):
            further = new(1, 1, embed_dim, **place) if add_bias_kv else None
            if further is not None:
                init.xavier_normal_(further)
            self.register_parameter(name, further)
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal=True requires attn_mask")
        for name, given in (("query", query), ("key", key), ("value", value)):
            if given.ndim != query.ndim or given.ndim not in (2, 3):
                raise ValueError(
                    "MultiheadAttention: query, key and value must have 3 dimensions, or 2 without a batch; the "
                    f"{name} has shape {tuple(given.shape)}"
                )
        single = query.ndim == 2
        if single:
            query, key, value = (each.unsqueeze(0) for each in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        result, weights = attention(
            *(query, key, value, self.num_heads),
            [self._projection(part) for part in range(3)],
            [self.bias_k, self.bias_v],
            self.add_zero_attn,
            self.dropout if self.training else 0.0,
            self.out_proj,
            *(key_padding_mask, need_weights, attn_mask, average_attn_weights),
        )
        if single:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _projection(self, part: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias that map queries (0), keys (1) or values (2)."""
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[part]
        return part_of(part, self.embed_dim, self.in_proj_weight, separate, self.in_proj_bias)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def chosen_activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """An activation by its name, or the function itself."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise ValueError(f'activation is {activation!r}, it must be "relu", "gelu" or a function')
    return F.relu if activation == "relu" else F.gelu


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and a layer normalisation: (S, N,
    d_model), (N, S, d_model) with ``batch_first``, or (S, d_model), to the same shape.

    ``x = norm1(x + attention(x)); x = norm2(x + linear2(activation(linear1(x))))``, or with ``norm_first`` ``x = x +
    attention(norm1(x)); x = x + linear2(activation(linear1(norm2(x))))``.

    >>> import neurenix as nx
    >>> nx.nn.TransformerEncoderLayer(8, 2, 16)(nx.zeros(5, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = chosen_activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(S, N, E) to (S, N, E): ``src_mask`` is (S, S) or (N * heads, S, S), ``src_key_padding_mask`` (N, S), both as
        those of :class:`MultiheadAttention`."""
        if self.norm_first:
            src = src + self._attend(self.norm1(src), src_mask, src_key_padding_mask, is_causal)
            return src + self._feed(self.norm2(src))
        src = self.norm1(src + self._attend(src, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(src + self._feed(src))

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
        mixed, _ = self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal)
        return self.dropout1(mixed)

    def _feed(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        return self.dropout2(self.linear2(inner))


class TransformerEncoder(Module):
    """A stack of copies of a layer, then ``norm``: shapes as of :class:`TransformerEncoderLayer`.
    ``enable_nested_tensor`` and ``mask_check`` do not change results.

    >>> import neurenix as nx
    >>> layer = nx.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> nx.nn.TransformerEncoder(layer, num_layers=2)(nx.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(check_layers("TransformerEncoder", num_layers))])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """(S, N, E) to (S, N, E): ``mask`` is (S, S) or (N * heads, S, S), ``src_key_padding_mask`` (N, S)."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)
