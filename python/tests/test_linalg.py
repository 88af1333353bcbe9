"""Matrix decompositions against NumPy."""

from __future__ import annotations

import math
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NUMBERS = st.floats(-10, 10, width=32)
DTYPES = st.sampled_from([np.float32, np.float64])


def matrices(square: bool = False) -> st.SearchStrategy[Any]:
    """Batches of matrices: possibly empty, with few or many distinct numbers."""

    def shapes(extents: tuple[list[int], int, int]) -> tuple[int, ...]:
        batch, rows, columns = extents
        return (*batch, rows, rows if square else columns)

    extents = st.tuples(st.lists(st.integers(0, 3), max_size=2), st.integers(0, 5), st.integers(0, 5))
    numbers = st.one_of(NUMBERS, st.sampled_from([0.0, 1.0, -1.0]))
    return st.builds(
        lambda values, dtype: values.astype(dtype),
        extents.map(shapes).flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=numbers)),
        DTYPES,
    )


def close(found: nx.Tensor, expected: Any, scale: float = 1.0) -> None:
    """Compares up to rounding in the dtype; ``scale`` is the magnitude of the operands."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    tolerance = 200 * nx.finfo(found.dtype).eps * max(scale, 1.0)
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=tolerance, atol=tolerance)


def size(x: Any) -> float:
    return float(np.abs(x).max(initial=1.0)) * max(x.shape[-2:], default=1)


@given(matrices(square=True))
def test_determinants(x: Any) -> None:
    wide = x.astype(np.float64)
    # Hadamard's bound on the determinant.
    scale = float(np.prod(np.linalg.norm(wide, axis=-1), axis=-1).max(initial=1.0))
    close(nx.linalg.det(nx.tensor(x)), np.linalg.det(wide), scale)
    sign, logarithm = nx.linalg.slogdet(nx.tensor(x))
    assert sign.dtype == logarithm.dtype == nx.tensor(x).dtype
    found = sign.double().numpy() * np.exp(logarithm.double().numpy())
    np.testing.assert_allclose(found, np.linalg.det(wide), rtol=1e-4, atol=1e-12 * scale)


@given(matrices(square=True), st.integers(0, 3))
def test_inverses_and_solutions(x: Any, columns: int) -> None:
    n = x.shape[-1]
    # Diagonally dominant, so well conditioned.
    x = x / (size(x) or 1.0) + 2 * np.eye(n, dtype=x.dtype)
    a = nx.tensor(x)
    close(nx.linalg.inv(a), np.linalg.inv(x), n)
    right = np.linspace(-1, 1, n * columns, dtype=x.dtype).reshape(n, columns)
    found = nx.linalg.solve(a, nx.tensor(right))
    close(found, np.linalg.solve(x, np.broadcast_to(right, (*x.shape[:-2], n, columns))), n)
    vector = np.linspace(-1, 1, n, dtype=x.dtype)
    expected = np.linalg.solve(x, np.broadcast_to(vector[:, None], (*x.shape[:-2], n, 1)))[..., 0]
    close(nx.linalg.solve(a, nx.tensor(vector)), expected, n)
    close(nx.linalg.matrix_power(a, -2), np.linalg.matrix_power(x, -2), n)
    definite = x @ np.swapaxes(x, -1, -2)
    factor = np.linalg.cholesky(definite)
    close(nx.linalg.cholesky(nx.tensor(definite)), factor, n * n)
    close(nx.linalg.cholesky(nx.tensor(definite), upper=True), np.swapaxes(factor, -1, -2), n * n)


@given(matrices())
def test_orthogonal_factors(x: Any) -> None:
    a, scale = nx.tensor(x), size(x)
    rows, columns = x.shape[-2:]
    least = min(rows, columns)
    for mode, width in (("reduced", least), ("complete", rows)):
        result = nx.linalg.qr(a, mode=mode)  # type: ignore[arg-type]
        assert result.Q.shape == (*x.shape[:-2], rows, width) and result.R.shape == (*x.shape[:-2], width, columns)
        close(result.Q.matmul(result.R), x, scale)
        close(result.Q.mT.matmul(result.Q), np.broadcast_to(np.eye(width), (*x.shape[:-2], width, width)))
        assert nx.array_equal(result.R, result.R.triu())
    for full, left, right in ((True, rows, columns), (False, least, least)):
        u, s, vh = result = nx.linalg.svd(a, full_matrices=full)
        assert result.U is u and result.S is s and result.Vh is vh
        assert u.shape == (*x.shape[:-2], rows, left) and vh.shape == (*x.shape[:-2], right, columns)
        close((u[..., :least] * s.unsqueeze(-2)).matmul(vh[..., :least, :]), x, scale)
        close(u.mT.matmul(u), np.broadcast_to(np.eye(left), (*x.shape[:-2], left, left)))
        close(vh.matmul(vh.mT), np.broadcast_to(np.eye(right), (*x.shape[:-2], right, right)))
    if x.size:
        close(nx.linalg.svdvals(a), np.linalg.svd(x.astype(np.float64), compute_uv=False), scale)


@given(matrices(square=True))
def test_eigenvalues(x: Any) -> None:
    x = x + np.swapaxes(x, -1, -2)
    values, vectors = nx.linalg.eigh(nx.tensor(x))
    close(values, np.linalg.eigvalsh(x.astype(np.float64)), size(x))
    close(nx.linalg.eigvalsh(nx.tensor(x)), np.linalg.eigvalsh(x.astype(np.float64)), size(x))
    close((vectors * values.unsqueeze(-2)).matmul(vectors.mT), x, size(x))


@given(matrices(), st.sampled_from([None, 1e-3, 0.5]))
def test_pseudoinverses_and_ranks(x: Any, rtol: float | None) -> None:
    wide = x.astype(np.float64)
    if min(x.shape) == 0:
        assert nx.linalg.pinv(nx.tensor(x), rtol=rtol).shape == (*x.shape[:-2], x.shape[-1], x.shape[-2])
        assert nx.linalg.matrix_rank(nx.tensor(x), rtol=rtol).tolist() == np.zeros(x.shape[:-2]).tolist()
        return
    part = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if rtol is None else rtol
    values = np.linalg.svd(wide, compute_uv=False)
    limit = values.max(-1, keepdims=True) * part
    # If a value is near the limit, either answer is correct.
    if (np.abs(values - limit) <= 1e-5 * np.maximum(limit, 1e-12) + 1e-13).any() and (values > 0).any():
        return
    a = nx.tensor(x)
    assert nx.linalg.matrix_rank(a, rtol=rtol).tolist() == (values > limit).sum(-1).tolist()
    kept = np.where(values > limit, values, np.inf)
    close(nx.linalg.pinv(a, rtol=rtol), np.linalg.pinv(wide, rcond=part), 10 * (1 + 1 / kept.min()) ** 2 * size(x))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_of_matrices(order: Any, keepdims: bool) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    found = nx.linalg.matrix_norm(nx.tensor(x), ord=order, keepdims=keepdims)
    close(found, np.linalg.norm(x, order, (-2, -1), keepdims))


def test_conditions_are_numpys() -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 3))
    for order in (None, 2, -2, "fro", "nuc", 1, -1, math.inf, -math.inf):
        close(nx.linalg.cond(nx.tensor(x), order), np.linalg.cond(x, order))
    close(nx.linalg.cond(nx.tensor(x[:, :2])), np.linalg.cond(x[:, :2]))
    assert nx.linalg.cond(nx.tensor([[1.0, 0.0], [0.0, 0.0]])).item() == math.inf
    assert math.isnan(nx.linalg.cond(nx.tensor([[math.nan, 0.0], [0.0, 1.0]])).item())


def test_the_upper_triangle_is_read_if_it_is_named() -> None:
    x = np.random.default_rng(4).normal(size=(4, 4))
    for triangle in ("L", "U"):
        values, vectors = nx.linalg.eigh(nx.tensor(x), UPLO=triangle)  # type: ignore[arg-type]
        close(values, np.linalg.eigh(x, triangle)[0])
        kept = np.tril(x) + np.tril(x, -1).T if triangle == "L" else np.triu(x) + np.triu(x, 1).T
        close(vectors @ nx.tensor(np.diag(values.numpy())) @ vectors.mT, kept)
        close(nx.linalg.eigvalsh(nx.tensor(x), triangle), np.linalg.eigvalsh(x, triangle))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="UPLO is 'l', it must be 'L' or 'U'"):
        nx.linalg.eigh(nx.tensor(x), UPLO="l")  # type: ignore[arg-type]


def test_methods_are_the_functions() -> None:
    x = nx.tensor([[2.0, 0.0], [0.0, 4.0]])
    assert x.det().item() == 8.0 and x.inverse().tolist() == x.pinverse().tolist() == [[0.5, 0.0], [0.0, 0.25]]
    sign, logarithm = x.slogdet()
    assert sign.item() == 1.0 and logarithm.item() == pytest.approx(math.log(8.0))
    assert x.matrix_power(2).tolist() == [[4.0, 0.0], [0.0, 16.0]]
    assert x.pinverse(0.75).tolist() == [[0.0, 0.0], [0.0, 0.25]]


def test_exponents_of_matrices_are_whole_numbers() -> None:
    x = nx.ones(2, 2)
    for exponent in (2.0, 0.5, "2", None):
        with pytest.raises(TypeError, match="^matrix_power: the exponent is .*, it must be an integer"):
            nx.linalg.matrix_power(x, exponent)  # type: ignore[arg-type]
    assert nx.linalg.matrix_power(x, np.int64(2)).tolist() == [[2.0, 2.0]] * 2
    with pytest.raises(ValueError, match=r"^matrix_power: expected square matrices, got shape \(2, 3\)"):
        nx.linalg.matrix_power(nx.ones(2, 3), 2)


def test_what_does_not_exist() -> None:
    singular = nx.tensor([[1.0, 2.0], [2.0, 4.0]])
    # The call fails instead, if neurenix.torch has been imported.
    for compute in (nx.linalg.inv, lambda x: nx.linalg.solve(x, nx.ones(2)), lambda x: nx.linalg.matrix_power(x, -1)):
        with pytest.raises(RuntimeError, match="a matrix is singular"):
            compute(singular).tolist()
    with pytest.raises(RuntimeError, match="cholesky: a matrix is not positive definite"):
        nx.linalg.cholesky(-singular).tolist()
    for dtype in ("float16", "bfloat16", "int64"):
        with pytest.raises(TypeError, match=r"det: dtype .* convert with .float\(\)"):
            nx.linalg.det(singular.to(dtype))
    for wrong in (
        lambda: nx.linalg.det(nx.ones(2, 3)),
        lambda: nx.linalg.qr(nx.ones(3)),
        lambda: nx.linalg.qr(nx.ones(3, 3), mode="raw"),  # type: ignore[arg-type]
        lambda: nx.linalg.solve(nx.ones(2, 2), nx.ones(3)),
        lambda: nx.linalg.matrix_norm(nx.ones(2, 2), ord="spectral"),  # type: ignore[arg-type]
        lambda: nx.linalg.matrix_power(nx.ones(2, 3), 0),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_numbers_that_are_none_end() -> None:
    for bad in (math.nan, math.inf):
        x = nx.tensor([[1.0, bad], [bad, 2.0]])
        for found in (*nx.linalg.svd(x), *nx.linalg.qr(x), *nx.linalg.eigh(x), nx.linalg.pinv(x)):
            assert bool(nx.isnan(found).all())


def test_gradients() -> None:
    a = nx.tensor([[3.0, 1.0], [1.0, 2.0]], dtype="float64", requires_grad=True)
    inverse = np.linalg.inv(a.detach().numpy())
    nx.linalg.slogdet(a).logabsdet.backward()
    assert a.grad is not None
    close(a.grad, inverse.T)
    a.grad = None
    nx.linalg.solve(a, nx.ones(2, dtype="float64")).sum().backward()
    assert a.grad is not None
    close(a.grad, -np.outer(inverse.T @ np.ones(2), inverse @ np.ones(2)))
    a.grad = None
    # The sum of the singular values of a symmetric positive definite matrix is its trace.
    nx.linalg.matrix_norm(a, ord="nuc").backward()
    assert a.grad is not None
    close(a.grad, np.eye(2))
    with pytest.raises(RuntimeError, match="svd has no gradient"):
        nx.linalg.svd(nx.ones(3, 2, requires_grad=True)).S.sum().backward()


def test_a_tensor_of_tolerances() -> None:
    x = nx.tensor([[[4.0, 0.0], [0.0, 1.0]]] * 2)
    assert nx.linalg.matrix_rank(x, rtol=nx.tensor([0.5, 0.1])).tolist() == [1, 2]
    assert nx.linalg.pinv(x, rtol=nx.tensor([0.5, 0.1]))[:, 1, 1].tolist() == [0.0, 1.0]
