"""``nn.functional.multi_head_attention_forward``. Expected numbers are PyTorch's (2.15)."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest

F = nx.nn.functional


def ramp(*shape: int) -> nx.Tensor:
    count = int(np.prod(shape))
    return (nx.arange(count, dtype=nx.float64) * 1.7).sin().reshape(shape)


SEPARATE = {
    "use_separate_proj_weight": True, "q_proj_weight": ramp(4, 4), "k_proj_weight": ramp(4, 4) + 0.1, "v_proj_weight": ramp(4, 4) - 0.1,
}  # fmt: skip


def computed(query: nx.Tensor, key: nx.Tensor, value: nx.Tensor, **options: Any) -> tuple[nx.Tensor, nx.Tensor | None]:
    together = None if "q_proj_weight" in options else ramp(12, 4) / 2
    further = options.pop("bias_k", None), options.pop("bias_v", None), options.pop("add_zero_attn", False)
    return F.multi_head_attention_forward(
        query, key, value, 4, 2, together, ramp(12), *further, 0.0, ramp(4, 4), ramp(4), **options
    )


@pytest.mark.parametrize(
    ("options", "expected", "weights", "gradient"),
    [
        (
            {},
            [-0.24541, 1.31727, 0.55603, 0.15974, -0.20211, 1.36605, 0.59754, 0.18313],
            [0.20835, 0.29172, 0.49994, 0.20018, 0.28549, 0.51433],
            [0.00658, -0.02475, -0.0002, 0.0248, 0.00675, -0.02813, 0.00049, 0.028],
        ),
        (
            {"bias_k": ramp(1, 1, 4), "bias_v": ramp(1, 1, 4) + 1, "add_zero_attn": True, "average_attn_weights": False},
            [0.21841, 1.58568, 0.55893, -0.10364, 0.28124, 1.56658, 0.46287, -0.25155],
            [0.06646, 0.16623, 0.479, 0.22342, 0.06489, 0.06784, 0.16324, 0.45635, 0.24616, 0.06641, 0.23149, 0.25049, 0.234, 0.18628, 0.09775, 0.17373, 0.19205, 0.21007, 0.23666, 0.18749],
            [0.11493, -0.04278, -0.10391, 0.06956, 0.16525, -0.04212, -0.1544, 0.0819],
        ),
        (
            {**SEPARATE, "attn_mask": ramp(2, 3), "need_weights": False},
            [1.6628, 3.49145, 2.42828, 1.24101, 0.84093, 2.63458, 1.76022, 0.93627],
            None,
            [-0.24986, -0.04491, 0.26143, -0.02245, -0.20751, -0.07932, 0.22795, 0.02058],
        ),
        (
            {"static_k": ramp(2, 4, 2), "static_v": ramp(2, 4, 2) + 0.3, "key_padding_mask": nx.tensor([[False, True, False, False]])},
            [0.50236, 1.3452, -0.14317, -1.08396, 0.47531, 1.255, -0.27297, -1.21945],
            [0.3797, 0.0, 0.47098, 0.14932, 0.41809, 0.0, 0.46699, 0.11492],
            [0.10039, 0.06511, -0.11717, -0.03492, 0.09939, 0.06459, -0.11604, -0.03468],
        ),
    ],
)
def test_the_numbers_of_pytorch(options: Any, expected: Any, weights: Any, gradient: Any) -> None:
    query = ramp(2, 1, 4).requires_grad_()
    found, shares = computed(query, ramp(3, 1, 4) + 0.5, ramp(3, 1, 4) - 0.25, **options)
    assert found.shape == (2, 1, 4) and (shares is None) == (weights is None)
    np.testing.assert_allclose(found.detach().numpy().ravel(), expected, atol=1e-5)
    if shares is not None:
        np.testing.assert_allclose(shares.detach().numpy().ravel(), weights, atol=1e-5)
    (found * ramp(2, 1, 4)).sum().backward()
    assert query.grad is not None
    np.testing.assert_allclose(query.grad.numpy().ravel(), gradient, atol=1e-5)


def test_it_is_what_the_layer_computes() -> None:
    layer = nx.nn.MultiheadAttention(6, 3, add_bias_kv=True, dtype=nx.float64)
    x, mask = nx.randn(5, 2, 6, dtype=nx.float64), nx.rand(5, 5) > 0.8
    expected = layer(x, x, x, attn_mask=mask)
    weights = layer.in_proj_weight, layer.in_proj_bias, layer.bias_k, layer.bias_v
    out = layer.out_proj
    found = F.multi_head_attention_forward(x, x, x, 6, 3, *weights, False, 0.0, out.weight, out.bias, attn_mask=mask)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-12)
    single = F.multi_head_attention_forward(x[:, 0], x[:, 0], x[:, 0], 6, 3, *weights, False, 0.0, out.weight, out.bias)
    whole = F.multi_head_attention_forward(x, x, x, 6, 3, *weights, False, 0.0, out.weight, out.bias)
    np.testing.assert_allclose(single[0].detach().numpy(), whole[0][:, 0].detach().numpy(), atol=1e-12)
    assert single[1] is not None and single[1].shape == (5, 6)


def test_dropout_is_for_training() -> None:
    x = nx.ones(50, 1, 4)
    given = nx.ones(12, 4), None, None, None, False
    last = nx.eye(4), None
    kept = F.multi_head_attention_forward(x, x, x, 4, 2, *given, 0.5, *last, training=False)
    assert kept[0].tolist() == F.multi_head_attention_forward(x, x, x, 4, 2, *given, 0.0, *last)[0].tolist()
    dropped = F.multi_head_attention_forward(x, x, x, 4, 2, *given, 0.5, *last, average_attn_weights=False)[1]
    assert dropped is not None and 0.3 < (dropped == 0).float().mean().item() < 0.7


def test_refusals() -> None:
    x = ramp(2, 1, 4)
    for match, options in [
        ("is_causal=True requires attn_mask", {"is_causal": True}),
        ("requires q_proj_weight", {"use_separate_proj_weight": True}),
        (r"shape \(2, S, 2\)", {"static_k": ramp(1, 3, 4)}),
    ]:
        with pytest.raises(ValueError, match=match):
            computed(x, x, x, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 dimensions, or 2"):
        computed(x, x[0], x[0])
    with pytest.raises(ValueError, match="embed_dim_to_check = 4"):
        computed(ramp(2, 1, 6), x, x)
