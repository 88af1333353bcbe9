"""Edge cases of neural functions, with values worked out by hand."""

from __future__ import annotations

import math

import neurenix as nx
import numpy as np
import pytest

F = nx.nn.functional


def test_normalize_has_derivatives_at_zero() -> None:
    x = nx.Tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    result = F.normalize(x, eps=0.5)
    np.testing.assert_allclose(result.detach().numpy(), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    result.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.032, -0.024], [2.0, 2.0]], rtol=1e-5)


@pytest.mark.parametrize(
    ("p", "expected"), [(math.inf, [0.75, -1.0]), (1.0, [3 / 7, -4 / 7]), (3.0, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3)])]
)
def test_normalize_knows_all_orders(p: float, expected: list[float]) -> None:
    np.testing.assert_allclose(F.normalize(nx.Tensor([[3.0, -4.0]]), p).numpy(), [expected], rtol=1e-6)


def test_attention_that_drops_nearly_all_weights_stays_finite():
    nx.manual_seed(0)
    q, k, v = nx.ones(1, 1, 300_000, 8, dtype=nx.float16), *(nx.ones(1, 1, 1, 8, dtype=nx.float16) for _ in range(2))
    attention = nx.nn.functional.scaled_dot_product_attention
    assert attention(q, k, v, dropout_p=1.0).abs().max().item() == 0
    # The others are scaled, by the greatest factor that float16 holds.
    assert attention(q, k, v, dropout_p=1 - 1e-7).max().item() == 32768
