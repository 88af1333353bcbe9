"""Language models against Hugging Face's numbers (``golden/make_language_models.py``), reading of files, generation."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import models, nn

F = nn.functional
GOLDEN = Path(__file__).parent / "golden" / "language_models"
EXAMPLE = Path(__file__).parents[2] / "examples" / "generate_text.py"
CASES = [(name, change) for name in ("gpt2", "llama") for change in json.loads((GOLDEN / f"{name}.json").read_text())["changes"]]


def golden(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return content


def changed(tmp_path: Path, name: str, **changes: Any) -> Path:
    """A copy of a golden folder with other settings."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder, dirs_exist_ok=True)
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tiny(**changes: Any) -> models.GPT2:
    sizes = {"vocab_size": 32, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.3, **changes}
    return models.GPT2(models.GPT2Config(**sizes)).eval()


# Models.
@pytest.mark.parametrize("name, change", CASES)
def test_logits_and_greedy_tokens_are_those_of_hugging_face(tmp_path: Path, name: str, change: str) -> None:
    content = golden(name)
    folder = changed(tmp_path, name, **content["changes"][change])
    model = models.from_pretrained(folder, device="cpu")
    expected = nx.load(GOLDEN / f"{name}_logits.safetensors")[change]
    found = model(nx.tensor(content["tokens"]))
    assert nx.allclose(found, expected, rtol=1e-4, atol=1e-4)
    made = models.generate(model, content["tokens"], 8, temperature=0)
    assert np.array(list(made)).T.tolist() == content["greedy"][change]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_names_of_parameters_are_those_of_hugging_face(name: str) -> None:
    kind = models.GPT2 if name == "gpt2" else models.Llama
    model = kind.from_pretrained(GOLDEN / name, device="cpu")
    stored = nx.load(GOLDEN / name / "model.safetensors")
    tied = {"lm_head.weight"} if name == "gpt2" else set()
    state = model.state_dict()
    assert set(state) == set(stored) | tied and not model.training
    assert all(state[key].shape == value.shape and nx.array_equal(state[key], value) for key, value in stored.items())
    assert (model.lm_head.weight is model.get_parameter(model._embedding_name())) == bool(tied)


def test_old_names_halves_and_shards_are_read(tmp_path: Path) -> None:
    tokens = nx.tensor([[1, 2, 3]])
    expected = models.from_pretrained(GOLDEN / "gpt2", device="cpu")(tokens)
    folder = changed(tmp_path, "gpt2")
    stored = nx.load(folder / "model.safetensors")
    # Without the prefix, with constants of old files, and with the tied weight twice.
    old = {name.removeprefix("transformer."): value for name, value in stored.items()}
    old |= {"h.0.attn.bias": nx.ones(1, 1, 24, 24), "h.1.attn.masked_bias": nx.tensor(-1e4), "lm_head.weight": old["wte.weight"]}
    nx.save(old, folder / "model.safetensors")
    assert nx.array_equal(models.from_pretrained(folder, device="cpu")(tokens), expected)
    # In several files.
    (folder / "model.safetensors").unlink()
    places: dict[str, str] = {}
    for number in range(2):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        part = dict(list(stored.items())[number::2])
        nx.save(part, folder / file)
        places |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert nx.array_equal(models.from_pretrained(folder, device="cpu")(tokens), expected)
    half = models.GPT2.from_pretrained(folder, device="cpu", dtype=nx.float16)
    assert half.lm_head.weight.dtype == nx.float16 and nx.allclose(half(tokens).float(), expected, atol=0.05)
    # Broken indices.
    index.write_text(json.dumps({"weight_map": {**places, "transformer.more": places["transformer.wte.weight"]}}))
    with pytest.raises(models.CheckpointError, match="lacks parameters .*transformer.more"):
        models.from_pretrained(folder)
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(ValueError, match="same folder"):
        models.from_pretrained(folder)
    index.write_text(json.dumps({"weight_map": {"a": "other.safetensors"}}))
    with pytest.raises(FileNotFoundError, match="other.safetensors"):
        models.from_pretrained(folder)
    index.write_text("{}")
    with pytest.raises(ValueError, match="weight_map"):
        models.from_pretrained(folder)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_saved_model_is_the_same(tmp_path: Path, name: str) -> None:
    model = models.from_pretrained(GOLDEN / name, device="cpu")
    model.save_pretrained(tmp_path / "new" / name)
    again = models.from_pretrained(tmp_path / "new" / name, device="cpu")
    tokens = nx.tensor(golden(name)["tokens"])
    assert again.config == model.config and nx.array_equal(again(tokens), model(tokens))
    stored = nx.load(tmp_path / "new" / name / "model.safetensors")
    assert set(stored) == set(nx.load(GOLDEN / name / "model.safetensors"))


def test_a_dtype_is_that_of_the_file_unless_given(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llama")
    stored = nx.load(folder / "model.safetensors")
    nx.save({name: value.bfloat16() for name, value in stored.items()}, folder / "model.safetensors")
    assert models.from_pretrained(folder, device="cpu").lm_head.weight.dtype == nx.bfloat16
    model = models.from_pretrained(folder, device="cpu", dtype="float32")
    expected = nx.load(GOLDEN / "llama_logits.safetensors")["default"]
    found = model(nx.tensor(golden("llama")["tokens"]))
    assert found.dtype == nx.float32 and nx.allclose(found, expected, rtol=0.1, atol=0.1)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llama")
    stored = nx.load(folder / "model.safetensors")
    norm, up = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"
    wrong = {name: value for name, value in stored.items() if name != norm}
    nx.save({**wrong, "model.more": nx.ones(2), up: nx.ones(3, 16)}, folder / "model.safetensors")
    with pytest.raises(models.CheckpointError) as caught:
        models.Llama.from_pretrained(folder)
    assert caught.value.missing == [norm] and caught.value.unexpected == ["model.more"]
    assert caught.value.mismatched == {up: ((3, 16), (28, 16))}
    for text in (norm, "model.more", f"{up} has shape (3, 16), the model has (28, 16)"):
        assert text in str(caught.value)
    # The head is required unless it is tied, and must then be the embedding.
    nx.save({name: value for name, value in stored.items() if name != "lm_head.weight"}, folder / "model.safetensors")
    with pytest.raises(models.CheckpointError, match="missing parameters: lm_head.weight"):
        models.from_pretrained(folder)
    tied = changed(tmp_path / "tied", "llama", tie_word_embeddings=True)
    with pytest.raises(models.CheckpointError, match="lm_head.weight differs from model.embed_tokens.weight"):
        models.from_pretrained(tied)
    shutil.copy(folder / "model.safetensors", tied / "model.safetensors")
    model = models.from_pretrained(tied)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_wrong_folders_and_configurations_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        models.from_pretrained(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="config.json"):
        models.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        models.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="JSON object"):
        models.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(NotImplementedError, match="'t5' is not supported; supported: gpt2, llama"):
        models.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        models.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected model_type 'llama', got 'gpt2'"):
        models.Llama.from_pretrained(GOLDEN / "gpt2")
    for config, values, error, text in [
        (models.GPT2Config, {"n_head": 5}, ValueError, "divisible"),
        (models.GPT2Config, {"n_layer": 0}, ValueError, "n_layer is 0"),
        (models.GPT2Config, {"activation_function": "tanh2"}, NotImplementedError, "tanh2"),
        (models.GPT2Config, {"scale_attn_by_inverse_layer_idx": True}, NotImplementedError, "inverse_layer"),
        (models.LlamaConfig, {"hidden_size": 30}, ValueError, "divisible"),
        (models.LlamaConfig, {"num_key_value_heads": 5}, ValueError, "divisible"),
        (models.LlamaConfig, {"hidden_act": "gelu"}, NotImplementedError, "gelu"),
    ]:
        with pytest.raises(error, match=text):
            config.from_dict(values)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_models_learn(name: str) -> None:
    model = models.from_pretrained(GOLDEN / name, device="cpu").train()
    tokens = nx.tensor(golden(name)["tokens"])
    optimizer = nx.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


# Caches.
@pytest.mark.parametrize("max_length", [None, 9, 16])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_steps_with_a_cache_equal_one_pass(name: str, max_length: int | None) -> None:
    model = models.from_pretrained(GOLDEN / name, device="cpu")
    tokens = nx.tensor(golden(name)["tokens"])[:, :9]
    whole, at = model(tokens), 0
    cache = model.new_cache(max_length)
    for count in (4, 1, 1, 3):
        part = model(tokens[:, at : at + count], cache)
        assert nx.allclose(part, whole[:, at : at + count], atol=1e-5)
        at += count
        assert cache.length == at
    cache.reset()
    assert nx.allclose(model(tokens, cache, 1), whole[:, -1:], atol=1e-5)


def test_steps_with_a_static_cache_share_a_plan() -> None:
    model, plans = tiny(), []
    cache = model.new_cache(16)
    token = nx.tensor([[3]])
    with nx.no_grad():
        model(nx.tensor([[1, 2, 3]]), cache).evaluate()
        cache.evaluate()
        for _ in range(4):
            logits = model(token, cache, 1)
            plans.append(logits.explain())
            cache.evaluate(logits)
            token = logits.argmax(-1).evaluate()
    assert plans[1] == plans[2] == plans[3] is not None


# Generation.
def test_generation_is_the_loop_without_a_cache() -> None:
    model, tokens = tiny(), [3, 1, 2]
    settings: dict[str, Any] = {"temperature": 0.7, "top_k": 8, "top_p": 0.95}
    made = list(models.generate(model, tokens, 9, generator=nx.Generator(5), **settings))
    generator, expected = nx.Generator(5), list(tokens)
    with nx.no_grad():
        for _ in range(9):
            logits = model(nx.tensor([expected]))[:, -1]
            expected.append(int(nn.sample(logits, 0.7, 8, 0.95, generator).item()))
    assert tokens + made == expected and all(isinstance(token, int) for token in made)
    growing = models.generate(model, nx.tensor(tokens), 9, generator=nx.Generator(5), cache=model.new_cache(), **settings)
    assert list(growing) == made


def test_generation_stops_and_continues() -> None:
    model = tiny()
    made = list(models.generate(model, [3, 1, 2], 12, temperature=0))
    stop = made[4]
    first = made.index(stop)
    assert list(models.generate(model, [3, 1, 2], 12, temperature=0, stop_tokens=stop)) == made[: first + 1]
    assert list(models.generate(model, [3, 1, 2], 12, temperature=0, stop_tokens=[stop])) == made[: first + 1]
    cache = model.new_cache(32)
    start = list(models.generate(model, [3, 1, 2], 5, temperature=0, cache=cache))
    assert cache.length == 7
    assert start + list(models.generate(model, start[-1:], 7, temperature=0, cache=cache)) == made
    assert all(each.is_evaluated for both in cache._layers if both is not None for each in both)
    # Rows that have stopped repeat their stop token.
    rows = [[3, 1, 2], [9, 9, 9]]
    both = list(models.generate(model, rows, 12, temperature=2.0, generator=nx.Generator(1)))
    stops = {both[0][0], both[7][1]}
    ended = list(models.generate(model, rows, 12, temperature=2.0, generator=nx.Generator(1), stop_tokens=stops))
    ends = []
    for row, whole in zip(zip(*ended, strict=True), zip(*both, strict=True), strict=True):
        ends.append(next(place for place, token in enumerate(whole) if token in stops))
        assert list(row) == list(whole[: ends[-1] + 1]) + [whole[ends[-1]]] * (len(row) - ends[-1] - 1)
    assert ends[0] == 0 < ends[1] == len(ended) - 1
    # Gradients stay on for the caller.
    for _ in models.generate(model, [1], 2):
        assert nx.is_grad_enabled()


def test_a_gpu_computes_the_next_token_ahead() -> None:
    """It does without a cache of the caller. The tokens are the same."""
    gpu = next((device for device in nx.devices() if device.type != "cpu"), None)
    if gpu is None:
        pytest.skip("there is no GPU, nor a device that stands for one")
    model = tiny().to(gpu)
    calls: list[tuple[Any, dict[str, Any]]] = [
        ([3, 1, 2], {"temperature": 0}),
        ([[3, 1, 2], [9, 9, 9]], {"temperature": 2.0}),
        ([[3, 1, 2], [9, 9, 9]], {"temperature": 0, "stop_tokens": [5]}),
    ]
    calls.append(([3, 1, 2], {"temperature": 0, "stop_tokens": list(models.generate(model, [3, 1, 2], 3, temperature=0))[2]}))
    for tokens, settings in calls:
        alone = models.generate(model, tokens, 10, cache=model.new_cache(32), generator=nx.Generator(1), **settings)
        ahead = list(models.generate(model, tokens, 10, generator=nx.Generator(1), **settings))
        assert ahead == list(alone), settings
    assert len(list(models.generate(model, [1], 64, temperature=0))) == 64
    started = models.generate(model, [1], 64)
    assert [next(started) for _ in range(3)]
    with nx.no_grad():
        model.lm_head.weight.fill_(math.nan)
    with pytest.raises(RuntimeError, match="contain NaN"):
        list(started)


def test_wrong_calls_of_generation_are_errors_at_once() -> None:
    model = tiny()
    for arguments, settings, text in [
        (([], 3), {}, "not empty"),
        (([0.5], 3), {}, "float32"),
        (([[[1]]], 3), {}, "shape"),
        (([1], 0), {}, "max_new_tokens"),
        (([1], 65), {}, "do not fit into 64"),
        (([1], 9), {"cache": model.new_cache(8)}, "do not fit into 8"),
        (([1], 3), {"top_p": 2.0}, "top_p"),
    ]:
        with pytest.raises(ValueError, match=text):
            models.generate(model, *arguments, **settings)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="LanguageModel, got Linear"):
        models.generate(nn.Linear(2, 2), [1], 1)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"\(N, L\)"):
        model(nx.tensor([1, 2]))
    with pytest.raises(ValueError, match="65 tokens do not fit into a context of 64"):
        model(nx.zeros(1, 65, dtype=nx.int64))
    assert len(list(models.generate(model, [1], 64))) == 64


def test_undefined_logits_are_an_error() -> None:
    model = tiny()
    made = models.generate(model, [1], 4)
    next(made)
    model.transformer.ln_f.weight.data[0] = math.nan
    with pytest.raises(RuntimeError, match="after 2 tokens contain NaN"):
        next(made)


# The example.
def run(*arguments: str, modules: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    if modules is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, str(EXAMPLE), "--device", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=120)


def test_the_example_writes_text() -> None:
    first, second = (run("--prompt", "Hello", "--max-new-tokens", "6", "--seed", "4") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("Hello") and first.stdout == second.stdout
    assert "tokens/s" in first.stderr


def test_the_example_reads_a_folder(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llama")
    missing = run(str(tmp_path / "none"))
    assert missing.returncode == 1 and "no such folder" in missing.stderr and "Traceback" not in missing.stderr
    # Its vocabulary has 64 tokens, which are the first 64 bytes.
    found = run(str(folder), "--prompt", "12 + 3", "--max-new-tokens", "5", "--temperature", "0")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("12 + 3")
    outside = run(str(folder), "--prompt", "Hello")
    assert outside.returncode == 1 and "vocabulary of 64" in outside.stderr and "Traceback" not in outside.stderr


TOKENIZERS = """
class Tokenizer:
    from_file = classmethod(lambda cls, path: cls())
    def encode(self, text):
        self.ids = [0, 2]
        return self
    def decode(self, tokens):
        # A last token that is odd begins a character that the next one ends.
        text = "".join(chr(97 + token % 26) for token in tokens)
        return text[:-1] + "\\ufffd" if tokens[-1] % 2 else text
"""


def test_the_example_uses_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llama")
    (folder / "tokenizer.json").write_text("{}")
    modules = tmp_path / "modules"
    modules.mkdir()
    settings = ("--prompt", "two and", "--max-new-tokens", "8", "--temperature", "0")
    (modules / "tokenizers.py").write_text("raise ImportError")
    missing = run(str(folder), *settings, modules=modules)
    assert missing.returncode == 1 and "pip install tokenizers" in missing.stderr and "Traceback" not in missing.stderr
    (modules / "tokenizers.py").write_text(TOKENIZERS)
    found = run(str(folder), *settings, modules=modules)
    assert found.returncode == 0, found.stderr
    tokens = list(models.generate(models.from_pretrained(folder, device="cpu"), [0, 2], 8, temperature=0))
    while tokens and tokens[-1] % 2:
        tokens.pop()
    assert found.stdout == "two and" + "".join(chr(97 + token % 26) for token in tokens) + "\n"


def test_ids_outside_the_vocabulary_are_errors() -> None:
    model = models.GPT2(models.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2)).eval()
    for tokens in ([3, -1], [3, 16]):
        with pytest.raises(ValueError, match=f"the token id {tokens[1]} is outside the vocabulary of 16"):
            models.generate(model, tokens, 2)
    with pytest.raises(ValueError, match="the stop token 16 is outside"):
        models.generate(model, [3], 2, stop_tokens=[1, 16])
