"""Matrices without a result are errors within the call, once ``neurenix.torch`` has been imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import neurenix.torch as torch
import pytest

INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.linalg.cholesky(INDEFINITE),
        lambda: torch.cholesky(INDEFINITE),
        lambda: INDEFINITE.cholesky(),
        lambda: torch.linalg.inv(SINGULAR),
        lambda: torch.inverse(SINGULAR),
        lambda: SINGULAR.inverse(),
        lambda: torch.linalg.solve(SINGULAR, SINGULAR),
        lambda: torch.linalg.solve(SINGULAR, torch.ones(2), left=False),
        lambda: torch.linalg.inv(SINGULAR.to(torch.complex64)),
        lambda: torch.linalg.tensorinv(SINGULAR, 1),
        lambda: torch.linalg.matrix_power(SINGULAR, -1),
        lambda: torch.linalg.cholesky_ex(INDEFINITE, check_errors=True),
    ],
)
def test_calls_fail_at_once(call: Callable[[], Any]) -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular|positive definite"):
        call()


def test_jitter_is_added_until_a_factor_exists() -> None:
    kernel, tries = INDEFINITE.clone(), 0
    while True:
        try:
            factor = torch.linalg.cholesky(kernel)
            break
        except RuntimeError:
            kernel, tries = kernel + 0.75 * torch.eye(2), tries + 1
    # 1 + 0.75 n exceeds 2 for n = 2.
    assert tries == 2 and torch.allclose(factor @ factor.mT, kernel)


def test_the_error_has_pytorch_s_names() -> None:
    assert issubclass(torch.linalg.LinAlgError, RuntimeError)
    assert torch._C._LinAlgError is torch.linalg.LinAlgError is nx.linalg.LinAlgError


def test_recorded_functions_fail_when_they_compute() -> None:
    batch = torch.stack([SINGULAR, torch.eye(2)])
    inverses = torch.func.vmap(torch.linalg.inv)(torch.eye(2).expand(3, 2, 2) * 2)
    assert inverses[2].tolist() == [[0.5, 0.0], [0.0, 0.5]]
    with pytest.raises(RuntimeError, match="singular"):
        torch.func.vmap(torch.linalg.inv)(batch).tolist()
    inverse = nx.compile(lambda x: torch.linalg.inv(x))
    assert inverse(torch.eye(2) * 4)[0, 0].item() == 0.25
    with pytest.raises(RuntimeError, match="singular"):
        inverse(SINGULAR).tolist()


def test_gradients_flow_through_what_is_computed_at_once() -> None:
    x = torch.tensor([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    torch.linalg.inv(x).sum().backward()
    # The gradient is -inv(x).T @ ones @ inv(x).T.
    assert x.grad is not None and x.grad.tolist() == [[-0.25, -0.125], [-0.125, -0.0625]]
