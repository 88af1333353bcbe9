"""Distributions, divergences and transforms against PyTorch's numbers (make_golden_distributions.py)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import neurenix as nx
import pytest
from neurenix import distributions as D

GOLDEN = json.loads((Path(__file__).parent / "golden" / "distributions.json").read_text())
TOLERANCE = {"float64": 1e-10, "float32": 2e-5}
DTYPES = list(TOLERANCE)
#: Where PyTorch's numbers are wrong: its Kumaraswamy.mode is NaN, and the gradient of a concentration of 0 is 0.
WRONG = {("Kumaraswamy", "mode"), ("GeneralizedPareto", "gradient of concentration")}
#: PyTorch's Bessel functions for this class have relative errors of up to 1e-7.
COARSE = {"VonMises": 100.0}


def tensor(given: Any, dtype: str) -> Any:
    if not isinstance(given, dict):
        return given
    return nx.tensor(given["data"], dtype=dtype).reshape(*given["shape"])


def same(got: Any, expected: dict[str, Any], dtype: str, what: str, factor: float = 1.0) -> None:
    assert list(got.shape) == expected["shape"], what
    tolerance = TOLERANCE[dtype] * factor
    for a, b in zip(got.to("float64").flatten().tolist(), expected["data"]):
        if math.isnan(b) or math.isinf(b):
            assert a == b or (math.isnan(a) and math.isnan(b)), (what, a, b)
        else:
            assert abs(a - b) <= tolerance * max(1.0, abs(b)), (what, a, b)


def distribution(row: dict[str, Any], dtype: str, **more: Any) -> tuple[Any, dict[str, Any]]:
    parameters = {key: tensor(each, dtype) for key, each in row["parameters"].items()}
    return getattr(D, row["name"])(**parameters, **more), parameters


def name_of(row: dict[str, Any]) -> str:
    return "-".join([row["name"], *row["parameters"]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", GOLDEN["distributions"], ids=name_of)
def test_densities(row: dict[str, Any], dtype: str) -> None:
    parameters = {key: tensor(each, dtype) for key, each in row["parameters"].items()}
    tensors = {key: each.requires_grad_() for key, each in parameters.items() if isinstance(each, nx.Tensor)}
    p = getattr(D, row["name"])(**parameters, validate_args=dtype == "float64")
    assert list(p.batch_shape) == row["batch_shape"] and list(p.event_shape) == row["event_shape"]
    assert p.has_rsample == row["has_rsample"]
    log_prob = p.log_prob(tensor(row["value"], dtype))
    assert log_prob.dtype.name == dtype
    same(log_prob, row["log_prob"], dtype, "log_prob", 10 * COARSE.get(row["name"], 1))
    log_prob.sum().backward()
    for key, expected in row["gradients"].items():
        if (row["name"], what := f"gradient of {key}") not in WRONG:
            same(tensors[key].grad, expected, dtype, what, 50 * COARSE.get(row["name"], 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", GOLDEN["distributions"], ids=name_of)
def test_the_rest(row: dict[str, Any], dtype: str) -> None:
    p, _ = distribution(row, dtype, validate_args=False)
    functions = {
        "entropy": p.entropy,
        "perplexity": p.perplexity,
        "cdf": lambda: p.cdf(tensor(row["value"], dtype)),
        "icdf": lambda: p.icdf(nx.linspace(0.05, 0.95, 7, dtype=dtype).reshape(-1, *(1,) * len(p.batch_shape))),
        "support": p.enumerate_support,
        **{each: lambda each=each: getattr(p, each) for each in ("mean", "mode", "variance", "stddev")},
    }
    for what, function in functions.items():
        if (row["name"], what) in WRONG:
            continue
        if row[what] is None:
            with pytest.raises(NotImplementedError):
                function()
        else:
            same(function(), row[what], dtype, what, 20 * COARSE.get(row["name"], 1))


@pytest.mark.parametrize("row", GOLDEN["distributions"], ids=name_of)
def test_expand_and_sample_shapes(row: dict[str, Any]) -> None:
    p, _ = distribution(row, "float32", validate_args=False)
    wide = p.expand((5, *p.batch_shape))
    assert type(wide) is type(p) and wide.batch_shape == (5, *p.batch_shape) and wide.event_shape == p.event_shape
    samples = wide.sample((4,))
    assert samples.shape == (4, 5, *p.batch_shape, *p.event_shape)
    assert not samples.requires_grad and bool(samples.isfinite().all())
    log_prob = wide.log_prob(samples)
    assert log_prob.shape == (4, 5, *p.batch_shape)
    if row["name"] not in ("RelaxedOneHotCategorical", "Wishart"):
        assert bool(wide.support.check(samples).all())
    assert bool((log_prob.isnan() == False).all())  # noqa: E712
    repr(wide)


@pytest.mark.parametrize("row", GOLDEN["divergences"], ids=lambda row: f"{row['p']}-{row['q']}")
def test_divergences(row: dict[str, Any]) -> None:
    p, q = (
        getattr(D, row[which])(
            **{key: tensor(x, "float64") for key, x in GOLDEN["pairs"][row[which]][index].items()}, validate_args=False
        )
        for index, which in enumerate("pq")
    )
    if row["value"] is None:
        with pytest.raises(NotImplementedError):
            D.kl_divergence(p, q)
    else:
        same(D.kl_divergence(p, q), row["value"], "float64", "divergence")


@pytest.mark.parametrize("row", GOLDEN["transforms"], ids=lambda row: row["name"])
def test_transforms(row: dict[str, Any]) -> None:
    this = getattr(D.transforms, row["name"])(**row["arguments"])
    x = tensor(row["x"], "float64")
    y = this(x)
    same(y, row["y"], "float64", "y")
    assert [this.domain.event_dim, this.codomain.event_dim] == row["dims"] and this.bijective == row["bijective"]
    assert this.forward_shape(x.shape) == y.shape and this.inverse_shape(y.shape) == x.shape
    for what, function in (("back", lambda: this.inv(y)), ("slope", lambda: this.log_abs_det_jacobian(x, y))):
        if row[what] is None:
            with pytest.raises(NotImplementedError):
                function()
        else:
            same(function(), row[what], "float64", what)
    cached = this.with_cache()
    assert cached.inv(cached(x)) is x and cached.inv.inv is cached
    assert this == getattr(D.transforms, row["name"])(**row["arguments"])


def test_the_implicit_gradient_of_gamma_samples() -> None:
    from neurenix._incomplete import quantile_slope

    a, x = (tensor(GOLDEN["gamma"][key], "float64") for key in "ax")
    slope = quantile_slope(a, x.log()) * x
    # PyTorch's approximations have relative errors of up to 1e-3.
    for got, expected in zip(slope.tolist(), GOLDEN["gamma"]["slope"]["data"]):
        assert abs(got - expected) <= 1.5e-3 * expected


def test_shapes_are_sizes() -> None:
    normal = D.MultivariateNormal(nx.zeros(2, 3), nx.eye(3))
    independent = D.Independent(D.Normal(nx.zeros(2, 3), 1.0), 1)
    expanded = D.Normal(0.0, 1.0).expand((2,))
    for each in (normal, independent, expanded):
        assert isinstance(each.batch_shape, nx.Size) and isinstance(each.event_shape, nx.Size)
    assert normal.batch_shape.numel() == 2 and repr(normal.event_shape) == "torch.Size([3])"
    assert isinstance(D.Categorical(nx.ones(2, 3)).param_shape, nx.Size)


def test_the_divergence_of_wishart_distributions() -> None:
    scales = [nx.tensor(s, dtype="float64") for s in ([[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.2], [0.2, 3.0]])]
    p, q = D.Wishart(4.0, scales[0]), D.Wishart(5.0, scales[1])
    assert D.kl_divergence(p, q).item() == pytest.approx(2.0843562491656034, rel=1e-12)
    batched = D.Wishart(nx.tensor([4.0, 5.0], dtype="float64"), nx.stack(scales))
    # PyTorch adds parts of the batch's divergences together.
    assert D.kl_divergence(batched, q).tolist() == pytest.approx([2.0843562491656034, 0.0], rel=1e-12, abs=1e-12)
