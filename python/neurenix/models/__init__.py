"""Language models with Hugging Face's parameter names and files, and generation of text.

>>> import neurenix as nx
>>> sizes = dict(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2)
>>> model = nx.models.GPT2(nx.models.GPT2Config(**sizes)).eval()
>>> tokens = list(nx.models.generate(model, [3, 1, 2], max_new_tokens=4, temperature=0))
>>> len(tokens)
4
"""

from __future__ import annotations

from ._pretrained import CheckpointError
from .generation import from_pretrained, generate
from .gpt2 import GPT2, GPT2Config
from .language_model import Config, LanguageModel
from .llama import Llama, LlamaConfig

__all__ = [
    "CheckpointError",
    "Config",
    "GPT2",
    "GPT2Config",
    "LanguageModel",
    "Llama",
    "LlamaConfig",
    "from_pretrained",
    "generate",
]
