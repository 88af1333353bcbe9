"""``nx.linalg.norm`` chooses between vector and matrix norms as NumPy does."""

from __future__ import annotations

import math
from typing import Any

import neurenix as nx
import numpy as np
import pytest


def close(found: nx.Tensor, expected: Any) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("order", "dim"),
    [(None, None), (None, 1), (None, (2, 0)), (3, 1), (0, 2), (math.inf, -1), (2, (0, 2)), (1, (2, 0)), ("nuc", (-1, 0))],
)
def test_norms_along_dimensions(order: Any, dim: Any, keepdim: bool) -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 4))
    expected = np.linalg.norm(x, order, dim, keepdim)
    close(nx.linalg.norm(nx.tensor(x), order, dim, keepdim), expected)
    close(nx.linalg.norm(nx.tensor(x), ord=order, axis=dim, keepdims=keepdim), expected)


@pytest.mark.parametrize("order", ["fro", "nuc", 1, 2, -2, -math.inf])
def test_the_norm_of_a_matrix_is_that_of_matrices(order: Any) -> None:
    x = np.random.default_rng(3).normal(size=(3, 4))
    close(nx.linalg.norm(nx.tensor(x), order), np.linalg.norm(x, order))
    close(nx.linalg.norm(nx.tensor(x), order, keepdim=True), np.linalg.norm(x, order, keepdims=True))


@pytest.mark.parametrize(("order", "shape"), [(2, (2, 3, 4)), ("nuc", (3,)), (0, (2, 2))])
def test_norms_that_are_none(order: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="norm: "):
        nx.linalg.norm(nx.ones(shape), order)


def test_norms_take_torch_s_positions() -> None:
    x = nx.tensor([[3.0, 0.0], [0.0, -4.0], [1.0, 2.0]], dtype="float64")
    values = x.numpy()
    close(nx.linalg.vector_norm(x, 1, 0, True), abs(values).sum(0, keepdims=True))
    close(nx.linalg.matrix_norm(x, 1, (1, 0)), abs(values.T).sum(0).max())
    assert nx.linalg.matrix_norm(x.reshape(3, 1, 2), "fro", (0, 2), True).shape == (1, 1, 1)
