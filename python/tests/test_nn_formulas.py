"""Layers against their formulas in NumPy in float64."""

from __future__ import annotations

import itertools
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn

RNG = np.random.default_rng(5)
Array = Any


def close(actual: nx.Tensor, expected: Array, tolerance: float = 2e-5) -> None:
    assert tuple(actual.shape) == expected.shape
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def windows(spatial: tuple[int, ...], output: tuple[int, ...]) -> Any:
    """Yields each position of the output with the slices of the input that it covers."""
    for place in np.ndindex(*output):
        ends = zip(place, spatial, output, strict=True)
        yield place, tuple(slice(i * size // out, -(-(i + 1) * size // out)) for i, size, out in ends)


@pytest.mark.parametrize(
    ("layer", "shape", "output"),
    [
        (nn.AdaptiveAvgPool1d(3), (2, 2, 7), (3,)),
        (nn.AdaptiveAvgPool3d((2, None, 3)), (2, 2, 3, 4, 5), (2, 4, 3)),
        (nn.AdaptiveAvgPool3d(1), (1, 3, 2, 3, 2), (1, 1, 1)),
        (nn.AdaptiveMaxPool1d(3), (2, 2, 7), (3,)),
        (nn.AdaptiveMaxPool1d(8), (1, 2, 3), (8,)),
        (nn.AdaptiveMaxPool3d((2, 1, None)), (2, 2, 3, 4, 5), (2, 1, 5)),
    ],
    ids=repr,
)
def test_adaptive_pools(layer: nn.Module, shape: tuple[int, ...], output: tuple[int, ...]) -> None:
    array, weights = drawn(*shape), drawn(*shape[:2], *output)
    expected, gradient = np.zeros(weights.shape), np.zeros(shape)
    is_mean = "Avg" in type(layer).__name__
    for place, window in windows(shape[2:], output):
        part = array[(..., *window)].astype(np.float64)
        axes = tuple(range(2, part.ndim))
        best = part.mean(axes, keepdims=True) if is_mean else part.max(axes, keepdims=True)
        share = np.full(part.shape, 1.0 / np.prod(part.shape[2:])) if is_mean else (part == best)
        expected[(..., *place)] = best.reshape(shape[:2])
        gradient[(..., *window)] += share * weights[(..., *place)].reshape(best.shape)
    x = nx.tensor(array, requires_grad=True)
    result = layer(x)
    close(result, expected)
    (result * nx.tensor(weights)).sum().backward()
    close(x.grad, gradient)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("affine", [False, True])
def test_instance_norms(dims: int, affine: bool) -> None:
    layer = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dims - 1](3, eps=1e-3, affine=affine)
    array = drawn(2, 3, *(4, 3, 2)[:dims]) * 3 + 1
    weight, bias = np.ones(3, np.float32), np.zeros(3, np.float32)
    if affine:
        weight, bias = drawn(3), drawn(3)
        layer.load_state_dict({"weight": nx.tensor(weight), "bias": nx.tensor(bias)})
    assert list(layer.state_dict()) == (["weight", "bias"] if affine else [])
    axes = tuple(range(2, array.ndim))
    wide = array.astype(np.float64)
    apart = wide - wide.mean(axes, keepdims=True)
    each = (3,) + (1,) * dims
    expected = apart / np.sqrt(wide.var(axes, keepdims=True) + 1e-3) * weight.reshape(each) + bias.reshape(each)
    close(layer(nx.tensor(array)), expected)
    close(layer.eval()(nx.tensor(array)), expected)
    close(layer(nx.tensor(array[0])), expected[0])
    with pytest.raises(ValueError, match=type(layer).__name__):
        layer(nx.zeros(3))


@pytest.mark.parametrize("kind", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d"])
def test_dropouts(kind: str) -> None:
    layer = getattr(nn, kind)(0.25)
    array = np.abs(drawn(16, 20, *(3, 2, 2)[: int(kind[7]) if kind != "Dropout" else 3])) + 0.5
    x = nx.tensor(array, requires_grad=True)
    result = layer(x)
    result.sum().backward()
    kept = result.detach().numpy() != 0
    close(result, np.where(kept, array / 0.75, 0.0))
    close(x.grad, np.where(kept, 1 / 0.75, 0.0))
    channels = kept.reshape(16 * 20, -1)
    whole = (channels == channels[:, :1]).all()
    assert whole == (kind != "Dropout")
    assert 0.6 < kept.mean() < 0.9
    assert (layer(x).detach().numpy() != result.detach().numpy()).any(), "the same numbers are drawn again"
    close(layer.eval()(x), array)
    close(getattr(nn, kind)(0.0)(x), array)
    assert not getattr(nn, kind)(1.0)(x).detach().numpy().any()
    with pytest.raises(ValueError, match=f"{kind}: p is 1.5"):
        getattr(nn, kind)(1.5)


def test_layers_of_shape() -> None:
    array = drawn(2, 3, 4, 5)
    x = nx.tensor(array)
    assert nn.Identity(1, wrong=2)(x) is x
    close(nn.Flatten()(x), array.reshape(2, 60))
    close(nn.Flatten(0)(x), array.reshape(120))
    close(nn.Flatten(1, 2)(x), array.reshape(2, 12, 5))
    close(nn.Flatten(-2)(x), array.reshape(2, 3, 20))
    close(nn.Unflatten(1, (3, 1))(x), array.reshape(2, 3, 1, 4, 5))
    shuffled = nn.PixelShuffle(2)(nx.tensor(array.reshape(1, 12, 2, 5)))
    expected = array.reshape(1, 3, 2, 2, 2, 5).transpose(0, 1, 4, 2, 5, 3).reshape(1, 3, 4, 10)
    close(shuffled, expected)


def test_linear_embedding_and_bilinear() -> None:
    layer, array = nn.Linear(3, 4), drawn(2, 5, 3)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    close(layer(nx.tensor(array)), array @ weight.T + bias)
    table = nn.Embedding(6, 3, padding_idx=-1)
    index = np.array([[0, 5], [3, 3]])
    close(table(nx.tensor(index)), table.weight.detach().numpy()[index])
    assert not table.weight.detach().numpy()[5].any()
    both, other = nn.Bilinear(3, 2, 4), drawn(2, 5, 2)
    product = np.einsum("...i,kij,...j->...k", array, both.weight.detach().numpy(), other)
    close(both(nx.tensor(array), nx.tensor(other)), product + both.bias.detach().numpy())


State = dict[str, Array]


def filled(model: nn.Module) -> State:
    """Sets random parameters and returns them, because copies of a layer start with equal ones."""
    state = {name: drawn(*value.shape) * 0.5 for name, value in model.state_dict().items()}
    model.load_state_dict({name: nx.tensor(value) for name, value in state.items()})
    return {name: value.astype(np.float64) for name, value in state.items()}


def linear(x: Array, state: State, name: str) -> Array:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def normed(x: Array, state: State, name: str) -> Array:
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def attended(queries: Array, keys: Array, state: State, name: str, mask: Array | None) -> Array:
    """Attention with two heads over (N, L, E); the mask is true where attention is forbidden."""
    weights, biases = state[f"{name}.in_proj_weight"], state[f"{name}.in_proj_bias"]
    parts = zip((queries, keys, keys), np.split(weights, 3), np.split(biases, 3), strict=True)
    q, k, v = (np.stack(np.split(x @ weight.T + bias, 2, -1), 1) for x, weight, bias in parts)
    scores = q @ k.swapaxes(-2, -1) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return linear(np.concatenate(list((shares @ v).swapaxes(0, 1)), -1), state, f"{name}.out_proj")


def fed(x: Array, state: State, name: str) -> Array:
    return linear(np.maximum(linear(x, state, f"{name}.linear1"), 0), state, f"{name}.linear2")


FUTURE = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.array([[False, False, False, True], [False, False, False, False]])


@pytest.mark.parametrize(("norm_first", "is_masked"), list(itertools.product([False, True], repeat=2)))
def test_a_stack_of_encoders(norm_first: bool, is_masked: bool) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(4))
    state, array = filled(model), drawn(2, 4, 4)
    expected = array.astype(np.float64)
    mask = PADDING[:, None, None, :] if is_masked else None
    for name in ("layers.0", "layers.1"):
        parts = (
            ("norm1", lambda x, name=name: attended(x, x, state, f"{name}.self_attn", mask)),
            ("norm2", lambda x, name=name: fed(x, state, name)),
        )
        expected = through(parts, expected, state, name, norm_first)
    options = {"src_key_padding_mask": nx.tensor(PADDING)} if is_masked else {}
    close(model(nx.tensor(array), **options), normed(expected, state, "norm"), 1e-4)


@pytest.mark.parametrize(("norm_first", "is_masked"), list(itertools.product([False, True], repeat=2)))
def test_a_stack_of_decoders(norm_first: bool, is_masked: bool) -> None:
    layer = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerDecoder(layer, 2, nn.LayerNorm(4))
    state, array, memory = filled(model), drawn(2, 3, 4), drawn(2, 4, 4)
    expected = array.astype(np.float64)
    future, padding = (FUTURE, PADDING[:, None, None, :]) if is_masked else (None, None)
    for name in ("layers.0", "layers.1"):
        parts = (
            ("norm1", lambda x, name=name: attended(x, x, state, f"{name}.self_attn", future)),
            ("norm2", lambda x, name=name: attended(x, memory, state, f"{name}.multihead_attn", padding)),
            ("norm3", lambda x, name=name: fed(x, state, name)),
        )
        expected = through(parts, expected, state, name, norm_first)
    options = {}
    if is_masked:
        options = {"tgt_mask": nx.tensor(FUTURE), "memory_key_padding_mask": nx.tensor(PADDING)}
    close(model(nx.tensor(array), nx.tensor(memory), **options), normed(expected, state, "norm"), 1e-4)


def through(parts: Any, x: Array, state: State, name: str, norm_first: bool) -> Array:
    """Each part with its residual connection and its normalisation, before or after it."""
    for norm, part in parts:
        x = x + part(normed(x, state, f"{name}.{norm}")) if norm_first else normed(x + part(x), state, f"{name}.{norm}")
    return x


def test_a_stack_takes_sequences_first_and_single_ones() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2)
    filled(model)
    x = nx.randn(5, 3, 4)
    whole = model(x)
    assert whole.shape == (5, 3, 4)
    close(model(x[:, 1]), whole[:, 1].detach().numpy())
