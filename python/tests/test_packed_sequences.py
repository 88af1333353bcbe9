"""Packed sequences, and recurrent layers over them, against each sequence alone."""

from __future__ import annotations

import doctest
import pickle
import re
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn
from neurenix.nn.utils import rnn

LENGTHS = [3, 6, 1, 6, 4]
SORTED = [6, 6, 4, 3, 1]


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).standard_normal(shape).astype("float32")


def states(found: Any) -> list[nx.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


def gradients(layer: nn.Module, leaves: list[nx.Tensor]) -> list[np.ndarray[Any, Any]]:
    found = [each.grad.numpy() for each in [*leaves, *layer.parameters()]]
    layer.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
@pytest.mark.parametrize("lengths", [LENGTHS, SORTED], ids=["shuffled", "sorted"])
def test_a_layer_runs_each_sequence_as_if_alone(
    kind: str, layers: int, bidirectional: bool, batch_first: bool, given: bool, lengths: list[int]
) -> None:
    layer = getattr(nn, kind)(3, 4, layers, batch_first=batch_first, bidirectional=bidirectional)
    pair = 2 if kind == "LSTM" else 1
    cells, width = layers * (1 + bidirectional), 4 * (1 + bidirectional)
    first = numbers(pair, cells, len(lengths), 4)
    parts, slopes = numbers(len(lengths), 6, 3), numbers(len(lengths), 6, width)
    ends = numbers(pair, cells, len(lengths), 4)[::-1].copy()

    def hx(values: list[nx.Tensor]) -> Any:
        return None if not given else tuple(values) if pair == 2 else values[0]

    # Each sequence alone, as (T, features).
    xs = [nx.Tensor(part[:length]).requires_grad_() for part, length in zip(parts, lengths, strict=True)]
    firsts = [[nx.Tensor(one[:, at]).requires_grad_() for one in first] for at in range(len(lengths))]
    outputs, lasts = [], []
    loss = nx.zeros(())
    for at, (x, length) in enumerate(zip(xs, lengths, strict=True)):
        output, last = layer(x, hx(firsts[at]))
        outputs.append(output)
        lasts.append(states(last))
        loss = loss + (output * nx.Tensor(slopes[at, :length])).sum()
        for one, slope in zip(lasts[-1], ends, strict=True):
            loss = loss + (one * nx.Tensor(slope[:, at])).sum()
    loss.backward()
    x_gradients = [each.grad.numpy() for each in xs]
    first_gradients = [np.stack([each[one].grad.numpy() for each in firsts], 1) for one in range(pair)] if given else []
    alone = gradients(layer, [])

    # All of them packed. Padding is NaN: nothing may read it.
    padded = np.full((len(lengths), 6, 3), np.nan, "float32")
    for at, length in enumerate(lengths):
        padded[at, :length] = parts[at, :length]
    x = nx.Tensor(padded if batch_first else padded.swapaxes(0, 1).copy()).requires_grad_()
    together = [nx.Tensor(one).requires_grad_() for one in first]
    packed = rnn.pack_padded_sequence(x, nx.tensor(lengths), batch_first, enforce_sorted=lengths is SORTED)
    result, last = layer(packed, hx(together))
    assert isinstance(result, rnn.PackedSequence)
    output, sizes = rnn.pad_packed_sequence(result, batch_first=True)
    assert output.shape == (len(lengths), 6, width) and sizes.tolist() == lengths
    weighted = nx.zeros(())
    for one, slope in zip(states(last), ends, strict=True):
        assert one.shape == (cells, len(lengths), 4)
        weighted = weighted + (one * nx.Tensor(slope)).sum()
    ((output * nx.Tensor(slopes)).sum() + weighted).backward()
    for at, length in enumerate(lengths):
        assert np.allclose(output[at, :length].detach().numpy(), outputs[at].detach().numpy(), atol=1e-6)
        assert not output[at, length:].detach().numpy().any()
        for one, expected in zip(states(last), lasts[at], strict=True):
            assert np.allclose(one[:, at].detach().numpy(), expected.detach().numpy(), atol=1e-6)
        found = (x.grad if batch_first else x.grad.transpose(0, 1)).numpy()[at]
        assert np.allclose(found[:length], x_gradients[at], atol=1e-5) and not found[length:].any()
    if given:
        for state, expected in zip(together, first_gradients, strict=True):
            assert np.allclose(state.grad.numpy(), expected, atol=1e-5)
    for one, expected in zip(gradients(layer, []), alone, strict=True):
        assert np.allclose(one, expected, atol=1e-4)


def test_equal_lengths_are_a_padded_batch() -> None:
    layer = nn.LSTM(3, 4, 2, bidirectional=True)
    x = nx.Tensor(numbers(5, 2, 3))
    expected, (h, c) = layer(x)
    output, (packed_h, packed_c) = layer(rnn.pack_padded_sequence(x, [5, 5]))
    assert nx.allclose(rnn.pad_packed_sequence(output)[0], expected)
    assert nx.allclose(packed_h, h) and nx.allclose(packed_c, c)


def test_dropout_acts_between_layers_in_training() -> None:
    layer = nn.GRU(3, 4, 2, dropout=1.0)
    packed = rnn.pack_sequence([nx.Tensor(numbers(4, 3)), nx.Tensor(numbers(2, 3))])
    dropped, _ = layer(packed)
    blank, _ = layer(packed._replace(data=packed.data * 5))
    assert nx.array_equal(dropped.data, blank.data), "the second layer sees zeros"
    layer.eval()
    assert not nx.array_equal(layer(packed)[0].data, dropped.data)


def test_rows_are_in_order_of_steps() -> None:
    x = nx.tensor([[1, 2, 0], [3, 0, 0], [4, 5, 6]])
    packed = rnn.pack_padded_sequence(x, nx.tensor([2, 1, 3]), batch_first=True, enforce_sorted=False)
    assert packed.data.tolist() == [4, 1, 3, 5, 2, 6] and packed.data.dtype == nx.int64
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices is not None and packed.sorted_indices.tolist() == [2, 0, 1]
    assert packed.unsorted_indices is not None and packed.unsorted_indices.tolist() == [1, 2, 0]
    padded, lengths = rnn.pad_packed_sequence(packed, True, padding_value=-1, total_length=4)
    assert padded.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1], [4, 5, 6, -1]] and lengths.tolist() == [2, 1, 3]
    # As users make one from the result of a layer on the data.
    again = rnn.PackedSequence(packed.data * 10, packed.batch_sizes, packed.sorted_indices)
    assert rnn.pad_packed_sequence(again)[0].T.tolist() == [[10, 20, 0], [30, 0, 0], [40, 50, 60]]
    data, batch_sizes, _, unsorted = again
    assert data is again.data and batch_sizes is again[1] and unsorted.tolist() == [1, 2, 0]


@pytest.mark.parametrize("lengths", [LENGTHS, SORTED, [2, 2], [1]])
def test_packing_is_undone(lengths: list[int]) -> None:
    parts = [nx.Tensor(numbers(length, 2, 3)) for length in lengths]
    is_sorted = lengths == sorted(lengths, reverse=True)
    packed = rnn.pack_sequence(parts, enforce_sorted=is_sorted)
    assert packed.data.shape == (sum(lengths), 2, 3) and (packed.sorted_indices is None) == is_sorted
    back = rnn.unpack_sequence(packed)
    assert all(nx.array_equal(one, part) for one, part in zip(back, parts, strict=True))
    for batch_first in (False, True):
        padded, found = rnn.pad_packed_sequence(packed, batch_first)
        assert nx.array_equal(padded, rnn.pad_sequence(parts, batch_first)) and found.tolist() == lengths
        again = rnn.pack_padded_sequence(padded, found, batch_first, is_sorted)
        assert nx.array_equal(again.data, packed.data)


def test_moved_converted_and_pickled() -> None:
    packed = rnn.pack_sequence([nx.Tensor(numbers(2, 3)), nx.Tensor(numbers(4, 3))], enforce_sorted=False)
    assert packed.to("cpu") is packed and packed.cpu() is packed and not packed.is_cuda
    wide = packed.to(nx.float64)
    assert isinstance(wide, rnn.PackedSequence) and wide.data.dtype == nx.float64
    assert wide.batch_sizes is packed.batch_sizes and wide.unsorted_indices.tolist() == [1, 0]
    # A layer converts the data to the dtype of its weights.
    assert nn.RNN(3, 2)(wide)[0].data.dtype == nx.float32
    with nx.amp.autocast():
        assert nn.LSTM(3, 2)(packed)[0].data.dtype == nx.bfloat16
    copy = pickle.loads(pickle.dumps(wide))
    assert isinstance(copy, rnn.PackedSequence) and nx.array_equal(copy.data, wide.data)


def test_a_compiled_function_packs_and_unpacks() -> None:
    layer = nn.GRU(3, 4, bidirectional=True)
    x = nx.Tensor(numbers(5, 3, 3))

    def last(x: nx.Tensor, lengths: list[int]) -> tuple[nx.Tensor, nx.Tensor]:
        output, h = layer(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        return rnn.pad_packed_sequence(output)[0], h

    compiled = nx.compile(last)
    with nx.no_grad():
        for lengths in ([2, 5, 3], [4, 4, 1], [2, 5, 3]):
            for found, expected in zip(compiled(x, lengths), last(x, lengths), strict=True):
                assert nx.allclose(found, expected)


def test_errors_say_what_was_expected() -> None:
    x = nx.zeros(4, 3, 2)
    packed = rnn.pack_padded_sequence(x, [4, 2, 1])
    sizes = nx.tensor([3, 2, 1, 1])
    pack, pad, packing = rnn.pack_padded_sequence, rnn.pad_packed_sequence, rnn.PackedSequence
    for message, wrong in [
        ("lengths [1, 4, 2] are not in descending order: pass enforce_sorted=False", lambda: pack(x, [1, 4, 2])),
        ("pass enforce_sorted=False", lambda: rnn.pack_sequence([nx.zeros(1), nx.zeros(2)])),
        ("a length is 0, it must be between 1 and 4", lambda: pack(x, [4, 2, 0])),
        ("a length is 5, it must be between 1 and 4", lambda: pack(x, nx.tensor([5, 2, 1]))),
        ("2 lengths for 3 sequences", lambda: pack(x, [4, 2])),
        ("3 lengths for 4 sequences", lambda: pack(x, [3, 2, 1], batch_first=True)),
        ("a batch of at least 1, got 0 lengths for 0 sequences", lambda: pack(nx.zeros(4, 0), [])),
        ("at least 2 dimensions, got shape (4,)", lambda: pack(nx.zeros(4), [4])),
        ("total_length is 3, it must be at least 4", lambda: pad(packed, total_length=3)),
        ("at least 1 and never increase, got [1, 3]", lambda: pad(packing(x, nx.tensor([1, 3])))),
        ("data has 4 rows, but the sum of batch_sizes is 7", lambda: nn.RNN(2, 3)(packing(x[:, 0], sizes))),
        ("packed data of 2 dimensions, got shape (7, 2, 2)", lambda: nn.GRU(2, 5)(packing(nx.zeros(7, 2, 2), sizes))),
        ("a state of shape (1, 3, 5), got (1, 2, 5)", lambda: nn.GRU(2, 5)(packed, nx.zeros(1, 2, 5))),
        ("last dimension must be input_size, which is 4", lambda: nn.GRU(4, 5)(packed)),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            wrong()
    for message, wrong in [
        ("expected a list or a tensor of integers as the lengths", lambda: pack(x, nx.tensor([4.0, 2.0, 1.0]))),
        ("pack_padded_sequence: expected a tensor, got list", lambda: pack([[1]], [1])),
        ("expected a PackedSequence, got Tensor", lambda: pad(x)),
        ("GRU: expected a tensor, got list, in input", lambda: nn.GRU(4, 5)([[1.0]])),
    ]:
        with pytest.raises(TypeError, match=re.escape(message)):
            wrong()


def test_examples_run() -> None:
    assert doctest.testmod(rnn, raise_on_error=True).attempted > 10
