"""Indices out of range: the message, when it is raised, and that nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import Tensor

READS: list[tuple[str, int, Callable[[Tensor, Tensor], Tensor]]] = [
    ("gather", 1, lambda x, i: x.gather(1, i.reshape(1, -1))),
    ("take_along_dim", 1, lambda x, i: x.take_along_dim(i.reshape(1, -1), 1)),
    ("index_select", 0, lambda x, i: x.index_select(0, i)),
    ("take", 1, lambda x, i: x.take(i, 1)),
    ("brackets", 0, lambda x, i: x[i]),
    ("brackets", 1, lambda x, i: x[:, i]),
    ("scatter", 1, lambda x, i: x.scatter(1, i.reshape(1, -1), 1.0)),
    ("scatter_add", 1, lambda x, i: x.scatter_add(1, i.reshape(1, -1), nx.ones(1, 2))),
    ("scatter_reduce", 1, lambda x, i: x.scatter_reduce(1, i.reshape(1, -1), nx.ones(1, 2), "amax")),
    ("index_add", 1, lambda x, i: x.index_add(1, i, nx.ones(3, 2))),
    ("index_copy", 1, lambda x, i: x.index_copy(1, i, nx.ones(3, 2))),
    ("embedding", 0, lambda x, i: nx.functional.embedding(i, x)),
]


@pytest.mark.parametrize("bad", [5, -5])
@pytest.mark.parametrize(("name", "axis", "read"), READS)
def test_an_index_out_of_range_is_named(name: str, axis: int, read: Callable[[Tensor, Tensor], Tensor], bad: int) -> None:
    x, index = nx.zeros(3, 4), nx.tensor([0, bad])
    with pytest.raises(IndexError, match=f"index {bad} is out of range for axis {axis} of size {x.shape[axis]}"):
        read(x, index)
    # A computed index is checked when the result is computed.
    with pytest.raises(IndexError, match="out of range"):
        read(x, index + 0).tolist()


IN_PLACE: list[Callable[[Tensor, Tensor], object]] = [
    lambda x, i: x.scatter_(0, i, 7.0),
    lambda x, i: x.scatter_add_(0, i, nx.ones(2)),
    lambda x, i: x.scatter_reduce_(0, i, nx.full((2,), 3.0), "prod"),
    lambda x, i: x.index_add_(0, i, nx.ones(2)),
    lambda x, i: x.index_copy_(0, i, nx.ones(2)),
    lambda x, i: x.index_fill_(0, i, 7.0),
    lambda x, i: x.index_put_((i,), nx.ones(2)),
    lambda x, i: x.index_put_((i,), nx.ones(2), accumulate=True),
    lambda x, i: x.__setitem__(i, 7.0),
]


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("computed", [False, True])
def test_a_bad_index_leaves_the_tensor_as_it_was(change: Callable[[Tensor, Tensor], object], computed: bool) -> None:
    x, index = nx.arange(3.0), nx.tensor([1, 3])
    with pytest.raises(IndexError, match="out of range"):
        change(x, index + 0 if computed else index)
    assert x.tolist() == [0.0, 1.0, 2.0]
    good = nx.tensor([1, -1])
    change(x, good + 0 if computed else good)
    assert x.tolist() != [0.0, 1.0, 2.0] and x[0].item() == 0.0


def test_computed_indices_in_a_recorded_function() -> None:
    @nx.compile
    def counted(x: Tensor, index: Tensor) -> Tensor:
        counts = nx.zeros(3)
        counts.index_add_(0, index + 1, x)
        counts[index] = 5.0
        return counts

    assert counted(nx.ones(2), nx.tensor([0, 1])).tolist() == [5.0, 5.0, 1.0]
    assert counted(nx.ones(2), nx.tensor([1, 1])).tolist() == [0.0, 5.0, 2.0]


def test_numbers_in_brackets() -> None:
    with pytest.raises(IndexError, match="index 4 is out of range for axis 1 of size 4"):
        nx.zeros(3, 4)[0, 4]
    with pytest.raises(IndexError, match="index 12 is out of range"):
        nx.zeros(3, 4).take(nx.tensor([12]))


def test_an_ellipsis_separates_indices_even_where_it_covers_nothing() -> None:
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    rows, pairs = np.array([0, 1, 1]), np.array([[0, 1], [1, 0], [1, 1]])
    keys: list[tuple[Any, ...]] = [
        (slice(None), 0, ..., rows, slice(None)),
        (slice(None), 0, rows, ..., slice(None)),
        (slice(None), slice(None), 0, ..., rows),
        (slice(None), slice(None), rows, ..., 1),
        (slice(None), rows, ..., rows, slice(None)),
        (slice(None), pairs, ..., 2, slice(None)),
        (slice(None), ..., rows, 1, slice(None)),
        (slice(None), slice(None), rows, 1, ...),
        (..., slice(None), slice(None), pairs, 1),
        (1, ..., rows, slice(None), slice(None)),
        (slice(None), None, 0, ..., rows, slice(None)),
        (0, slice(None), ..., 0, 0),
    ]
    for key in keys:
        own = tuple(nx.asarray(part) if isinstance(part, np.ndarray) else part for part in key)
        expected = array[key]
        np.testing.assert_array_equal(nx.asarray(array)[own].numpy(), expected, err_msg=str(key))
        # Assignment uses the same order of axes.
        changed, values = array.copy(), np.arange(expected.size).reshape(expected.shape) % 2
        changed[key] = values
        x = nx.asarray(array).clone()
        x[own] = nx.asarray(values)
        np.testing.assert_array_equal(x.numpy(), changed, err_msg=str(key))
