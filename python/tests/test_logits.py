"""Distributions of binary outcomes at logits where formulas of parts have kinks or overflow, as PyTorch 2.15."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import neurenix as nx
import pytest
from neurenix import distributions as D

LOGITS = [0.0, -0.0, 3.0, -40.0, 800.0]
TEMPERATURE = nx.tensor(1.0, dtype="float64")
CASES: dict[str, tuple[Callable[[Any], Any], list[float], list[float]]] = {
    "bernoulli": (
        lambda x: D.Bernoulli(logits=x).log_prob(nx.tensor(0.0, dtype="float64")),
        [-math.log(2), -math.log(2), -3.048587351573742, 0.0, -800.0],
        [-0.5, -0.5, -0.9525741268224334, 0.0, -1.0],
    ),
    "bernoulli_entropy": (
        lambda x: D.Bernoulli(logits=x).entropy(),
        [math.log(2), math.log(2), 0.19086497110644196, 0.0, 0.0],
        [0.0, 0.0, -0.13552997919273602, 0.0, 0.0],
    ),
    "binomial": (
        lambda x: D.Binomial(3, logits=x).log_prob(nx.tensor(1.0, dtype="float64")),
        [-0.9808292530117261, -0.9808292530117261, -5.047149766053117, -38.90138771133189, -1598.9013877113318],
        [-0.5, -0.5, -1.8577223804672998, 1.0, -2.0],
    ),
    "binomial_entropy": (
        lambda x: D.Binomial(3, logits=x).entropy(),
        [1.2554823251787537, 1.2554823251787537, 0.4237000126952537, 0.0, 0.0],
        [0.0, 0.0, -0.2718179783017032, 0.0, 0.0],
    ),
    "continuous": (
        lambda x: D.ContinuousBernoulli(logits=x).log_prob(nx.tensor(1.0, dtype="float64")),
        [0.0, 0.0, 1.149681469610812, -36.41526920200024, 3.5847307979997636],
        [0.5, 0.5, 0.2809376368420772, 1.0, 0.0],
    ),
    "continuous_entropy": (
        lambda x: D.ContinuousBernoulli(logits=x).entropy(),
        [0.0, 0.0, -0.30686855908457966, -2.5847307979997716, -2.584730797999768],
        [0.0, 0.0, -0.16791031682715402, 0.0, 0.0],
    ),
    "relaxed": (
        lambda x: D.RelaxedBernoulli(TEMPERATURE, logits=x).log_prob(nx.tensor(0.3, dtype="float64")),
        # The last pair is the limit, where PyTorch has -inf and NaN.
        [0.0, 0.0, -2.3288758355541757, -37.59205439134813, -799.2866501121226],
        [-0.4, -0.4, -0.9582169089465027, 1.0, -1.0],
    ),
    "geometric_entropy": (
        # The fourth pair is the limit, 1 - x, where PyTorch has 0 and 40.
        lambda x: D.Geometric(logits=x).entropy(),
        [2 * math.log(2), 2 * math.log(2), 0.20036757847194872, 41.0, 0.0],
        [-math.log(2), -math.log(2), -0.1517802268982067, -1.0, 0.0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    formula, values, gradients = CASES[name]
    x = nx.tensor(LOGITS, dtype="float64", requires_grad=True)
    y = formula(x)
    y.sum().backward()
    assert y.tolist() == pytest.approx(values, rel=1e-12, abs=1e-14)
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx(gradients, rel=1e-12, abs=1e-14)


def test_gradients_at_one_half() -> None:
    p = nx.tensor(0.5, requires_grad=True)
    D.Bernoulli(p).log_prob(nx.tensor(1.0)).backward()
    assert p.grad is not None
    assert p.grad.item() == 2.0


def test_infinite_logits() -> None:
    bernoulli = D.Bernoulli(logits=nx.tensor([math.inf, -math.inf]), validate_args=False)
    assert bernoulli.log_prob(nx.tensor(0.0)).tolist()[0] == -math.inf
    assert bernoulli.log_prob(nx.tensor(1.0)).tolist()[1] == -math.inf
    relaxed = D.relaxed_bernoulli.LogitRelaxedBernoulli(nx.tensor(1.0), logits=nx.tensor(-math.inf), validate_args=False)
    assert relaxed.log_prob(nx.tensor(0.0)).item() == -math.inf


def test_the_divergence_is_precise_at_large_logits() -> None:
    p, q = (D.Bernoulli(logits=nx.tensor(x, dtype="float64")) for x in (25.0, 30.0))
    # q(0) - p(0) + p(0) log(p(0) / q(0)), up to the square of p(0).
    expected = math.exp(-30) - math.exp(-25) + math.exp(-25) * 5
    assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=1e-5)
