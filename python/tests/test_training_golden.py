"""Optimisers, schedules, parametrizations, pruning and rarer layers against PyTorch's results: see training_cases.py."""

from __future__ import annotations

import json
import pathlib
import warnings
from typing import Any

import neurenix as nx
import numpy as np
import pytest
import training_cases as cases

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "training.json").read_text())


@pytest.mark.parametrize("number", range(len(cases.OPTIMIZERS)), ids=lambda n: f"{cases.OPTIMIZERS[n][0]}-{n}")
def test_optimizers(number: int) -> None:
    name = cases.OPTIMIZERS[number][0]
    found, expected = cases.trained(nx, *cases.OPTIMIZERS[number]), GOLDEN["optimizers"][number]
    assert found["keys"] == [key for key in expected["keys"] if key != "step"]
    # PyTorch keeps a product of NAdam's momenta in float32.
    bound = 1e-8 if name == "NAdam" else 1e-11
    assert np.allclose(found["places"], expected["places"], rtol=bound, atol=bound)
    assert found["loss"] == pytest.approx(expected["loss"], rel=bound)


@pytest.mark.parametrize("case", GOLDEN["rates"])
def test_schedules(case: str) -> None:
    name, _, kind = case.rpartition(" ")
    assert np.allclose(cases.rates(nx, name, kind), GOLDEN["rates"][case], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules_that_resume(name: str) -> None:
    assert np.allclose(cases.rates(nx, name, "SGD", 5), GOLDEN["resumed"][name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("part", ["modules", "functions"])
def test_modules_and_functions(part: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, Any] = getattr(cases, part)(nx)
    assert found.keys() == GOLDEN[part].keys()
    for name, expected in GOLDEN[part].items():
        result = found[name]
        assert (result["shape"], result["state"]) == (expected["shape"], expected["state"]), name
        assert np.allclose(result["values"], expected["values"], rtol=2e-5, atol=1e-5), name
        assert len(result["gradients"]) == len(expected["gradients"]), name
        for ours, theirs in zip(result["gradients"], expected["gradients"], strict=True):
            assert len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=5e-5, atol=2e-5), name
