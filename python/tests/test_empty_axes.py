"""Axes without elements, and sums of unsigned integers: PyTorch's results and exceptions."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import pytest


def test_an_empty_axis_is_cut_into_empty_pieces() -> None:
    # The results of PyTorch 2: torch.zeros(2, 0).chunk(3, 1) and so on.
    assert [tuple(piece.shape) for piece in nx.zeros(2, 0).chunk(3, 1)] == [(2, 0)] * 3
    assert [tuple(piece.shape) for piece in nx.zeros(2, 0).chunk(3)] == [(1, 0)] * 2
    assert [tuple(piece.shape) for piece in nx.chunk(nx.zeros(0), 2)] == [(0,)] * 2
    assert [tuple(piece.shape) for piece in nx.arange(7).chunk(5)] == [(2,), (2,), (2,), (1,)]


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "argmax", "argmin"])
def test_an_empty_axis_has_no_extreme(name: str) -> None:
    def of(*shape: int) -> Any:
        return getattr(nx.zeros(*shape), name)

    for shape, dim in (((0,), 0), ((0,), -1), ((2, 0), 1), ((0, 2), 0), ((0, 0), 0), ((0, 0), 1)):
        with pytest.raises(IndexError, match=rf"{name}: dimension {dim} of shape"):
            of(*shape)(dim)
    with pytest.raises(IndexError if name.startswith("arg") else RuntimeError, match=f"{name}: a tensor"):
        of(2, 0)()
    for shape, dim, left in (((2, 0), 0, (0,)), ((0, 2), 1, (0,)), ((2, 0, 3), 2, (2, 0))):
        result = of(*shape)(dim)
        for part in result if isinstance(result, tuple) else [result]:
            assert tuple(part.shape) == left


def test_the_logarithm_of_an_empty_sum() -> None:
    x = nx.zeros(2, 0).requires_grad_()
    result = x.logsumexp(1)
    assert result.tolist() == [-float("inf")] * 2 and nx.zeros(2, 0).logsumexp(1, keepdim=True).shape == (2, 1)
    result.sum().backward()
    assert tuple(x.grad.shape) == (2, 0)
    assert nx.zeros(0, 2, dtype="int64").logsumexp(0).tolist() == [-float("inf")] * 2
    assert nx.zeros(2, 0, dtype="bfloat16").logsumexp(1).dtype == nx.bfloat16


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_methods_sum_unsigned_integers_as_pytorch_does(dtype: str) -> None:
    x = nx.tensor([1, 2, 3], dtype=dtype)
    for result in (x.sum(), x.prod(), x.sum(0), x.cumsum(0), x.cumprod(0), nx.nansum(x), x.reshape(1, 3).trace(), nx.cumsum(x, 0)):
        assert result.dtype == nx.int64
    for result in (nx.sum(x), nx.prod(x), nx.cumulative_sum(x), nx.cumulative_prod(x), nx.linalg.trace(x.reshape(1, 3))):
        assert result.dtype == nx.uint64
    assert nx.sum(x, dtype="int32").dtype == nx.int32 and x.sum(dtype=dtype).dtype == getattr(nx, dtype)
    assert x.sum().item() == nx.sum(x).item() == 6 and nx.sum(x, dim=0).item() == 6
    assert x.cumsum(0).tolist() == nx.cumulative_sum(x).tolist() == [1, 3, 6]


def test_great_unsigned_integers() -> None:
    x = nx.tensor([2**63, 5], dtype="uint64")
    assert nx.sum(x).item() == 2**63 + 5
    # Wraps in two's complement, as in PyTorch.
    assert x.sum().item() == -(2**63) + 5
    assert x.mean().item() == pytest.approx((2**63 + 5) / 2)
