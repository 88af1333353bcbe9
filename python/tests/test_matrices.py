"""Factorisations, systems of equations and functions of matrices, compared with their definitions and with NumPy's."""

from __future__ import annotations

import math

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest

RANDOM = np.random.default_rng(0)


def close(ours: nx.Tensor, expected: object, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def slope(function: object, x: np.ndarray, direction: np.ndarray) -> float:
    """The derivative of the sum of a function's squares in a direction, by central differences."""
    step = 1e-6
    ends = [float((function(nx.tensor(x + sign * step * direction)) ** 2).sum().item()) for sign in (1, -1)]  # type: ignore[operator]
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (3, 5), (2, 6, 6), (2, 3, 4, 2)])
def test_lu_gives_the_factors(shape: tuple[int, ...]) -> None:
    a = RANDOM.standard_normal(shape)
    x = nx.tensor(a)
    p, lower, upper = nx.linalg.lu(x)
    close(p @ lower @ upper, a)
    count = min(shape[-2:])
    assert np.array_equal(lower.numpy(), np.tril(lower.numpy())) and np.array_equal(upper.numpy(), np.triu(upper.numpy()))
    assert (lower.diagonal(0, -2, -1) == 1).all() and (lower.abs() <= 1).all()
    assert (p.sum(-1) == 1).all() and (p.sum(-2) == 1).all()
    packed, pivots = nx.linalg.lu_factor(x)
    assert pivots.shape == (*shape[:-2], count) and pivots.dtype == nx.int32
    again = nx.linalg.lu_unpack(packed, pivots)
    for part, same in zip(again, (p, lower, upper)):
        close(part, same.numpy())


def test_lu_by_hand() -> None:
    packed, pivots = nx.linalg.lu_factor(nx.tensor([[1.0, 2.0, 4.0], [2.0, 4.0, 6.0], [4.0, 0.0, 8.0]]))
    assert packed.tolist() == [[4.0, 0.0, 8.0], [0.5, 4.0, 2.0], [0.25, 0.5, 1.0]] and pivots.tolist() == [3, 2, 3]
    assert nx.linalg.lu(nx.tensor([[1.0, 2.0], [4.0, 4.0]]), pivot=False).U.tolist() == [[1.0, 2.0], [0.0, -4.0]]
    assert nx.linalg.lu_factor_ex(nx.tensor([[1.0, 2.0], [2.0, 4.0]])).info.item() == 2
    assert nx.linalg.lu(nx.zeros(2, 0, 3)).U.shape == (2, 0, 3)


def test_lu_has_gradients() -> None:
    a, direction = RANDOM.standard_normal((4, 3)), RANDOM.standard_normal((4, 3))
    x = nx.tensor(a, requires_grad=True)
    (nx.linalg.lu(x).U ** 2).sum().backward()
    assert x.grad is not None
    assert (x.grad * nx.tensor(direction)).sum().item() == pytest.approx(slope(lambda y: nx.linalg.lu(y).U, a, direction), rel=1e-5)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_systems_from_factors(left: bool, adjoint: bool) -> None:
    a, b = RANDOM.standard_normal((2, 4, 4)), RANDOM.standard_normal((2, 4, 4))
    found = nx.linalg.lu_solve(*nx.linalg.lu_factor(nx.tensor(a)), nx.tensor(b), left=left, adjoint=adjoint).numpy()
    matrix = a.swapaxes(1, 2) if adjoint else a
    np.testing.assert_allclose(matrix @ found if left else found @ matrix, b, atol=1e-10)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(upper: bool, left: bool, unit: bool) -> None:
    a, b = RANDOM.standard_normal((4, 4)) + 4 * np.eye(4), RANDOM.standard_normal((4, 4))
    matrix = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(matrix, 1.0)
    found = nx.linalg.solve_triangular(nx.tensor(a), nx.tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    np.testing.assert_allclose(matrix @ found if left else found @ matrix, b, atol=1e-10)
    if left:
        old = torch.triangular_solve(nx.tensor(b), nx.tensor(a), upper, unitriangular=unit)
        np.testing.assert_allclose(old.solution.numpy(), found)


def test_solve_from_the_right_and_of_batches_of_vectors() -> None:
    a, b = RANDOM.standard_normal((2, 3, 3)), RANDOM.standard_normal((2, 3))
    close(nx.linalg.solve(nx.tensor(a), nx.tensor(b)), np.linalg.solve(a, b[..., None])[..., 0])
    close(nx.linalg.solve(nx.tensor(a[0]), nx.tensor(b), left=False) @ nx.tensor(a[0]), b)


def test_cholesky_factors_solve() -> None:
    a = RANDOM.standard_normal((3, 3))
    a, b = a @ a.T + np.eye(3), RANDOM.standard_normal((3, 2))
    factor = torch.cholesky(nx.tensor(a))
    close(torch.cholesky_solve(nx.tensor(b), factor), np.linalg.solve(a, b))
    close(torch.cholesky_inverse(factor.mT, upper=True), np.linalg.inv(a))


def test_numbers_of_what_failed() -> None:
    bad = nx.tensor([[[2.0, 0.0], [0.0, 3.0]], [[1.0, 2.0], [2.0, 1.0]]])
    factor, info = nx.linalg.cholesky_ex(bad)
    assert info.tolist() == [0, 2] and info.dtype == nx.int32 and factor[1].isnan().all()
    close(factor[0], np.sqrt([[2, 0], [0, 3]]), 1e-6)
    singular = nx.tensor([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])
    inverse, info = nx.linalg.inv_ex(singular)
    assert info.tolist() == [0, 2] and inverse[0].tolist() == [[0.5, 0.0], [0.0, 0.25]] and inverse[1].isnan().all()
    result, info = nx.linalg.solve_ex(singular, nx.tensor([2.0, 4.0]))
    assert info.tolist() == [0, 2] and result[0].tolist() == [1.0, 1.0] and result[1].isnan().all()
    with pytest.raises(RuntimeError, match=r"inv_ex: a matrix is singular, .* info is \[0, 2\]"):
        nx.linalg.inv_ex(singular, check_errors=True)


def test_least_squares() -> None:
    a, b = RANDOM.standard_normal((6, 3)), RANDOM.standard_normal((6, 2))
    found = nx.linalg.lstsq(nx.tensor(a), nx.tensor(b), driver="gelsd")
    solution, residuals, rank, singular = np.linalg.lstsq(a, b, rcond=None)
    close(found.solution, solution)
    close(found.residuals, residuals)
    close(found.singular_values, singular)
    assert found.rank.item() == rank
    plain = nx.linalg.lstsq(nx.tensor(a), nx.tensor(b[:, 0]))
    close(plain.solution, solution[:, 0])
    assert plain.residuals.numel() == plain.singular_values.numel() == 0
    with pytest.raises(ValueError, match="driver is 'svd'"):
        nx.linalg.lstsq(nx.tensor(a), nx.tensor(b), driver="svd")


def test_exponentials() -> None:
    angle = 0.7
    turn = nx.tensor([[0.0, -angle], [angle, 0.0]], dtype=nx.float64)
    expected = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    # The second needs halvings, the first none: each matrix has its own.
    both = nx.linalg.matrix_exp(nx.stack([turn, turn + turn.new_tensor([[30.0, 0.0], [0.0, 30.0]])]))
    close(both[0], expected, 1e-14)
    close(both[1] / math.exp(30.0), expected, 1e-13)
    a, direction = RANDOM.standard_normal((3, 3)), RANDOM.standard_normal((3, 3))
    x = nx.tensor(a, requires_grad=True)
    (nx.linalg.matrix_exp(x) ** 2).sum().backward()
    assert x.grad is not None
    assert (x.grad * nx.tensor(direction)).sum().item() == pytest.approx(slope(nx.linalg.matrix_exp, a, direction), rel=1e-5)
    assert nx.linalg.matrix_exp(nx.zeros(0, 2, 2)).shape == (0, 2, 2)


def test_products() -> None:
    parts = [RANDOM.standard_normal(shape) for shape in ((2, 5), (5, 3), (3, 4), (4, 2))]
    tensors = [nx.tensor(part) for part in parts]
    close(nx.linalg.multi_dot(tensors), np.linalg.multi_dot(parts))
    close(torch.chain_matmul(*tensors), np.linalg.multi_dot(parts))
    close(nx.linalg.multi_dot([tensors[0][0], *tensors[1:3], tensors[3][:, 0]]), np.linalg.multi_dot([parts[0][0], *parts[1:3], parts[3][:, 0]]))
    a, b = RANDOM.standard_normal((2, 3, 6)), RANDOM.standard_normal((2, 3))
    close(nx.linalg.tensorinv(nx.tensor(a)), np.linalg.tensorinv(a))
    close(nx.linalg.tensorsolve(nx.tensor(a), nx.tensor(b)), np.linalg.tensorsolve(a, b))
    close(nx.linalg.vander(nx.tensor([2.0, 3.0]), N=3), [[1, 2, 4], [1, 3, 9]])


def test_products_of_reflections_are_orthogonal() -> None:
    a = RANDOM.standard_normal((5, 3))
    vectors = np.tril(a, -1)[:, :3] + np.eye(5, 3)
    tau = 2 / (vectors**2).sum(0)
    q = nx.linalg.householder_product(nx.tensor(a), nx.tensor(tau))
    close(q.mT @ q, np.eye(3))
    first = np.eye(5) - tau[0] * np.outer(vectors[:, 0], vectors[:, 0])
    close(nx.linalg.householder_product(nx.tensor(a[:, :1]), nx.tensor(tau[:1])), first[:, :1])


def test_tolerances() -> None:
    x = nx.tensor(np.diag([4.0, 1.0, 0.1]))
    assert nx.linalg.matrix_rank(x).item() == 3 and nx.linalg.matrix_rank(x, atol=0.5).item() == 2
    assert nx.linalg.matrix_rank(x, atol=0.5, rtol=0.3).item() == 1 and nx.linalg.matrix_rank(x, 2.0).item() == 1
    close(nx.linalg.pinv(x, atol=0.5), np.diag([0.25, 1.0, 0.0]))
    close(nx.linalg.pinv(x, rtol=0.3), np.diag([0.25, 0.0, 0.0]))
    lower = nx.tensor([[2.0, 9.0], [0.0, 4.0]])
    close(nx.linalg.pinv(lower, hermitian=True), np.diag([0.5, 0.25]), 1e-6)


def test_wide_matrices_have_a_gradient_of_qr() -> None:
    a, direction = RANDOM.standard_normal((3, 5)), RANDOM.standard_normal((3, 5))
    weights = nx.tensor(RANDOM.standard_normal((3, 5)))

    def weighted(x: nx.Tensor) -> nx.Tensor:
        q, r = nx.linalg.qr(x)
        return (r * weights).sum() + q.sum()

    x = nx.tensor(a, requires_grad=True)
    (weighted(x) ** 2).backward()
    assert x.grad is not None
    close(nx.linalg.qr(x).Q @ nx.linalg.qr(x).R, a)
    assert (x.grad * nx.tensor(direction)).sum().item() == pytest.approx(slope(weighted, a, direction), rel=1e-5)
    assert nx.linalg.qr(x, mode="r").Q.numel() == 0


def test_functions_outside_linalg() -> None:
    a = RANDOM.standard_normal((4, 3))
    u, s, v = torch.svd(nx.tensor(a))
    close(u @ nx.diag(s) @ v.mT, a)
    assert torch.svd(nx.tensor(a), some=False).U.shape == (4, 4) and (torch.svd(nx.tensor(a), compute_uv=False).V == 0).all()
    assert torch.qr(nx.tensor(a), some=False).Q.shape == (4, 4)
    assert nx.tensor(a).svd().S.tolist() == s.tolist()
    u, s, v = torch.svd_lowrank(nx.tensor(a), 2)
    assert u.shape == (4, 2) and v.shape == (3, 2)
    u, s, v = torch.pca_lowrank(nx.tensor(a))
    close(u @ nx.diag(s) @ v.mT, a - a.mean(0))
