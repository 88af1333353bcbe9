"""Eigenvalues and eigenvectors of general matrices, compared with NumPy's; gradients with PyTorch's (2.15)."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest

linalg = nx.linalg
NUMBERS = np.random.default_rng(0).normal(size=(6, 6))
CASES = {
    "jordan": np.eye(4) * 2 + np.eye(4, k=-1),
    "long jordan": np.eye(30, k=1),
    "zero": np.zeros((3, 3)),
    "cyclic": np.roll(np.eye(6), 1, 0),
    "triangular": np.tril(NUMBERS),
    "symmetric": NUMBERS + NUMBERS.T,
    "skew": NUMBERS - NUMBERS.T,
    "large": NUMBERS * 1e150,
    "small": NUMBERS * 1e-150,
    "rank one": np.ones((5, 5)),
    "companion": np.vstack([-np.poly(np.arange(1, 9))[1:], np.eye(8)[:-1]]),
    "repeated": np.diag([1.0, 1.0, 2.0, 2.0]),
    "one": np.array([[3.0]]),
}
# PyTorch's value of ``loss`` below, its gradient, and the gradient of the sum of that one's squares.
VALUE = 18.074378825604
GRADIENT = [[9.530716026, 1.467777405, -0.495431074], [-2.48648975, 10.654042436, 3.366749595], [-1.697419451, -4.732837123, 8.665453074]]
SECOND = [[169.795206833, 48.789720406, -3.937205358], [-80.350125402, 182.200287594, 105.762248923], [-16.012370632, -134.659309599, 146.349625348]]


def ordered(values: Any) -> Any:
    return np.sort_complex(np.round(values, 9))


@pytest.mark.parametrize("name", CASES)
def test_special_matrices(name: str) -> None:
    matrix = CASES[name]
    scale = max(abs(matrix).max(), 1e-300)
    values, vectors = (each.numpy() for each in linalg.eig(nx.asarray(matrix)))
    assert values.dtype == vectors.dtype == np.complex128
    assert np.abs(matrix @ vectors - vectors * values).max() <= 1e-13 * scale
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(ordered(values / scale), ordered(np.linalg.eigvals(matrix / scale)), atol=1e-8)


@pytest.mark.parametrize("is_complex", [False, True])
def test_batches(is_complex: bool) -> None:
    numbers = np.random.default_rng(1)
    matrices = numbers.normal(size=(2, 3, 5, 5)) + (1j * numbers.normal(size=(2, 3, 5, 5)) if is_complex else 0)
    values, vectors = (each.numpy() for each in linalg.eig(nx.asarray(matrices)))
    np.testing.assert_allclose(matrices @ vectors, vectors * values[..., None, :], atol=1e-12)
    for place in np.ndindex(2, 3):
        np.testing.assert_allclose(ordered(values[place]), ordered(np.linalg.eigvals(matrices[place])), atol=1e-8)
    # The greatest component of each vector is real.
    greatest = np.take_along_axis(vectors, np.abs(vectors).argmax(-2)[..., None, :], -2)
    assert np.abs(greatest.imag).max() < 1e-15 and (greatest.real > 0).all()


def test_real_matrices_have_real_eigenvalues_or_pairs() -> None:
    values, vectors = (each.numpy() for each in linalg.eig(nx.asarray(NUMBERS)))
    is_real = values.imag == 0
    assert (vectors.imag[:, is_real] == 0).all()
    np.testing.assert_allclose(ordered(values[~is_real]), ordered(values[~is_real].conj()), atol=1e-12)
    symmetric = linalg.eigvals(nx.asarray(CASES["symmetric"]))
    assert not symmetric.imag.any()
    np.testing.assert_allclose(np.sort(symmetric.real.numpy()), np.linalg.eigvalsh(CASES["symmetric"]), rtol=1e-12)


def test_dtypes_and_empty_matrices() -> None:
    single = linalg.eig(nx.asarray(NUMBERS.astype("float32")))
    assert single.eigenvalues.dtype == single.eigenvectors.dtype == nx.complex64
    np.testing.assert_allclose(ordered(single.eigenvalues.numpy()).round(4), ordered(np.linalg.eigvals(NUMBERS)).round(4), atol=2e-4)
    empty = linalg.eig(nx.zeros(2, 0, 0))
    assert empty.eigenvalues.shape == (2, 0) and empty.eigenvectors.shape == (2, 0, 0)
    assert linalg.eigvals(nx.zeros(0, 3, 3)).shape == (0, 3)


def loss(matrix: nx.Tensor) -> nx.Tensor:
    """It depends neither on the order of eigenvalues nor on the phases of vectors."""
    values, vectors = linalg.eig(matrix)
    weights = (vectors.abs() ** 4 * (values.real**2).unsqueeze(-2)).sum()
    return (values.real**3 + values.imag**2 * values.real).sum() + weights


def test_gradients_have_the_numbers_of_pytorch() -> None:
    matrix = nx.tensor([[1.0, 2.0, 0.5], [-1.0, 0.5, 3.0], [0.25, -2.0, 1.5]], dtype=nx.float64, requires_grad=True)
    value = loss(matrix)
    (gradient,) = nx.autograd.grad(value, matrix, create_graph=True)
    (second,) = nx.autograd.grad((gradient**2).sum(), matrix)
    assert abs(value.item() - VALUE) < 1e-10
    np.testing.assert_allclose(gradient.detach().numpy(), GRADIENT, atol=1e-7)
    np.testing.assert_allclose(second.numpy(), SECOND, atol=1e-6)


def test_gradients_of_complex_matrices() -> None:
    parts = nx.asarray(np.random.default_rng(2).normal(size=(3, 3, 2))).requires_grad_()
    assert nx.autograd.gradcheck(lambda parts: loss(nx.view_as_complex(parts)), (parts,))


def test_gradients_of_the_sum_of_repeated_eigenvalues() -> None:
    matrix = nx.asarray(np.diag([1.0, 1.0, 2.0])).requires_grad_()
    linalg.eigvals(matrix).real.sum().backward()
    assert matrix.grad is not None and matrix.grad.tolist() == np.eye(3).tolist()


def test_refusals() -> None:
    with pytest.raises(ValueError, match="square"):
        linalg.eig(nx.zeros(2, 3))
    with pytest.raises(ValueError, match="infinities or NaN"):
        linalg.eig(nx.tensor([[1.0, float("nan")], [0.0, 1.0]]))
    with pytest.raises(TypeError, match="int64"):
        linalg.eigvals(nx.tensor([[1, 2], [3, 4]]))
