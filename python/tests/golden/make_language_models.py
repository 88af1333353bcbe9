"""Writes language_models/: small random models of Hugging Face's transformers, their logits and greedy tokens.

Run it with an interpreter that has PyTorch and transformers: ``python tests/golden/make_language_models.py``. The tests do
not need them.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = pathlib.Path(__file__).parent / "language_models"
TOKENS = [[3, 17, 42, 5, 11, 63, 0, 29, 29, 8, 51, 36], [9, 1, 60, 33, 2, 2, 47, 13, 55, 20, 38, 6]]

ENDLESS = {"bos_token_id": None, "eos_token_id": None}
GPT2 = {"vocab_size": 64, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2, **ENDLESS}
LLAMA = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
    **ENDLESS,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

# A name, the classes, the settings of the folder's config.json, and other settings for the same weights.
MODELS = [
    ("gpt2", GPT2Config, GPT2LMHeadModel, GPT2, {"gelu": {"activation_function": "gelu"}}),
    (
        "llama",
        LlamaConfig,
        LlamaForCausalLM,
        LLAMA,
        {
            "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
            "llama3": {"rope_parameters": LLAMA3},
        },
    ),
]


def main():
    torch.manual_seed(0)
    for name, config, model_class, settings, variants in MODELS:
        model = model_class(config(**settings)).eval()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                is_norm = parameter.ndim == 1 and key.endswith("weight")
                parameter.copy_(torch.randn_like(parameter) * 0.3 + (1.0 if is_norm else 0.0))
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
        logits, greedy = {}, {}
        for variant, changes in {"": {}, **variants}.items():
            other = model_class(config(**settings, **changes)).eval()
            other.load_state_dict(model.state_dict())
            tokens = torch.tensor(TOKENS)
            with torch.no_grad():
                logits[variant or "default"] = other(tokens).logits.contiguous()
                mask = torch.ones_like(tokens)
                made = other.generate(tokens, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)
            greedy[variant or "default"] = made[:, tokens.shape[1] :].tolist()
        save_file(logits, FOLDER / f"{name}_logits.safetensors")
        content = {"tokens": TOKENS, "changes": {"default": {}, **variants}, "greedy": greedy}
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
