"""GPT-2 (Radford et al., 2019), with Hugging Face's parameter names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import _engine
from .._engine import Tensor
from ..nn import Dropout, Embedding, KeyValueCache, LayerNorm, Linear, Module, ModuleList, Parameter, functional as F
from .language_model import Config, LanguageModel, attend

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, "tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, "tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
}


@dataclass(frozen=True)
class GPT2Config(Config):
    """The sizes of a :class:`GPT2`, with the names and defaults of Hugging Face's ``config.json``."""

    model_type: ClassVar[str] = "gpt2"

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self) -> None:
        self.check_sizes("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
        if self.n_embd % self.n_head:
            raise ValueError(f"GPT2Config: n_embd {self.n_embd} is not divisible by n_head {self.n_head}")
        if self.activation_function not in _ACTIVATIONS:
            raise NotImplementedError(
                f"GPT2Config: activation_function {self.activation_function!r} is not supported; supported: "
                f"{', '.join(_ACTIVATIONS)}"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GPT2Config:
        usual = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
        for name, value in usual.items():
            if values.get(name, value) != value:
                raise NotImplementedError(f"GPT2Config: {name}={values[name]} is not supported")
        return super().from_dict(values)


class Conv1D(Module):
    """``input @ weight + bias``: (..., in_features) to (..., out_features). ``weight`` is (in_features, out_features), as
    in Hugging Face's files and unlike in ``nn.Linear``.
    """

    def __init__(self, out_features: int, in_features: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(_engine.zeros(in_features, out_features, device=device, dtype=dtype))
        self.bias = Parameter(_engine.zeros(out_features, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight.transpose(0, 1), self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class _Attention(Module):
    def __init__(self, config: GPT2Config, layer: int, place: dict[str, Any]) -> None:
        super().__init__()
        self.layer, self.num_heads, self.dropout = layer, config.n_head, config.attn_pdrop
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd, **place)
        self.c_proj = Conv1D(config.n_embd, config.n_embd, **place)
        self.resid_dropout = Dropout(config.resid_pdrop)

    def forward(self, hidden: Tensor, cache: KeyValueCache | None, mask: Tensor | None) -> Tensor:
        parts = self.c_attn(hidden).split(hidden.shape[-1], -1)
        query, key, value = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        return self.resid_dropout(self.c_proj(attend(query, key, value, self.layer, cache, mask, dropout)))


class _FeedForward(Module):
    def __init__(self, config: GPT2Config, place: dict[str, Any]) -> None:
        super().__init__()
        inner = 4 * config.n_embd if config.n_inner is None else config.n_inner
        self.c_fc = Conv1D(inner, config.n_embd, **place)
        self.c_proj = Conv1D(config.n_embd, inner, **place)
        self.activation = config.activation_function
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.dropout(self.c_proj(_ACTIVATIONS[self.activation](self.c_fc(hidden))))


class _Block(Module):
    def __init__(self, config: GPT2Config, layer: int, place: dict[str, Any]) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.layer_norm_epsilon, **place)
        self.attn = _Attention(config, layer, place)
        self.ln_2 = LayerNorm(config.n_embd, config.layer_norm_epsilon, **place)
        self.mlp = _FeedForward(config, place)

    def forward(self, hidden: Tensor, cache: KeyValueCache | None, mask: Tensor | None) -> Tensor:
        hidden = hidden + self.attn(self.ln_1(hidden), cache, mask)
        return hidden + self.mlp(self.ln_2(hidden))


class _Transformer(Module):
    def __init__(self, config: GPT2Config, place: dict[str, Any]) -> None:
        super().__init__()
        self.wte = Embedding(config.vocab_size, config.n_embd, **place)
        self.wpe = Embedding(config.n_positions, config.n_embd, **place)
        self.drop = Dropout(config.embd_pdrop)
        self.h = ModuleList([_Block(config, layer, place) for layer in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd, config.layer_norm_epsilon, **place)

    def forward(self, tokens: Tensor, positions: Tensor, cache: KeyValueCache | None, mask: Tensor | None) -> Tensor:
        hidden = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            hidden = block(hidden, cache, mask)
        return self.ln_f(hidden)


class GPT2(LanguageModel):
    """GPT-2 with its head (Hugging Face's ``GPT2LMHeadModel``): token ids (N, L) to logits (N, L, vocab_size).

    ``model(tokens, cache)`` continues the sequences in a :class:`neurenix.nn.KeyValueCache`. ``logits_to_keep=1`` computes
    the logits of the last position only: (N, 1, vocab_size).

    >>> import neurenix as nx
    >>> model = nx.models.GPT2(nx.models.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    >>> model(nx.tensor([[3, 1, 2]])).shape
    torch.Size([1, 3, 16])
    """

    config_class = GPT2Config
    _architecture = "GPT2LMHeadModel"
    _prefix = "transformer."
    _ignored = r"(^|\.)attn\.(bias|masked_bias)$"

    def __init__(self, config: GPT2Config, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.config = config
        place = {"device": device, "dtype": dtype}
        self.transformer = _Transformer(config, place)
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False, **place)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.transformer.wte.weight
        self._initialize()

    @property
    def context_length(self) -> int:
        """The number of positions that have an embedding."""
        return int(self.config.n_positions)

    @property
    def num_layers(self) -> int:
        """The number of attention layers."""
        return int(self.config.n_layer)

    def _embedding_name(self) -> str:
        return "transformer.wte.weight"

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None, logits_to_keep: int | None = None) -> Tensor:
        positions, mask = self._extend(tokens, cache)
        hidden = self.transformer(tokens, positions, cache, mask)
        return self.lm_head(hidden if logits_to_keep is None else hidden[:, -logits_to_keep:])
