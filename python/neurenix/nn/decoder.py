"""Transformer decoders, and the whole transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import init
from .container import ModuleList, check_layers
from .linear import Linear
from .module import Module
from .normalization import LayerNorm
from .pooling import Dropout
from .transformer import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer, chosen_activation

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer"]


class TransformerDecoderLayer(Module):
    """Self-attention, cross-attention to an encoder's output and a feed-forward network, each with a residual
    connection and a layer normalisation as in :class:`TransformerEncoderLayer`. The target (T, N, d_model) and the
    encoder's output (S, N, d_model) give (T, N, d_model). With ``batch_first``, N comes first; all may be without N.

    >>> import neurenix as nx
    >>> nx.nn.TransformerDecoderLayer(8, 2, 16)(nx.zeros(4, 3, 8), nx.zeros(5, 3, 8)).shape
    torch.Size([4, 3, 8])
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
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **place) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = chosen_activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(T, N, E) and (S, N, E) to (T, N, E): ``tgt_mask`` is (T, T), ``memory_mask`` (T, S), or each with N * heads
        before it; ``tgt_key_padding_mask`` is (N, T), ``memory_key_padding_mask`` (N, S)."""
        def own(x: Tensor) -> Tensor:
            mixed, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask, is_causal=bool(tgt_is_causal)
            )
            return self.dropout1(mixed)

        def across(x: Tensor) -> Tensor:
            mixed, _ = self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                need_weights=False,
                attn_mask=memory_mask,
                is_causal=memory_is_causal,
            )
            return self.dropout2(mixed)

        def feed(x: Tensor) -> Tensor:
            return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        for part, norm in ((own, self.norm1), (across, self.norm2), (feed, self.norm3)):
            tgt = tgt + part(norm(tgt)) if self.norm_first else norm(tgt + part(tgt))
        return tgt


class TransformerDecoder(Module):
    """A stack of copies of a layer that all attend to the same encoder output, then ``norm``. Shapes as of
    :class:`TransformerDecoderLayer`.

    >>> import neurenix as nx
    >>> layer = nx.nn.TransformerDecoderLayer(8, 2, 16)
    >>> nx.nn.TransformerDecoder(layer, num_layers=2)(nx.zeros(4, 3, 8), nx.zeros(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(check_layers("TransformerDecoder", num_layers))])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **named_masks: Any) -> Tensor:
        """(T, N, E) and (S, N, E) to (T, N, E), with the masks of :class:`TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **named_masks)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder (Vaswani et al., 2017): a source (S, N, d_model) and a target (T, N, d_model) give (T,
    N, d_model). With ``batch_first``, N comes first; all may be without N.

    >>> import neurenix as nx
    >>> model = nx.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> mask = nx.nn.Transformer.generate_square_subsequent_mask(3)
    >>> model(nx.randn(2, 5, 8), nx.randn(2, 3, 8), tgt_mask=mask).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        place = {"device": device, "dtype": dtype}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **place)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shape, **place), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shape, **place), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(S, N, E) and (T, N, E) to (T, N, E): ``src_mask`` is (S, S), ``tgt_mask`` (T, T), ``memory_mask`` (T, S), or
        each with N * heads before it; ``src_key_padding_mask`` and ``memory_key_padding_mask`` are (N, S),
        ``tgt_key_padding_mask`` (N, T)."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask (sz, sz) that prevents positions from attending to later ones: minus infinity above the diagonal, else
        zeros.
        """
        return _engine.full((sz, sz), -float("inf"), device=device, dtype=dtype).triu(1)
