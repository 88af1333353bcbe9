"""Rotary positions, grouped attention, SwiGLU, key-value caches, sampling."""

from __future__ import annotations

import math

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn

F = nn.functional


def numbers(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# Layers.
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions_rotate_complex_numbers(interleaved: bool) -> None:
    query, key, positions = numbers(2, 4, 5, 8), numbers(2, 2, 5, 8, seed=6), np.array([0, 3, 4, 9, 100])
    turns = np.exp(1j * positions[:, None] * 100.0 ** (-np.arange(0, 8, 2) / 8))

    def rotated(x: np.ndarray) -> np.ndarray:
        if interleaved:
            z = (x[..., ::2] + 1j * x[..., 1::2]) * turns
            return np.stack([z.real, z.imag], -1).reshape(x.shape)
        z = (x[..., :4] + 1j * x[..., 4:]) * turns
        return np.concatenate([z.real, z.imag], -1)

    layer = nn.RotaryEmbedding(8, base=100.0, interleaved=interleaved)
    found = layer(nx.tensor(query), nx.tensor(key), nx.tensor(positions))
    for result, x in zip(found, (query, key), strict=True):
        assert np.allclose(result.numpy(), rotated(x), atol=2e-5)
    first = layer(nx.tensor(query), nx.tensor(key))[0]
    assert np.allclose(first.numpy()[..., 0, :], query[..., 0, :])
    assert not layer.state_dict() and layer(nx.tensor(query).half(), nx.tensor(key).half())[0].dtype == nx.float16


def test_rotary_positions_have_gradients() -> None:
    x = nx.tensor(numbers(3, 6), requires_grad=True)
    rotated, _ = nn.RotaryEmbedding(6)(x, x)
    weights = nx.tensor(numbers(3, 6, seed=1))
    (rotated * weights).sum().backward()
    # The gradient is the rotation in the opposite direction.
    cos, sin = nn.RotaryEmbedding(6).angles(nx.arange(3))
    assert x.grad is not None and nx.allclose(x.grad, F.rotary_embedding(weights, cos, -sin), atol=1e-6)


def test_wrong_rotary_positions_are_errors() -> None:
    with pytest.raises(ValueError, match="even"):
        nn.RotaryEmbedding(7)
    with pytest.raises(ValueError, match="base"):
        nn.RotaryEmbedding(8, base=0.0)
    with pytest.raises(ValueError, match=r"\(\.\.\., L, 8\)"):
        nn.RotaryEmbedding(8)(nx.zeros(1, 4), nx.zeros(1, 4))
    with pytest.raises(ValueError, match="even E"):
        F.rotary_embedding(nx.zeros(2, 3), nx.zeros(2, 1), nx.zeros(2, 1))
    with pytest.raises(NotImplementedError, match="yarn"):
        nn.RotaryEmbedding(8, scaling={"rope_type": "yarn"})
    with pytest.raises(ValueError, match="lacks factor"):
        nn.RotaryEmbedding(8, scaling={"rope_type": "linear"})


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("kind", ["all", "masked", "causal"])
def test_grouped_attention_repeats_heads(length: int, kind: str) -> None:
    is_causal = kind == "causal"
    query, key, value = (nx.tensor(numbers(2, h, s, 8, seed=h)) for h, s in ((6, length), (2, 5), (2, 5)))
    query.requires_grad_(), key.requires_grad_()
    mask = nx.tensor(np.random.default_rng(0).random((length, 5)) < 0.7) | (nx.arange(5) == 0) if kind == "masked" else None
    found = F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, enable_gqa=True)
    # Without the engine's attention.
    scores = query.detach().numpy() @ key.detach().numpy().repeat(3, 1).swapaxes(2, 3) / math.sqrt(8)
    allowed = np.tril(np.ones((length, 5), bool)) if is_causal else np.ones((length, 5), bool) if mask is None else mask.numpy()
    weights = np.where(allowed, np.exp(scores), 0.0)
    expected = weights / weights.sum(-1, keepdims=True) @ value.numpy().repeat(3, 1)
    assert np.allclose(found.detach().numpy(), expected, atol=1e-5)
    keys, values = (each.repeat_interleave(3, 1) for each in (key, value))
    repeated = F.scaled_dot_product_attention(query, keys, values, mask, 0.0, is_causal)
    for one, other in zip(nx.grad(found.sum(), [query, key]), nx.grad(repeated.sum(), [query, key]), strict=True):
        assert nx.allclose(one, other, atol=1e-5)


def test_swiglu_is_its_formula() -> None:
    layer, x = nn.SwiGLU(4, 6, 3, bias=True), numbers(5, 4)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    gate, up = (x @ state[f"{name}.weight"].T + state[f"{name}.bias"] for name in ("gate_proj", "up_proj"))
    expected = (gate / (1 + np.exp(-gate)) * up) @ state["down_proj.weight"].T + state["down_proj.bias"]
    assert np.allclose(layer(nx.tensor(x)).detach().numpy(), expected, atol=1e-6)
    assert list(nn.SwiGLU(4, 6).state_dict()) == ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]


# The cache.
def test_a_static_cache_keeps_its_shapes() -> None:
    cache = nn.KeyValueCache(2, max_length=6)
    for step, count in enumerate((2, 1, 1)):
        positions, mask = cache.extend(count)
        at = positions.tolist()
        assert mask.tolist() == [[other <= position for other in range(6)] for position in at]
        for layer in range(2):
            keys, values = cache.update(layer, nx.full((1, 3, count, 4), step + 1.0), nx.full((1, 3, count, 5), -step - 1.0))
            assert keys.shape == (1, 3, 6, 4) and values.shape == (1, 3, 6, 5)
        cache.evaluate()
    assert keys[0, 2, :, 3].tolist() == [1.0, 1.0, 2.0, 3.0, 0.0, 0.0]
    assert values[0, 0, :, 0].tolist() == [-1.0, -1.0, -2.0, -3.0, 0.0, 0.0]


def test_misuse_of_a_cache_is_an_error() -> None:
    one = nx.zeros(1, 2, 1, 4)
    with pytest.raises(ValueError, match="num_layers"):
        nn.KeyValueCache(0)
    with pytest.raises(ValueError, match="max_length"):
        nn.KeyValueCache(1, 0)
    cache = nn.KeyValueCache(2, 2)
    with pytest.raises(RuntimeError, match="extend"):
        cache.update(0, one, one)
    with pytest.raises(ValueError, match="count"):
        cache.extend(0)
    with pytest.raises(ValueError, match="3 tokens do not fit after 0: max_length is 2"):
        cache.extend(3)
    cache.extend(1)
    with pytest.raises(RuntimeError, match="layer 5"):
        cache.update(5, one, one)
    with pytest.raises(ValueError, match=r"\(N, H, 1, E\)"):
        cache.update(0, nx.zeros(1, 2, 2, 4), one)
    with pytest.raises(ValueError, match="agree"):
        cache.update(0, one, nx.zeros(1, 1, 1, 4))
    cache.update(0, one, one)
    with pytest.raises(RuntimeError, match="extend"):
        cache.update(0, one, one)
    with pytest.raises(RuntimeError, match="layers 1 have not"):
        cache.extend(1)
    cache.update(1, one, one)
    cache.extend(1)
    with pytest.raises(ValueError, match="reset"):
        cache.update(0, nx.zeros(2, 2, 1, 4), nx.zeros(2, 2, 1, 4))
    cache.reset()
    assert cache.length == 0 and repr(cache) == "KeyValueCache(num_layers=2, max_length=2, length=0)"


# Sampling.
def expected_probabilities(logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None) -> np.ndarray:
    scores = logits.astype("float64") / temperature
    p = np.exp(scores - scores.max())
    order = np.argsort(-p)
    kept = order[:top_k] if top_k is not None else order
    p[np.setdiff1d(order, kept)] = 0.0
    p /= p.sum()
    if top_p is not None:
        count = int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1
        p[order[count:]] = 0.0
    return p / p.sum()


@pytest.mark.parametrize("temperature, top_k, top_p", [
    (1.0, None, None), (0.5, None, None), (2.0, 4, None), (1.0, None, 0.8), (1.5, 6, 0.7), (1.0, 1, None),
    (1.0, None, 1e-9), (1.0, 99, 1.0),
])  # fmt: skip
def test_frequencies_are_the_probabilities(temperature: float, top_k: int | None, top_p: float | None) -> None:
    logits, count = numbers(12) * 1.5, 20000
    p = expected_probabilities(logits, temperature, top_k, top_p)
    rows = nx.tensor(logits).expand(count, 12)
    drawn = nn.sample(rows, temperature, top_k, top_p, nx.Generator(3))
    assert drawn.shape == (count,) and drawn.dtype == nx.int64
    found = np.bincount(drawn.numpy(), minlength=12)
    assert not found[p == 0].any()
    # Five standard deviations.
    assert (np.abs(found - count * p) <= 5 * np.sqrt(count * p * (1 - p)) + 1e-6).all()


def test_sampling_is_reproducible() -> None:
    logits = nx.tensor(numbers(2, 3, 40))
    first, second = (nn.sample(logits, generator=nx.Generator(7)) for _ in range(2))
    assert first.shape == (2, 3) and first.tolist() == second.tolist()
    assert nn.sample(logits, generator=nx.Generator(8)).tolist() != first.tolist()
    nx.manual_seed(1)
    third = nn.sample(logits, 1.0, 5)
    nx.manual_seed(1)
    assert nn.sample(logits, 1.0, 5).tolist() == third.tolist()


def test_no_temperature_takes_the_greatest() -> None:
    logits = numbers(6, 9)
    assert nn.sample(nx.tensor(logits), temperature=0).tolist() == logits.argmax(-1).tolist()
    assert nn.sample(nx.tensor(logits), temperature=0, top_k=3, top_p=0.5).tolist() == logits.argmax(-1).tolist()
    assert nn.sample(nx.tensor([[-math.inf, 0.0, -math.inf]]).expand(50, 3)).tolist() == [1] * 50
    assert nn.sample(nx.tensor(logits).half(), top_k=1).tolist() == logits.argmax(-1).tolist()


def test_wrong_settings_of_sampling_are_errors() -> None:
    logits = nx.zeros(3)
    for settings in ({"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ValueError, match=f"sample: {next(iter(settings))} is"):
            nn.sample(logits, **settings)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="top_k, got float"):
        nn.sample(logits, top_k=2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int64"):
        nn.sample(nx.tensor([1, 2]))
    with pytest.raises(ValueError, match="V at least 1"):
        nn.sample(nx.zeros(2, 0))
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        nn.sample([1.0])  # type: ignore[arg-type]


def test_initial_values_can_be_skipped() -> None:
    before = nx.get_rng_state()
    layer = nn.utils.skip_init(nn.TransformerEncoderLayer, 8, 2, 16)
    assert nx.get_rng_state() == before
    assert not layer.linear1.weight.detach().any() and bool((layer.norm1.weight == 1.0).all())
    with pytest.raises(ValueError, match="divisible"):
        nn.utils.skip_init(nn.MultiheadAttention, 8, 3)
    assert bool(nn.Linear(8, 8).weight.detach().any())
