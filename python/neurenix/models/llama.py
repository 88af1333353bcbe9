"""Llama (Touvron et al., 2023), with Hugging Face's parameter names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .._engine import Tensor
from ..nn import Embedding, KeyValueCache, Linear, Module, ModuleList, RMSNorm, RotaryEmbedding, SwiGLU, functional as F
from .language_model import Config, LanguageModel, attend


@dataclass(frozen=True)
class LlamaConfig(Config):
    """The sizes of a :class:`Llama`, with the names and defaults of Hugging Face's ``config.json``.

    Newer files give the rotary positions as ``rope_parameters``; they are read as ``rope_theta`` and ``rope_scaling``.
    """

    model_type: ClassVar[str] = "llama"

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self) -> None:
        self.check_sizes(
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"
        )
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"LlamaConfig: hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                f"{self.num_attention_heads}"
            )
        if self.num_attention_heads % self.key_value_heads:
            raise ValueError(
                f"LlamaConfig: num_attention_heads {self.num_attention_heads} is not divisible by num_key_value_heads "
                f"{self.key_value_heads}"
            )
        if self.hidden_act not in ("silu", "swish"):
            raise NotImplementedError(f"LlamaConfig: hidden_act {self.hidden_act!r} is not supported; supported: silu")

    @property
    def key_value_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def size_of_head(self) -> int:
        """The number of features of a head."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LlamaConfig:
        rope = values.get("rope_parameters")
        if rope is not None:
            scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
            theta = rope.get("rope_theta", values.get("rope_theta", cls.rope_theta))
            values = {**values, "rope_theta": theta, "rope_scaling": scaling}
        return super().from_dict(values)


class _Attention(Module):
    def __init__(self, config: LlamaConfig, layer: int, place: dict[str, Any]) -> None:
        super().__init__()
        self.layer, self.size, self.dropout = layer, config.size_of_head, config.attention_dropout
        hidden, bias = config.hidden_size, config.attention_bias
        heads, groups = config.num_attention_heads, config.key_value_heads
        self.q_proj = Linear(hidden, heads * self.size, bias, **place)
        self.k_proj = Linear(hidden, groups * self.size, bias, **place)
        self.v_proj = Linear(hidden, groups * self.size, bias, **place)
        self.o_proj = Linear(heads * self.size, hidden, bias, **place)

    def forward(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache | None, mask: Tensor | None
    ) -> Tensor:
        query, key, value = (
            projection(hidden).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (F.rotary_embedding(each, *angles) for each in (query, key))
        dropout = self.dropout if self.training else 0.0
        return self.o_proj(attend(query, key, value, self.layer, cache, mask, dropout))


class _Layer(Module):
    def __init__(self, config: LlamaConfig, layer: int, place: dict[str, Any]) -> None:
        super().__init__()
        self.self_attn = _Attention(config, layer, place)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias, **place)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, **place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, **place)

    def forward(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache | None, mask: Tensor | None
    ) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), angles, cache, mask)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class _Decoder(Module):
    def __init__(self, config: LlamaConfig, place: dict[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, **place)
        self.layers = ModuleList([_Layer(config, layer, place) for layer in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, **place)
        self.rotary_emb = RotaryEmbedding(config.size_of_head, config.rope_theta, scaling=config.rope_scaling)

    def forward(self, tokens: Tensor, positions: Tensor, cache: KeyValueCache | None, mask: Tensor | None) -> Tensor:
        hidden = self.embed_tokens(tokens)
        angles = self.rotary_emb.angles(positions)
        for layer in self.layers:
            hidden = layer(hidden, angles, cache, mask)
        return self.norm(hidden)


class Llama(LanguageModel):
    """Llama 1 to 3 with its head (Hugging Face's ``LlamaForCausalLM``): token ids (N, L) to logits (N, L, vocab_size).

    ``model(tokens, cache)`` continues the sequences in a :class:`neurenix.nn.KeyValueCache`. ``logits_to_keep=1`` computes
    the logits of the last position only: (N, 1, vocab_size).

    >>> import neurenix as nx
    >>> sizes = dict(vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    >>> model = nx.models.Llama(nx.models.LlamaConfig(**sizes))
    >>> model(nx.tensor([[3, 1, 2]])).shape
    torch.Size([1, 3, 16])
    """

    config_class = LlamaConfig
    _architecture = "LlamaForCausalLM"
    _prefix = "model."
    _ignored = r"(^|\.)rotary_emb\.inv_freq$"

    def __init__(self, config: LlamaConfig, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.config = config
        place = {"device": device, "dtype": dtype}
        self.model = _Decoder(config, place)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False, **place)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self._initialize()

    @property
    def context_length(self) -> int:
        """The greatest number of tokens that the model was trained for."""
        return int(self.config.max_position_embeddings)

    @property
    def num_layers(self) -> int:
        """The number of attention layers."""
        return int(self.config.num_hidden_layers)

    def _embedding_name(self) -> str:
        return "model.embed_tokens.weight"

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None, logits_to_keep: int | None = None) -> Tensor:
        positions, mask = self._extend(tokens, cache)
        hidden = self.model(tokens, positions, cache, mask)
        return self.lm_head(hidden if logits_to_keep is None else hidden[:, -logits_to_keep:])
