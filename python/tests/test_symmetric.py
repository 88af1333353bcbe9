"""The factorisation of symmetric matrices. Expected pivots are LAPACK's, as PyTorch (2.15) returns them."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest

linalg = nx.linalg


def unpacked(LD: Any, pivots: Any) -> tuple[Any, Any]:
    """The matrix M with A = M D M.T, and D, from LAPACK's description: M is the product of exchanges and of L."""
    count = len(pivots)
    moves, blocks = np.eye(count), np.zeros((count, count))
    step = 0
    while step < count:
        size = 1 if pivots[step] > 0 else 2
        exchange = np.eye(count)
        last, other = step + size - 1, abs(pivots[step]) - 1
        exchange[[last, other]] = exchange[[other, last]]
        lower = np.eye(count)
        lower[step + size :, step : step + size] = LD[step + size :, step : step + size]
        blocks[step : step + size, step : step + size] = LD[step : step + size, step : step + size]
        moves = moves @ exchange @ lower
        step += size
    return moves, blocks + np.tril(blocks, -1).T


def test_known_factors() -> None:
    LD, pivots = linalg.ldl_factor(nx.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 1.0]]))
    assert LD.tolist() == [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.5, 0.5, -2.0]]
    assert pivots.tolist() == [-2, -2, 3] and pivots.dtype == nx.int32
    # Only the lower triangle is read.
    LD, pivots = linalg.ldl_factor(nx.tensor([[1.0, 99.0], [2.0, 3.0]]))
    np.testing.assert_allclose(LD.numpy(), [[3.0, 0.0], [2 / 3, -1 / 3]], rtol=1e-6)
    assert pivots.tolist() == [2, 2]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_the_factors_give_the_matrix(count: int) -> None:
    numbers = np.random.default_rng(count)
    matrices = numbers.normal(size=(4, count, count))
    matrices = matrices + np.swapaxes(matrices, 1, 2)
    matrices[:2, range(count), range(count)] *= 0.05
    matrices[3] = np.round(matrices[3])
    found = linalg.ldl_factor_ex(nx.asarray(matrices))
    assert found.info.tolist()[:3] == [0, 0, 0]
    blocks = 0
    for matrix, LD, pivots in zip(matrices, found.LD.numpy(), found.pivots.tolist(), strict=True):
        moves, diagonal = unpacked(LD, pivots)
        np.testing.assert_allclose(moves @ diagonal @ moves.T, matrix, atol=1e-12)
        blocks += sum(pivot < 0 for pivot in pivots)
    assert blocks > 0 or count == 1
    right = numbers.normal(size=(3, count, 2))
    solved = linalg.ldl_solve(found.LD[:3], found.pivots[:3], nx.asarray(right))
    np.testing.assert_allclose(solved.numpy(), np.linalg.solve(matrices[:3], right), rtol=1e-7, atol=1e-9)


def test_batches_are_broadcast() -> None:
    matrix = nx.asarray(np.array([[0.0, 2.0], [2.0, 1.0]]))
    factors = linalg.ldl_factor(matrix)
    right = nx.asarray(np.arange(12.0).reshape(3, 2, 2))
    np.testing.assert_allclose(linalg.ldl_solve(*factors, right).numpy(), np.linalg.solve(matrix.numpy(), right.numpy()), atol=1e-12)


def test_gradients() -> None:
    numbers = np.random.default_rng(0)
    values = numbers.normal(size=(4, 4))
    values[range(4), range(4)] *= 0.1
    A, B = nx.asarray(values).requires_grad_(), nx.asarray(numbers.normal(size=(4, 1))).requires_grad_()
    assert nx.autograd.gradcheck(lambda A, B: linalg.ldl_solve(*linalg.ldl_factor(A), B), (A, B))


def test_singular_and_empty_matrices() -> None:
    zeros = nx.zeros(2, 3, 3)
    found = linalg.ldl_factor_ex(zeros)
    assert found.info.tolist() == [1, 1] and found.pivots.tolist() == [[1, 2, 3]] * 2 and not found.LD.any()
    for call in (lambda: linalg.ldl_factor(zeros), lambda: linalg.ldl_factor_ex(zeros, check_errors=True)):
        with pytest.raises(RuntimeError, match="singular"):
            call()
    empty = linalg.ldl_factor_ex(nx.zeros(2, 0, 0))
    assert empty.LD.shape == (2, 0, 0) and empty.pivots.shape == (2, 0) and empty.info.tolist() == [0, 0]
    assert linalg.ldl_solve(empty.LD, empty.pivots, nx.zeros(2, 0, 5)).shape == (2, 0, 5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="square"):
        linalg.ldl_factor(nx.zeros(2, 3))
    with pytest.raises(TypeError, match="expected floats, got complex64"):
        linalg.ldl_factor(nx.zeros(2, 2, dtype=nx.complex64), hermitian=True)
    with pytest.raises(ValueError, match=r"shape \(..., 2, K\)"):
        linalg.ldl_solve(nx.eye(2), nx.tensor([1, 2]), nx.ones(3, 1))
