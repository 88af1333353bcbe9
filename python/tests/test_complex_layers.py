"""Layers, losses and combined operations that are made of what complex numbers have. Values are PyTorch's (2.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix.torch as torch
import numpy as np
import pytest
from neurenix.torch.nn import functional as F

A = torch.tensor([[1 + 1j, 2.0, 0.5j], [3, 1j, 2]], dtype=torch.complex128)
B = torch.tensor([[1j, 2, 3], [1, 1j, 0]], dtype=torch.complex128)
C = torch.tensor([[2, 1j], [-1j, 3.0]], dtype=torch.complex128)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: F.linear(A, B), [[3 + 2.5j, 1 + 3j], [6 + 5j, 2]]),
        (lambda: F.linear(A, B, C[0]), [[5 + 2.5j, 1 + 4j], [8 + 5j, 2 + 1j]]),
        (lambda: torch.addmm(C, A, B.mT, beta=2j, alpha=3), [[9 + 11.5j, 1 + 9j], [20 + 15j, 6 + 6j]]),
        (lambda: torch.baddbmm(C[None], A[None], B.mT[None], beta=0.5), [[[4 + 2.5j, 1 + 3.5j], [6 + 4.5j, 3.5]]]),
        (lambda: torch.lerp(A, B, 0.25j), [[1 + 0.75j, 2, 0.125 + 1.25j], [3 - 0.5j, 1j, 2 - 0.5j]]),
        (lambda: torch.addcmul(A, A, B, value=2), [[-1 + 3j, 10, 3.5j], [9, -2 + 1j, 2]]),
        (lambda: torch.addcdiv(A[1], B[1], A[1] + 1, value=2j), [3 + 0.5j, -1 + 2j, 2]),
        (lambda: F.pad(A[:1], (1, -1, 1, 0), value=2), [[2, 2, 2], [2, 1 + 1j, 2]]),
        (lambda: F.pad(A, (1, 1), mode="reflect"), [[2, 1 + 1j, 2, 0.5j, 2], [1j, 3, 1j, 2, 1j]]),
        (lambda: F.l1_loss(A, B, reduction="none"), [[1, 0, 3.0413812651491097], [2, 0, 2]]),
        (lambda: F.l1_loss(A, B), 1.3402302108581851),
        (lambda: torch.rsqrt(A[0]), [0.7768869870150187 - 0.3217971264527913j, 0.7071067811865475, 1 - 1j]),
        (lambda: torch.cov(A)[0], [1.25, -1.25 + 0.25j]),
        (lambda: torch.corrcoef(A)[0, 1], -0.6846531968814576 + 0.13693063937629152j),
        (lambda: torch.logdet(C), 1.6094379124341003),
    ],
)
def test_operations(call: Callable[[], Any], expected: Any) -> None:
    np.testing.assert_allclose(call().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_equality_compares_all_elements() -> None:
    assert torch.equal(A, A.clone()) and not torch.equal(A, B) and not A.equal(A[:1])


def test_a_complex_layer_is_trained() -> None:
    torch.manual_seed(0)
    layer, target = torch.nn.Linear(2, 1, dtype=torch.complex64), torch.nn.Linear(2, 1, dtype=torch.complex64)
    bound = 0.5**0.5
    for part in (layer.weight.real, layer.weight.imag):
        assert part.abs().max().item() <= bound and len(set(part.flatten().tolist())) == 2
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    inputs = torch.randn(64, 2, dtype=torch.complex64)
    for _ in range(100):
        optimizer.zero_grad()
        (layer(inputs) - target(inputs)).abs().square().mean().backward()
        optimizer.step()
    assert torch.allclose(layer.weight, target.weight, atol=1e-3)


def test_initial_values() -> None:
    weight = torch.empty(100, 100, dtype=torch.complex64)
    torch.nn.init.normal_(weight, 1.0, 2.0)
    # Each part has half of the variance; the bounds are five standard errors of 10,000 numbers.
    assert abs(weight.real.var().item() - 2) < 0.15 and abs(weight.imag.var().item() - 2) < 0.15
    assert abs(weight.mean().item() - 1) < 0.1
    weight.uniform_(-3, -2)
    assert -3 <= weight.imag.min().item() < -2.9 and -2.1 < weight.real.max().item() <= -2
