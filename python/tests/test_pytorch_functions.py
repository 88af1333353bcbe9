"""Functions of PyTorch that the array API standard lacks, compared with NumPy's or with their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest

RANDOM = np.random.default_rng(0)
FLOATS = RANDOM.standard_normal((4, 5)).astype(np.float32)
OTHER = RANDOM.standard_normal((4, 5)).astype(np.float32)
WITH_NAN = np.where(FLOATS > 1, np.nan, FLOATS).astype(np.float32)
WHOLE = RANDOM.integers(-30, 30, (4, 5))
DIVISORS = RANDOM.integers(-30, 30, (4, 5))

Case = tuple[str, Callable[[], Any], Callable[[], Any]]


def t(x: Any) -> nx.Tensor:
    return nx.tensor(x)


CASES: list[Case] = [
    ("deg2rad", lambda: nx.deg2rad(t(FLOATS)), lambda: np.deg2rad(FLOATS)),
    ("rad2deg", lambda: nx.rad2deg(t(FLOATS)), lambda: np.rad2deg(FLOATS)),
    ("fix", lambda: nx.fix(t(FLOATS * 3)), lambda: np.fix(FLOATS * 3)),
    ("sgn", lambda: t(FLOATS).sgn(), lambda: np.sign(FLOATS)),
    ("rsub", lambda: nx.rsub(t(FLOATS), t(OTHER), alpha=2), lambda: OTHER - 2 * FLOATS),
    ("float_power", lambda: nx.float_power(t(WHOLE), 2), lambda: np.float_power(WHOLE, 2)),
    ("fmax", lambda: nx.fmax(t(WITH_NAN), t(OTHER)), lambda: np.fmax(WITH_NAN, OTHER)),
    ("fmin", lambda: nx.fmin(t(OTHER), t(WITH_NAN)), lambda: np.fmin(OTHER, WITH_NAN)),
    ("heaviside", lambda: nx.heaviside(t(WHOLE // 9), nx.tensor(7)), lambda: np.heaviside(WHOLE // 9, 7)),
    ("isposinf", lambda: nx.isposinf(t([np.inf, -np.inf, 1.0])), lambda: np.array([True, False, False])),
    ("isneginf", lambda: nx.isneginf(t([np.inf, -np.inf, 1.0])), lambda: np.array([False, True, False])),
    ("ldexp", lambda: nx.ldexp(t(FLOATS), t(WHOLE)), lambda: np.ldexp(FLOATS, WHOLE)),
    ("logaddexp2", lambda: nx.logaddexp2(t(FLOATS), t(OTHER)), lambda: np.logaddexp2(FLOATS, OTHER)),
    ("gcd", lambda: nx.gcd(t(WHOLE), t(DIVISORS)), lambda: np.gcd(WHOLE, DIVISORS)),
    ("lcm", lambda: nx.lcm(t(WHOLE), t(DIVISORS)), lambda: np.lcm(WHOLE, DIVISORS)),
    ("gcd of Fibonacci numbers", lambda: nx.gcd(t([7540113804746346429]), t([4660046610375530309])), lambda: np.array([1])),
    ("hsplit", lambda: nx.hsplit(t(FLOATS), [2, 3])[1], lambda: np.hsplit(FLOATS, [2, 3])[1]),
    ("vsplit", lambda: nx.vsplit(t(FLOATS), 2)[1], lambda: np.vsplit(FLOATS, 2)[1]),
    ("dsplit", lambda: nx.dsplit(t(FLOATS[None]), 5)[4], lambda: np.dsplit(FLOATS[None], 5)[4]),
    ("atleast_3d", lambda: nx.atleast_3d(t(FLOATS)), lambda: np.atleast_3d(FLOATS)),
    ("cov", lambda: nx.cov(t(FLOATS)), lambda: np.cov(FLOATS)),
    (
        "cov with weights",
        lambda: nx.cov(t(FLOATS), fweights=nx.arange(5), aweights=t(np.abs(OTHER[0]))),
        lambda: np.cov(FLOATS, fweights=np.arange(5), aweights=np.abs(OTHER[0])),
    ),
    ("corrcoef", lambda: nx.corrcoef(t(FLOATS)), lambda: np.corrcoef(FLOATS)),
    ("histogram", lambda: nx.histogram(t(FLOATS), 6)[0], lambda: np.histogram(FLOATS, 6)[0]),
    ("densities", lambda: nx.histogram(t(FLOATS), 6, density=True)[0], lambda: np.histogram(FLOATS, 6, density=True)[0]),
    ("histogramdd", lambda: nx.histogramdd(t(FLOATS[:, :2]), [3, 4])[0], lambda: np.histogramdd(FLOATS[:, :2], [3, 4])[0]),
    ("nanquantile", lambda: nx.nanquantile(t(WITH_NAN), 0.3, 1), lambda: np.nanquantile(WITH_NAN, 0.3, axis=1)),
    ("gradient", lambda: nx.gradient(t(FLOATS), edge_order=2)[1], lambda: np.gradient(FLOATS, edge_order=2)[1]),
    (
        "gradient at points",
        lambda: nx.gradient(t(FLOATS[0]), spacing=(t(np.array([0, 1, 3, 4, 8.0])),))[0],
        lambda: np.gradient(FLOATS[0], np.array([0, 1, 3, 4, 8.0])),
    ),
    ("vander", lambda: nx.vander(t(FLOATS[0]), 3), lambda: np.vander(FLOATS[0], 3)),
    ("unravel_index", lambda: nx.unravel_index(nx.tensor(17), (4, 5))[1], lambda: np.unravel_index(17, (4, 5))[1]),
    ("argwhere", lambda: nx.argwhere(t(WHOLE > 0)), lambda: np.argwhere(WHOLE > 0)),
    ("put", lambda: nx.put(t(FLOATS), nx.tensor([0, -1]), nx.tensor([5.0, 6.0])), lambda: put(FLOATS, [0, -1], [5, 6])),
    ("addbmm", lambda: nx.addbmm(t(FLOATS), t(FLOATS[None]), nx.eye(5)[None], beta=2), lambda: 3 * FLOATS),
    ("addr", lambda: nx.addr(t(FLOATS), t(OTHER[:, 0]), t(OTHER[0])), lambda: FLOATS + np.outer(OTHER[:, 0], OTHER[0])),
    ("logdet", lambda: nx.logdet(t(np.eye(3) * 2)), lambda: np.log(8)),
    ("pdist", lambda: nx.pdist(t(FLOATS)), lambda: np.linalg.norm((FLOATS[:, None] - FLOATS), axis=-1)[np.triu_indices(4, 1)]),
    (
        "cumulative_trapezoid",
        lambda: nx.cumulative_trapezoid(t(FLOATS), dx=2.0),
        lambda: (FLOATS[:, 1:] + FLOATS[:, :-1]).cumsum(1),
    ),
    (
        "renorm",
        lambda: nx.renorm(t(FLOATS), 2, 0, 1.0),
        lambda: FLOATS / np.maximum(np.linalg.norm(FLOATS, axis=1, keepdims=True), 1),
    ),
]


def put(x: Any, places: Any, values: Any) -> Any:
    x = x.copy()
    np.put(x, places, values)
    return x


@pytest.mark.parametrize(("name", "ours", "expected"), CASES, ids=[case[0] for case in CASES])
def test_agrees_with_numpy(name: str, ours: Callable[[], nx.Tensor], expected: Callable[[], Any]) -> None:
    np.testing.assert_allclose(ours().numpy(), expected(), rtol=2e-5, atol=1e-6)


def test_mantissas_and_exponents() -> None:
    numbers = np.array([0.0, 1.0, -0.75, 3e38, 2.0**-126, np.inf, 5.0], dtype=np.float32)
    mantissa, exponent = nx.frexp(t(numbers))
    expected = np.frexp(numbers)
    assert mantissa.tolist() == expected[0].tolist() and exponent[:5].tolist() == expected[1][:5].tolist()


def test_parts_of_copies() -> None:
    x = nx.zeros(2, 3)
    assert nx.select_scatter(x, nx.ones(3), 0, 1).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert nx.slice_scatter(x, nx.ones(2, 1), 1, 1, 2).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert nx.diagonal_scatter(x, nx.ones(2)).tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        nx.select_scatter(x, nx.ones(2), 0, 1)
    assert nx.as_strided(nx.arange(6), (2, 2), (1, 2), 1).tolist() == [[1, 3], [2, 4]]
    assert nx.index_reduce(nx.ones(2), 0, nx.tensor([0, 0]), nx.tensor([3.0, 5.0]), "amax").tolist() == [5, 1]


def test_runs() -> None:
    values, inverse, counts = nx.unique_consecutive(nx.tensor([1, 1, 2, 1]), return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 1] and inverse.tolist() == [0, 0, 1, 2] and counts.tolist() == [2, 1, 1]
    assert nx.unique_consecutive(nx.tensor([[1, 1], [1, 1], [2, 1]]), dim=0).tolist() == [[1, 1], [2, 1]]


def test_variants_in_place() -> None:
    x = nx.tensor([1.0, -2.0])
    assert x.cos_() is x and x.tolist() == pytest.approx(np.cos([1.0, -2.0]).tolist())
    assert nx.tensor([3, 5]).eq_(3).tolist() == [1, 0]
    assert nx.zeros(3, 2).fill_diagonal_(2.0).tolist() == [[2, 0], [0, 2], [0, 0]]
    drawn = nx.zeros(2000).geometric_(0.25)
    assert drawn.min().item() == 1.0 and abs(drawn.mean().item() - 4.0) < 0.4
    assert abs(nx.zeros(2001).cauchy_(3.0).median().item() - 3.0) < 0.3
    assert abs(nx.zeros(2000).log_normal_(0.0, 0.5).log().std().item() - 0.5) < 0.05


def test_combinations() -> None:
    assert nx.combinations(nx.tensor([1, 2]), with_replacement=True).tolist() == [[1, 1], [1, 2], [2, 2]]
    assert nx.cartesian_prod(nx.tensor([1, 2]), nx.tensor([3])).tolist() == [[1, 3], [2, 3]]
    assert nx.block_diag(nx.ones(1, 2), nx.tensor(5.0)).tolist() == [[1, 1, 0], [0, 0, 5]]
    assert nx.sum_to_size(nx.ones(2, 3, 4), 3, 1).tolist() == [[8], [8], [8]]
    with pytest.raises(ValueError, match="cannot be divided into 2 equal parts"):
        nx.vsplit(nx.ones(3, 1), 2)
