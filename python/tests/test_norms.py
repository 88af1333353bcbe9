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


EMPTY = nx.zeros(0, 0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: nx.linalg.norm(EMPTY, 2), 0.0),
        (lambda: nx.linalg.norm(nx.zeros(0, 3), math.inf), 0.0),
        (lambda: nx.linalg.norm(nx.zeros(3, 0), 1), 0.0),
        (lambda: nx.linalg.norm(nx.zeros(2, 0, 3), 2, dim=(1, 2)), [0.0, 0.0]),
        (lambda: nx.linalg.matrix_norm(nx.zeros(2, 3, 0), 1, keepdim=True), [[[0.0]], [[0.0]]]),
        (lambda: nx.linalg.cond(EMPTY), 0.0),
        (lambda: nx.linalg.cond(EMPTY, 1), 0.0),
        (lambda: nx.linalg.cond(EMPTY, -2), 0.0),
        (lambda: nx.linalg.cond(nx.zeros(2, 0, 0), "fro"), [0.0, 0.0]),
        (lambda: nx.cov(EMPTY), []),
        (lambda: nx.cov(nx.zeros(0)).isnan(), True),
        (lambda: nx.cov(nx.zeros(2, 0)).isnan(), [[True, True], [True, True]]),
        (lambda: nx.corrcoef(EMPTY), []),
    ],
)
def test_matrices_without_elements(found: Any, expected: Any) -> None:
    """The expected values are those of PyTorch 2.15."""
    assert found().tolist() == expected


@pytest.mark.parametrize("order", [1, -1, math.inf, -math.inf, "fro", "nuc"])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_conditions_of_singular_matrices_are_infinite(order: Any, dtype: str) -> None:
    x = nx.tensor([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]]).to(dtype)
    expected = {1: 2.0, -1: 0.5, math.inf: 2.0, -math.inf: 0.5, "fro": 2.5, "nuc": 4.5}[order]
    found = nx.linalg.cond(x, order).tolist()
    assert found[0] == math.inf and found[1] == pytest.approx(expected)
    recorded = nx.compile(lambda x: nx.linalg.cond(x, order))(x.real) if dtype == "float64" else nx.linalg.cond(x, order)
    assert recorded.tolist() == found
