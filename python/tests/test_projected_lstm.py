"""The LSTM with a projection, against its definition step by step."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn
from neurenix.nn.utils import rnn

Array = np.ndarray[Any, Any]
UNITS, STATE = 5, 3


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def direction(layer: nn.LSTM, suffix: str, x: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    """One layer in one direction over (T, N, features)."""
    weights = {name: weight.detach().numpy() for name, weight in layer.named_parameters() if name.endswith(suffix)}
    w_ih, w_hh, w_hr = (weights[f"weight_{name}{suffix}"] for name in ("ih", "hh", "hr"))
    bias = sum(weights.get(f"bias_{name}{suffix}", 0.0) for name in ("ih", "hh"))
    outputs = []
    for step in x[::-1] if suffix.endswith("reverse") else x:
        i, f, g, o = np.split(step @ w_ih.T + h @ w_hh.T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c) @ w_hr.T
        outputs.append(h)
    return np.stack(outputs[::-1] if suffix.endswith("reverse") else outputs), h, c


def by_definition(layer: nn.LSTM, x: Array, h_0: Array, c_0: Array) -> tuple[Array, Array, Array]:
    last_h, last_c = [], []
    for number in range(layer.num_layers):
        outputs = []
        for suffix in [f"_l{number}", f"_l{number}_reverse"][: 1 + layer.bidirectional]:
            cell = len(last_h)
            output, h, c = direction(layer, suffix, x, h_0[cell], c_0[cell])
            outputs.append(output)
            last_h.append(h)
            last_c.append(c)
        x = np.concatenate(outputs, axis=-1)
    return x, np.stack(last_h), np.stack(last_c)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
def test_outputs_and_states(layers: int, bidirectional: bool, bias: bool, given: bool) -> None:
    layer = nn.LSTM(
        4, UNITS, layers, bias=bias, batch_first=True, bidirectional=bidirectional, proj_size=STATE, dtype="float64"
    )
    cells = layers * (1 + bidirectional)
    x = numbers(2, 6, 4)
    h_0, c_0 = (numbers(cells, 2, size) * given for size in (STATE, UNITS))
    output, (h, c) = layer(nx.Tensor(x), (nx.Tensor(h_0), nx.Tensor(c_0)) if given else None)
    expected = by_definition(layer, x.transpose(1, 0, 2), h_0, c_0)
    assert output.shape == (2, 6, STATE * (1 + bidirectional)) and h.shape == h_0.shape and c.shape == c_0.shape
    np.testing.assert_allclose(output.detach().numpy().transpose(1, 0, 2), expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(h.detach().numpy(), expected[1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(c.detach().numpy(), expected[2], rtol=1e-10, atol=1e-12)


def test_names_and_shapes_are_those_of_pytorch() -> None:
    layer = nn.LSTM(4, UNITS, 2, proj_size=STATE)
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}
    assert list(shapes.items())[:5] == [
        ("weight_ih_l0", (20, 4)),
        ("weight_hh_l0", (20, STATE)),
        ("bias_ih_l0", (20,)),
        ("bias_hh_l0", (20,)),
        ("weight_hr_l0", (STATE, UNITS)),
    ]
    assert shapes["weight_ih_l1"] == (20, STATE)
    assert "proj_size=3" in repr(layer) and "proj_size" not in repr(nn.LSTM(4, UNITS))


def test_gradients() -> None:
    layer = nn.LSTM(2, UNITS, bidirectional=True, proj_size=STATE, dtype="float64")
    leaves = [nx.Tensor(numbers(*shape)).requires_grad_() for shape in ((3, 2, 2), (2, 2, STATE), (2, 2, UNITS))]
    slopes = nx.Tensor(numbers(3, 2, 2 * STATE))

    def loss() -> Any:
        output, (h, c) = layer(leaves[0], (leaves[1], leaves[2]))
        return (output * slopes).sum() + (h * h).sum() + c.sum()

    loss().backward()
    step = 1e-6
    for leaf in [*leaves, *layer.parameters()]:
        values, places = leaf.detach().numpy().copy(), [0, leaf.numel() // 2, leaf.numel() - 1]
        for place in places:
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved.flat[place] += sign * step
                with nx.no_grad():
                    leaf.copy_(nx.Tensor(moved))
                    ends.append(loss().item())
            with nx.no_grad():
                leaf.copy_(nx.Tensor(values))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert leaf.grad.numpy().flat[place] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_packed_sequences_run_as_if_alone() -> None:
    layer = nn.LSTM(4, UNITS, 2, bidirectional=True, proj_size=STATE, dtype="float64")
    lengths, parts = [2, 5, 3], numbers(3, 5, 4)
    h_0, c_0 = (nx.Tensor(numbers(4, 3, size)) for size in (STATE, UNITS))
    sequences = [nx.Tensor(part[:length]) for part, length in zip(parts, lengths, strict=True)]
    output, (h, c) = layer(rnn.pack_sequence(sequences, enforce_sorted=False), (h_0, c_0))
    padded, _ = rnn.pad_packed_sequence(output)
    for at, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
        alone, (last_h, last_c) = layer(sequence, (h_0[:, at], c_0[:, at]))
        for found, expected in ((padded[:length, at], alone), (h[:, at], last_h), (c[:, at], last_c)):
            np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (-1, UNITS, UNITS + 1):
        with pytest.raises(ValueError, match=f"proj_size is {wrong}, it must be at least 0 and less than hidden_size"):
            nn.LSTM(4, UNITS, proj_size=wrong)
    layer = nn.LSTM(4, UNITS, proj_size=STATE)
    state, cell = nx.zeros(1, 2, STATE), nx.zeros(1, 2, UNITS)
    with pytest.raises(ValueError, match=r"expected a state of shape \(1, 2, 3\), got \(1, 2, 5\)"):
        layer(nx.zeros(3, 2, 4), (cell, cell))
    with pytest.raises(ValueError, match=r"expected a state of shape \(1, 2, 5\), got \(1, 2, 3\)"):
        layer(nx.zeros(3, 2, 4), (state, state))
    assert nn.LSTM(2, 3, proj_size=0)(nx.zeros(4, 1, 2))[0].shape == (4, 1, 3)
