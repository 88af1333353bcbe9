"""What the language models share."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from .. import _engine
from .._engine import Tensor
from ..nn import KeyValueCache, Module, functional as F, init
from ..nn.utils import skip_init
from ._pretrained import CONFIG, SINGLE, CheckpointError, assign, read_config, read_weights, renamed

M = TypeVar("M", bound="LanguageModel")
C = TypeVar("C", bound="Config")


@dataclasses.dataclass(frozen=True)
class Config:
    """The base class of configurations: the fields have the names of Hugging Face's ``config.json``."""

    model_type: ClassVar[str] = ""

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """The configuration in the contents of a ``config.json``. Entries that do not change results are ignored."""
        kind = values.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise ValueError(f"{cls.__name__}: expected model_type {cls.model_type!r}, got {kind!r}")
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def check_sizes(self, *names: str) -> None:
        """Raises an error unless these fields are positive integers."""
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{type(self).__name__}: {name} is {value!r}, it must be a positive integer")


class LanguageModel(Module):
    """The base class of models that predict the next token: (N, L) token ids to logits (N, L, V)."""

    config_class: ClassVar[type[Config]]
    _architecture: ClassVar[str]
    """Hugging Face's name of the class."""
    _prefix: ClassVar[str]
    """Names of parameters begin with it, except for those of the head."""
    _ignored: ClassVar[str]
    """A pattern of names that old checkpoints contain in addition to the parameters."""

    config: Any

    @property
    def context_length(self) -> int:
        """The greatest number of tokens of a sequence."""
        raise NotImplementedError(f"{type(self).__name__} does not define context_length")

    @property
    def num_layers(self) -> int:
        """The number of attention layers."""
        raise NotImplementedError(f"{type(self).__name__} does not define num_layers")

    @property
    def device(self) -> Any:
        """The device of the parameters."""
        return self.parameters()[0].device

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters."""
        return self.parameters()[0].dtype

    @classmethod
    def from_pretrained(
        cls: type[M], folder: str | os.PathLike[str], *, device: Any = None, dtype: Any = None
    ) -> M:
        """The model in a folder with Hugging Face's ``config.json`` and ``model.safetensors``, or with several files and
        ``model.safetensors.index.json``; in evaluation mode. Nothing is downloaded.

        ``dtype`` is by default that of the file, ``device`` the default device.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the configuration is not one of this model.
            NotImplementedError: the configuration has a setting that is not supported.
            CheckpointError: parameters are missing or unexpected, or have other shapes.
        """
        config = cls.config_class.from_dict(read_config(folder))
        weights = renamed(read_weights(folder, device or _engine.get_default_device()), cls._prefix, cls._ignored)
        if dtype is None:
            floating = [value.dtype for value in weights.values() if value.is_floating_point()]
            dtype = floating[0] if floating else None
        model = skip_init(cls, config, device=device, dtype=dtype)
        model._tie(weights, folder)
        assign(model, weights, folder)
        return model.eval()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``config.json`` and ``model.safetensors``, which :meth:`from_pretrained` and Hugging Face's libraries read.
        The folder is created if it does not exist. A head that shares the embedding is stored once.
        """
        os.makedirs(folder, exist_ok=True)
        state = self.state_dict()
        if self.config.tie_word_embeddings:
            del state["lm_head.weight"]
        # Hugging Face's loaders require the format in the metadata.
        _engine.save_safetensors(os.path.join(folder, SINGLE), state, {"format": "pt"})
        dtype = next(iter(state.values())).dtype.name
        values = {"architectures": [self._architecture], "model_type": self.config.model_type, "dtype": dtype}
        values.update(dataclasses.asdict(self.config))
        with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
            file.write(json.dumps(values, indent=2) + "\n")

    def _tie(self, weights: dict[str, Tensor], folder: str | os.PathLike[str]) -> None:
        """If the head shares the embedding, files may contain it once or twice."""
        head, table = "lm_head.weight", self._embedding_name()
        if not self.config.tie_word_embeddings or table not in weights:
            return
        twice = head in weights and weights[head].shape == weights[table].shape
        if twice and not bool((weights[head] == weights[table]).all()):
            raise CheckpointError(
                f"{os.fspath(folder)}: {head} differs from {table}, although tie_word_embeddings is true: set it to false in "
                "config.json"
            )
        weights.setdefault(head, weights[table])

    def _embedding_name(self) -> str:
        raise NotImplementedError(f"{type(self).__name__} does not define _embedding_name")

    def new_cache(self, max_length: int | None = None) -> KeyValueCache:
        """An empty cache for this model: static with ``max_length``, else growing."""
        return KeyValueCache(self.num_layers, max_length)

    def _extend(self, tokens: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor | None]:
        """The positions of the tokens, and the mask if there is a cache."""
        if tokens.ndim != 2 or not tokens.numel() or tokens.is_floating_point() or tokens.dtype.name == "bool":
            raise ValueError(
                f"{type(self).__name__}: expected token ids of shape (N, L), not empty, got {tokens.dtype.name} of shape "
                f"{tuple(tokens.shape)}"
            )
        count = tokens.shape[1]
        total = count + (0 if cache is None else cache.length)
        if total > self.context_length:
            raise ValueError(f"{type(self).__name__}: {total} tokens do not fit into a context of {self.context_length}")
        if cache is None:
            return _engine.arange(count, device=tokens.device), None
        return cache.extend(count, tokens.device)

    def _initialize(self) -> None:
        """Draws the weights of matrices from a normal distribution, as these models do; biases are zero."""
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                init.normal_(parameter, 0.0, self.config.initializer_range)
            elif name.endswith("bias"):
                init.zeros_(parameter)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layer: int,
    cache: KeyValueCache | None,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """Causal attention of (N, H, L, E), over the cached tokens too, as (N, L, H * E)."""
    grouped = query.shape[1] != key.shape[1]
    if cache is not None:
        key, value = cache.update(layer, key, value)
    mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout, cache is None, enable_gqa=grouped)
    return mixed.transpose(1, 2).flatten(2)
