"""Special functions against mpmath's numbers (make_golden_special.py), and at the ends of their ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neurenix as nx
import pytest

S = nx.special
GOLDEN = json.loads((Path(__file__).parent / "golden" / "special.json").read_text())
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def function(name: str) -> Callable[[Any], Any]:
    for prefix, of in (("polygamma", lambda n: lambda x: S.polygamma(int(n), x)),
                       ("gammaincc", lambda a: lambda x: S.gammaincc(float(a), x)),
                       ("gammainc", lambda a: lambda x: S.gammainc(float(a), x))):  # fmt: skip
        if name.startswith(prefix):
            return of(name.removeprefix(prefix))
    if name == "zeta":
        return lambda x: S.zeta(2.5, x)
    if name == "xlog1py":
        return lambda x: S.xlog1py(x, x)
    return getattr(S, name) if hasattr(S, name) else getattr(nx, name)


#: Units in the last place, relative to ``scale``. The density at a quantile x has x^2 times the quantile's relative error.
ULPS = {"gammainc": 64.0, "gammaincc": 64.0, "ndtri": 32.0}


def scale(name: str, order: int, x: float, value: float) -> float:
    if x < 0 and name in ("lgamma", "digamma", "polygamma1", "polygamma2"):
        # Terms of this size cancel.
        n = order + {"lgamma": -1, "digamma": 0, "polygamma1": 1, "polygamma2": 2}[name]
        return max(abs(value), math.factorial(max(n, 0)) * 4.0 ** (n + 1) * (5.0 if n < 0 else 1.0))
    if order == 0:
        return abs(value)
    # The derivatives are formulas of several terms, which cancel.
    terms = {
        "i1": (0.05, 1 / abs(x)),
        "i1e": (0.05, 1 / abs(x)),
        "erfcx": (1.0, 2 * abs(x)),
        "log_ndtr": (0.0, x * x),
    }.get(name, (0.05, 0.5))
    return max(abs(value), terms[order - 1])


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["name"])
def test_values_and_derivatives(row: dict[str, Any], dtype: str) -> None:
    name = row["name"]
    x = nx.tensor(row["x"], dtype=dtype, requires_grad=True)
    y = function(name)(x)
    assert y.dtype.name == dtype
    for order, values in enumerate(row["values"]):
        ulps = ULPS.get(name.rstrip("0123456789."), 8.0) * (1.0, 4.0, 16.0)[order]
        for at, got, value in zip(row["x"], y.to("float64").tolist(), values):
            if dtype == "float32" and abs(value) > 1e36 or abs(value) < 1e-36:
                continue
            error = abs(got - value) / scale(name, order, at, value) / EPSILON[dtype]
            assert error < ulps, (order, at, got, value, error)
        if order < 2:
            y = nx.grad(y.sum(), [x], create_graph=True)[0]


INF, NAN = math.inf, math.nan
ENDS = {
    "lgamma": ([INF, -INF, NAN, 0.0, -0.0, -1.0, -2.0, 1e-40, 3e38, -1e30], [INF, INF, NAN, INF, INF, INF, INF, 92.10340118, INF, INF]),
    "digamma": ([INF, NAN, 0.0, -0.0, -1.0, 3e38], [INF, NAN, -INF, INF, NAN, 88.5968475]),
    "i0": ([0.0, 88.0, NAN], [1.0, 7.034018e36, NAN]),
    "i0e": ([INF, -INF, NAN, 0.0], [0.0, 0.0, NAN, 1.0]),
    "i1e": ([INF, NAN, 0.0, -0.0], [0.0, NAN, 0.0, -0.0]),
    "erfcx": ([INF, -INF, NAN, 1e38], [0.0, INF, NAN, 5.6418958e-39]),
    "ndtr": ([INF, -INF, NAN], [1.0, 0.0, NAN]),
    "log_ndtr": ([INF, -INF, NAN, -1e10], [0.0, -INF, NAN, -5e19]),
    "ndtri": ([0.0, 1.0, NAN, -0.1, 1.1], [-INF, INF, NAN, NAN, NAN]),
    "logit": ([0.0, 1.0, NAN, -0.1, 1.1], [-INF, INF, NAN, NAN, NAN]),
    "entr": ([0.0, -1.0, NAN, INF], [0.0, -INF, NAN, -INF]),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str) -> None:
    points, values = ENDS[name]
    for x, got, value in zip(points, function(name)(nx.tensor(points)).tolist(), values):
        assert (math.isnan(got) and math.isnan(value)) or got == value or abs(got - value) <= 2e-5 * abs(value), (x, got, value)


def test_poles_of_polygamma_and_zeta() -> None:
    assert nx.polygamma(1, nx.tensor([0.0, -1.0])).tolist() == [INF, INF]
    assert nx.polygamma(2, nx.tensor([0.0, -3.0])).tolist() == [-INF, -INF]
    values = S.zeta(nx.tensor([1.0, 0.5, 2.0, 2.0]), nx.tensor([1.0, 1.0, 0.0, -0.5])).tolist()
    assert values[0] == INF and math.isnan(values[1]) and values[2] == INF and math.isnan(values[3])


def test_ends_of_the_incomplete_gamma_functions() -> None:
    a = nx.tensor([1.0, 1.0, 0.0, 0.0, -1.0, 2.0, NAN, INF])
    x = nx.tensor([0.0, INF, 1.0, 0.0, 1.0, -1.0, 1.0, 1.0])
    lower, upper = S.gammainc(a, x).tolist(), S.gammaincc(a, x).tolist()
    assert lower[:3] == [0.0, 1.0, 1.0] and upper[:3] == [1.0, 0.0, 0.0]
    assert all(math.isnan(each) for each in lower[3:7] + upper[3:7])
    assert lower[7] == 0.0 and upper[7] == 1.0


# By mpmath: both functions at a and x = a + z sqrt(a), rounded to the dtype.
LARGE = [
    ("float32", 1e7, 1e7, 0.5000420522, 0.4999579478),
    ("float32", 1e15, 1e15, 0.5, 0.5),
    ("float32", 1e37, 1e37, 0.5, 0.5),
    ("float64", 1e30, 1e30, 0.5000000000000001, 0.4999999999999999),
    ("float64", 1e30, 1.0000000000000003e30, 0.6108269408757807, 0.38917305912421934),
    ("float64", 1e30, 9.999999999999961e29, 4.063061438635577e-05, 0.9999593693856136),
    ("float64", 1e15, 999999747017787.1, 6.220926925016052e-16, 1.0),
]


@pytest.mark.parametrize(("dtype", "a", "x", "lower", "upper"), LARGE)
def test_large_incomplete_gamma_functions(dtype: str, a: float, x: float, lower: float, upper: float) -> None:
    shape, limit = nx.tensor(a, dtype=dtype), nx.tensor(x, dtype=dtype)
    precision = 64 * nx.finfo(dtype).eps
    assert S.gammainc(shape, limit).item() == pytest.approx(lower, rel=precision)
    assert S.gammaincc(shape, limit).item() == pytest.approx(upper, rel=precision)


def test_higher_polygamma_functions_of_negative_numbers() -> None:
    # By mpmath, at n = 10 and 20.
    x = [-0.5, -1.5, -2.75]
    tenth = [-42108.85876897549, -156.229596593233, -15220204740670.25]
    twentieth = [-487772949462609.9, -10709198259.124132, -1.0700016187896298e+31]
    for dtype in ("float32", "float64"):
        precision = 16 * nx.finfo(dtype).eps
        assert nx.polygamma(10, nx.tensor(x, dtype=dtype)).tolist() == pytest.approx(tenth, rel=precision)
        assert nx.polygamma(20, nx.tensor(x, dtype=dtype)).tolist() == pytest.approx(twentieth, rel=precision)


def test_the_gradient_of_the_shape_of_gammainc() -> None:
    a = nx.tensor([0.3, 2.0, 5.0, 12.0, 40.0], dtype="float64", requires_grad=True)
    x = nx.tensor([0.2, 3.0, 4.5, 20.0, 38.0], dtype="float64", requires_grad=True)

    def first(a: Any, x: Any) -> Any:
        return nx.grad(S.gammainc(a, x).sum(), [a], create_graph=True)[0]

    def apart(f: Callable[[Any, Any], Any], da: float, dx: float) -> list[float]:
        high, low = (f((a + s * da).detach().requires_grad_(), (x + s * dx).detach().requires_grad_()) for s in (1, -1))
        return ((high - low) / (2 * (da + dx))).tolist()

    h = 1e-5
    assert first(a, x).tolist() == pytest.approx(apart(S.gammainc, h, 0), rel=1e-7)
    second = nx.grad(first(a, x).sum(), [a, x])
    assert second[0].tolist() == pytest.approx(apart(first, h, 0), rel=1e-7)
    assert second[1].tolist() == pytest.approx(apart(first, 0, h), rel=1e-6)


def test_16_bits_integers_and_shapes() -> None:
    assert nx.lgamma(nx.tensor([5], dtype="int64")).dtype.name == "float32"
    half = nx.tensor([0.5, 3.0], dtype="bfloat16")
    assert nx.lgamma(half).dtype.name == "bfloat16" and S.gammainc(half, half).dtype.name == "bfloat16"
    assert nx.lgamma(nx.zeros(0)).shape == (0,)
    assert S.gammainc(nx.ones(3, 1), nx.ones(4)).shape == (3, 4)
    x = nx.rand(4, 6)
    assert nx.allclose(x.T.lgamma(), nx.lgamma(x).T)


def test_identities() -> None:
    x = nx.linspace(0.6, 20.0, 50, dtype="float64")
    assert nx.allclose(nx.mvlgamma(x + 2, 3), 1.5 * math.log(math.pi) + sum((x + 2 - j / 2).lgamma() for j in range(3)))
    assert nx.allclose(x.polygamma(1), S.zeta(2.0, x), rtol=1e-14)
    assert nx.allclose(S.gammainc(x, x) + S.gammaincc(x, x), nx.ones(50, dtype="float64"), rtol=1e-14)
    assert nx.allclose(S.ndtri(S.ndtr(-x / 2)), -x / 2, rtol=1e-12)
    assert S.logsumexp(nx.tensor([0.0, 0.0]), 0).item() == pytest.approx(math.log(2))
    assert S.softmax(nx.tensor([0, 0]), 0, dtype="float64").tolist() == [0.5, 0.5]
    assert S.round(nx.tensor(1.25), decimals=1).item() == pytest.approx(1.2)


def test_compiled() -> None:
    compiled = nx.compile(lambda x: nx.grad(lambda x: nx.lgamma(x).sum())(x))
    for seed in range(3):
        x = nx.rand(5, generator=nx.Generator(seed)) + 0.5
        assert nx.allclose(compiled(x), nx.digamma(x), atol=1e-6)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="expected a tensor"):
        nx.i0(1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative"):
        nx.polygamma(-1, nx.ones(2))
    with pytest.raises(TypeError, match="integer"):
        nx.polygamma(1.0, nx.ones(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one tensor"):
        S.gammainc(1.0, 2.0)
    with pytest.raises(ValueError, match="at least 1"):
        nx.mvlgamma(nx.ones(2), 0)
