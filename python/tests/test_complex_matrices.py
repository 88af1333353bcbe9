"""Linear algebra of complex matrices, with PyTorch's arguments and its values (2.15) as numbers."""

from __future__ import annotations

import neurenix.torch as torch
import numpy as np
import pytest

A = torch.tensor([[1 + 1j, 2.0, 0.5j], [3, 1j, 2]], dtype=torch.complex128)
SQUARE = torch.tensor([[2 + 1j, 1.0], [3, 1j]], dtype=torch.complex128)
HERMITIAN = torch.tensor([[2, 1j], [-1j, 3.0]], dtype=torch.complex128)


def close(ours: torch.Tensor, expected: object) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_svd_returns_v() -> None:
    for u, s, v in (torch.svd(A), A.svd(), torch.svd(A, some=False)):
        close(s, [3.926573422200971, 2.198185879325261])
        close(u @ torch.diag(s).to(A.dtype) @ v.mH[:2], A.numpy())
    assert torch.svd(A).V.shape == (3, 2) and torch.svd(A, False).V.shape == (3, 3)
    assert torch.svd(A, compute_uv=False).V.tolist() == [[0j] * 3] * 3
    u, s, vh = torch.linalg.svd(A, False)
    close((u * s) @ vh, A.numpy())


def test_cross_products() -> None:
    expected = [[4.5, -2 - 0.5j, -7 + 1j], [-4.5, 2 + 0.5j, 7 - 1j]]
    for found in (torch.linalg.cross(A, A.flip(0)), A.cross(A.flip(0), 1), torch.cross(A, A.flip(0), dim=-1)):
        close(found, expected)


def test_arguments_are_those_of_real_matrices() -> None:
    assert [part.shape for part in torch.linalg.qr(A.mT, "complete")] == [(3, 3), (3, 2)]
    assert [part.shape for part in torch.qr(A.mT, False)] == [(3, 3), (3, 2)]
    q, r = torch.qr(A)
    close(q @ r, A.numpy())
    assert torch.linalg.qr(A, "r").Q.shape == (0,)
    expected = [
        [0.06383015106256144 - 0.04544938295678954j, 0.19914910656508944 - 0.006126922701924012j],
        [0.005121848086643565 - 0.018380768105771883j, 0.03676153621154375 - 0.03166380687746067j],
        [0.03676153621154379 - 0.028851614180318726j, 0.118469918072237 - 0.009190384052885983j],
    ]
    close(torch.linalg.pinv(A, atol=3.0), expected)
    close(A @ torch.linalg.pinv(A, 1e-3) @ A, A.numpy())
    close(torch.linalg.pinv(HERMITIAN, hermitian=True), [[0.6, -0.2j], [0.2j, 0.4]])
    assert torch.linalg.matrix_rank(A, hermitian=False).item() == 2 and torch.linalg.matrix_rank(A, 3.0).item() == 1
    expected = [[-0.1 + 0.2j, 0.8 - 0.1j], [1.6 + 0.8j, -0.8 - 1.4j]]
    close(torch.linalg.solve(SQUARE, HERMITIAN, left=False), expected)
    close(torch.linalg.solve(SQUARE, SQUARE, left=True), np.eye(2))
    close(torch.linalg.eigvalsh(HERMITIAN, UPLO="U"), [1.381966011250105, 3.618033988749895])
    close(torch.cholesky_solve(HERMITIAN, torch.linalg.cholesky(HERMITIAN)), np.eye(2))
    close(torch.cholesky_inverse(torch.linalg.cholesky(HERMITIAN)), [[0.6, -0.2j], [0.2j, 0.4]])


def test_views_of_another_dtype() -> None:
    parts = A.clone()
    parts.view(torch.float64)[0, 1] = 5.0
    assert parts[0, 0].item() == 1 + 5j and parts.view(dtype=torch.float64).shape == (2, 6)
    assert A[:1].view(torch.int64)[0, 2].item() == 4611686018427387904  # The bits of 2.0.
    assert torch.arange(4.0).view(torch.complex64).tolist() == [1j, 2 + 3j]
    assert A.view(3, 2).shape == (3, 2) and A.view(torch.complex128).tolist() == A.tolist()
    with pytest.raises(RuntimeError, match="without dimensions"):
        A[0, 0].view(torch.float64)


def test_factorizations() -> None:
    p, lower, upper = torch.linalg.lu(SQUARE)
    close(p @ lower @ upper, SQUARE.numpy())
    packed, pivots = torch.linalg.lu_factor(SQUARE)
    close(packed, [[2 + 1j, 1], [1.2 - 0.6j, -1.2 + 1.6j]])
    for adjoint, matrix in ((False, SQUARE), (True, SQUARE.mH)):
        close(matrix @ torch.linalg.lu_solve(packed, pivots, HERMITIAN, adjoint=adjoint), HERMITIAN.numpy())
        close(torch.linalg.lu_solve(packed, pivots, HERMITIAN, adjoint=adjoint, left=False) @ matrix, HERMITIAN.numpy())
    assert torch.linalg.inv_ex(torch.stack([SQUARE, SQUARE * 0])).info.tolist() == [0, 1]
    assert torch.linalg.cholesky_ex(torch.stack([HERMITIAN, -HERMITIAN])).info.tolist() == [0, 1]
    close(torch.linalg.lstsq(A.mT, A.mT).solution, np.eye(2))


def test_functions_of_matrices() -> None:
    expected = [
        [8.188887963235077 + 12.753437370275853j, 2.663373950962888 + 4.147959164874247j],
        [7.990121852888667 + 12.443877494622745j, 2.862140061309303 + 4.457519040527361j],
    ]
    close(torch.linalg.matrix_exp(SQUARE), expected)
    close(torch.linalg.householder_product(SQUARE, torch.tensor([1j, 2], dtype=torch.complex128)), [[1 - 1j, 3j], [-3j, -1 + 9j]])
