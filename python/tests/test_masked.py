"""``neurenix.masked``. The expectation is NumPy's, of the elements that count, unless a test says PyTorch's (2.15)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import masked

VALUES = np.random.default_rng(0).normal(size=(3, 4, 5))
MASK = np.random.default_rng(1).random((3, 4, 5)) > 0.4
MASK[1, 2] = False


def chosen(function: Callable[[Any], Any], axis: Any) -> Any:
    """The function of the elements that count, for each place along the other axes."""
    axes = tuple(range(3)) if axis is None else axis if isinstance(axis, tuple) else (axis % 3,)
    kept = [each for each in range(3) if each not in axes]
    shape = [VALUES.shape[each] for each in kept]
    moved = (np.transpose(each, [*kept, *axes]).reshape(*shape, -1) for each in (VALUES, MASK))
    values, mask = moved
    return np.array([function(values[place][mask[place]]) for place in np.ndindex(*shape)]).reshape(shape)


def spread(correction: float) -> Callable[[Any], Any]:
    def variance(x: Any) -> float:
        squares = float(((x - x.mean()) ** 2).sum()) if x.size else math.nan
        left = max(x.size - correction, 0.0)
        return squares / left if left else (math.inf if squares > 0 else math.nan)

    return variance


REDUCTIONS: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "sum": ({}, np.sum),
    "prod": ({}, np.prod),
    "amax": ({}, lambda x: x.max(initial=-math.inf)),
    "amin": ({}, lambda x: x.min(initial=math.inf)),
    "mean": ({}, lambda x: x.mean() if x.size else math.nan),
    "var": ({}, spread(1)),
    "std": ({"unbiased": False}, lambda x: spread(0)(x) ** 0.5),
    "logsumexp": ({}, lambda x: np.log(np.exp(x).sum()) if x.size else -math.inf),
    "norm": ({"ord": 3}, lambda x: (abs(x) ** 3).sum() ** (1 / 3)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (1, 2)])
def test_reductions(name: str, dim: Any) -> None:
    options, defined = REDUCTIONS[name]
    x, mask = nx.asarray(VALUES), nx.asarray(MASK)
    found = getattr(masked, name)(x, dim=dim, mask=mask, **options)
    expected = chosen(defined, dim)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-15)
    kept = getattr(masked, name)(x, dim=dim, mask=mask, keepdim=True, **options)
    assert kept.ndim == 3 and kept.numel() == found.numel()
    # Without a mask, all elements count.
    whole = getattr(masked, name)(x, dim=dim, **options)
    np.testing.assert_allclose(whole.numpy(), getattr(masked, name)(x, dim=dim, mask=nx.tensor(True), **options).numpy())


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    x, mask = nx.asarray(VALUES), nx.asarray(MASK)
    worst = -math.inf if name == "argmax" else math.inf
    expected = getattr(np, name)(np.where(MASK, VALUES, worst), 1)
    found = getattr(masked, name)(x, 1, mask=mask)
    assert found.tolist() == expected.tolist() and found.dtype == x.dtype, "PyTorch's dtype is the input's"
    assert getattr(masked, name)(x, 1, mask=mask, dtype=nx.int64).dtype == nx.int64


def test_medians() -> None:
    x, mask = nx.asarray(VALUES), nx.asarray(MASK)
    lower = lambda row: np.sort(row)[(row.size - 1) // 2] if row.size else math.nan  # noqa: E731
    np.testing.assert_allclose(masked.median(x, mask=mask).numpy(), chosen(lower, -1))
    whole = nx.tensor([[3, 1, 2], [4, 6, 5]])
    assert masked.median(whole, mask=nx.tensor([True, True, False])).tolist() == [1, 4]
    with pytest.raises(ValueError, match="no element counts"):
        masked.median(whole, mask=nx.tensor([[True] * 3, [False] * 3]))


def test_along_a_dimension() -> None:
    x, mask = nx.asarray(VALUES), nx.asarray(MASK)
    np.testing.assert_allclose(masked.cumsum(x, 1, mask=mask).numpy(), np.where(MASK, VALUES, 0).cumsum(1))
    np.testing.assert_allclose(masked.cumprod(x, 1, mask=mask).numpy(), np.where(MASK, VALUES, 1).cumprod(1))
    for name, sign in ("softmax", 1), ("softmin", -1):
        powers = np.where(MASK, np.exp(sign * VALUES), 0)
        total = powers.sum(2, keepdims=True)
        shares = np.divide(powers, total, out=np.full_like(powers, math.nan), where=total > 0)
        found = getattr(masked, name)(x, 2, mask=mask).numpy()
        np.testing.assert_allclose(found, shares, rtol=1e-12)
    rows = MASK.any(2)
    logarithm = masked.log_softmax(x, 2, mask=mask).numpy()
    np.testing.assert_allclose(np.exp(logarithm[rows]), masked.softmax(x, 2, mask=mask).numpy()[rows], rtol=1e-12)
    lengths = np.abs(np.where(MASK, VALUES, 0)).sum(2, keepdims=True)
    found = masked.normalize(x, 1.0, 2, mask=mask).numpy()
    np.testing.assert_allclose(found, np.where(MASK, VALUES, 0) / np.maximum(lengths, 1e-12), rtol=1e-12)


def test_two_tensors() -> None:
    a, b, mask = nx.tensor([1.0, 2.0, 3.0]), nx.tensor([3.0, 1.0, 2.0]), nx.tensor([True, False, True])
    found = masked.logaddexp(a, b, input_mask=mask, other_mask=~mask)
    assert found.tolist() == [1.0, 1.0, 3.0]


def test_integers_have_the_results_of_pytorch() -> None:
    x, mask = nx.tensor([[3, 1], [2, 5]], dtype=nx.int32), nx.tensor([[True, False], [False, False]])
    assert masked.sum(x, 1, mask=mask).tolist() == [3, 0] and masked.sum(x, 1, mask=mask).dtype == nx.int64
    assert masked.prod(x, 1, mask=mask).tolist() == [3, 1]
    assert masked.amax(x, 1, mask=mask).tolist() == [3, -(2**31)] and masked.amin(x, 1, mask=mask).tolist() == [3, 2**31 - 1]
    assert masked.var(x, mask=nx.tensor([True, False])).item() == 0.5
    with pytest.raises(ValueError, match="expected floats"):
        masked.mean(x, mask=mask)
    assert masked.mean(x, 1, mask=mask, dtype=nx.float64)[0].item() == 3.0
    assert masked.sum(nx.tensor([True, True, False]), mask=nx.tensor([True, False, True])).item() == 1


def test_gradients_reach_what_counts() -> None:
    mask = nx.arange(20).reshape(4, 5) % 3 != 1
    for function in (
        lambda x: masked.sum(x * x, 1, mask=mask),
        lambda x: masked.mean(x, 0, mask=mask),
        lambda x: masked.var(x, 0, mask=mask),
        lambda x: masked.softmax(x, 1, mask=mask),
        lambda x: masked.prod(x, 1, mask=mask),
        lambda x: masked.norm(x, 2.0, 1, mask=mask),
    ):
        x = nx.asarray(VALUES[0]).requires_grad_()
        assert nx.autograd.gradcheck(function, (x,))
        function(x).square().sum().backward()
        assert x.grad is not None and not x.grad[~mask].any()


def test_complex_numbers() -> None:
    z, mask = nx.tensor([1 + 1j, 2, 3 - 1j]), nx.tensor([True, False, True])
    assert masked.sum(z, mask=mask).item() == 4 and masked.mean(z, mask=mask).item() == 2
    assert masked.prod(z, mask=mask).item() == (1 + 1j) * (3 - 1j)
    assert abs(masked.var(z, mask=mask).item() - 4) < 1e-6


def test_a_number_counts_as_a_vector() -> None:
    x, no = nx.tensor(2.0), nx.tensor(False)
    for name in ("argmax", "argmin", "cumsum", "cumprod", "softmax", "log_softmax", "softmin"):
        found = getattr(masked, name)(x, 0)
        assert found.shape == () and found.item() == {"cums": 2, "cump": 2, "soft": 1}.get(name[:4], 0)
    assert masked.sum(x, 0, mask=no).item() == 0 and masked.logsumexp(x, -1).item() == 2


def test_refusals() -> None:
    x = nx.ones(2, 3)
    with pytest.raises(IndexError, match="3 dimensions"):
        masked.sum(x, mask=nx.ones(1, 2, 3) > 0)
    with pytest.raises(IndexError, match="dim 2"):
        masked.sum(x, 2)
    with pytest.raises(RuntimeError, match="more than once"):
        masked.amax(x, (0, -2))
    with pytest.raises(ValueError, match="unbiased or correction"):
        masked.var(x, 0, True, correction=1)
    with pytest.raises(TypeError, match="tensor"):
        masked.sum([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="logsumexp does not take complex numbers"):
        masked.logsumexp(x.to(nx.complex64), 0)


def test_reductions_of_truth_values() -> None:
    x = nx.tensor([[True, False], [False, False]])
    assert nx.masked.amax(x, 1).tolist() == [True, False]
    assert nx.masked.amin(x, 1).tolist() == [False, False]
    assert nx.masked.amin(x, mask=x).item() is True
    # log(e + 1) and log(2) are not 0.
    assert nx.masked.logsumexp(x, 1).tolist() == [True, True]
    for function in (nx.masked.argmax, nx.masked.argmin):
        with pytest.raises(TypeError, match="bool"):
            function(x, 1)
