"""How tensors are printed with other settings. The expected texts are PyTorch's, with one space before ``...``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import neurenix as nx
import neurenix._printing
import numpy as np
import pytest

X = nx.tensor([[1.12345, -2.5, 1e-3], [100.0, 0.25, 3.0]])
SEVENTHS = nx.arange(30) / 7


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    nx.set_printoptions(profile="default")


@pytest.mark.parametrize(
    ("options", "tensor", "text"),
    [
        ({"precision": 2}, X, "tensor([[ 1.12e+00, -2.50e+00,  1.00e-03],\n        [ 1.00e+02,  2.50e-01,  3.00e+00]])"),
        ({"precision": 2}, nx.tensor(1 / 3), "tensor(0.33)"),
        ({"precision": 0}, X[0, :2], "tensor([ 1, -2])"),
        ({"precision": 6}, X[:, 1].double(), "tensor([-2.500000,  0.250000], dtype=float64)"),
        ({"sci_mode": True}, nx.tensor([1.0, 2.0]), "tensor([1.0000e+00, 2.0000e+00])"),
        ({"sci_mode": False}, nx.tensor([1e-6, 1e5 + 0.5]), "tensor([     0.0000, 100000.5000])"),
        ({"sci_mode": False}, nx.tensor([1e10]), "tensor([10000000000.])"),
        ({"profile": "short"}, nx.arange(2000), "tensor([   0,    1, ..., 1998, 1999])"),
        ({"profile": "short", "precision": 1}, SEVENTHS[:3], "tensor([0.0, 0.1, 0.3])"),
        ({"threshold": 5, "edgeitems": 1}, SEVENTHS, "tensor([0.0000, ..., 4.1429])"),
        (
            {"threshold": 5, "edgeitems": 1},
            nx.arange(24).reshape(2, 3, 4),
            "tensor([[[ 0, ...,  3],\n         ...,\n         [ 8, ..., 11]],\n\n"
            "        [[12, ..., 15],\n         ...,\n         [20, ..., 23]]])",
        ),
        (
            {"linewidth": 40},
            SEVENTHS[:9],
            "tensor([0.0000, 0.1429, 0.2857, 0.4286,\n        0.5714, 0.7143, 0.8571, 1.0000,\n        1.1429])",
        ),
        ({"threshold": 0, "edgeitems": 0}, SEVENTHS, "tensor([...])"),
        ({"precision": 2}, nx.tensor([math.nan, math.inf, -1.5]), "tensor([  nan,   inf, -1.50])"),
        ({"precision": 2}, nx.zeros(2, 0), "tensor([], shape=(2, 0))"),
        ({"precision": 2}, nx.tensor([True, False]), "tensor([ True, False])"),
        ({"precision": 2}, nx.tensor([1 / 3 + 2j, -1j / 3]), "tensor([ 0.33+2.00j, -0.00-0.33j], dtype=complex64)"),
    ],
)
def test_settings(options: dict[str, object], tensor: nx.Tensor, text: str) -> None:
    nx.set_printoptions(**options)  # type: ignore[arg-type]
    assert repr(tensor) == str(tensor) == text and (f"{tensor}" == text or tensor.ndim == 0)


def test_all_elements_of_a_full_profile() -> None:
    nx.set_printoptions(profile="full")
    text = repr(nx.arange(1010))
    assert "..." not in text and text.splitlines()[-1] == "        1008, 1009])"
    assert text.splitlines()[1] == f"        {', '.join(f'{i:4}' for i in range(12, 24))},"


def test_the_first_settings_print_as_the_engine_does() -> None:
    """The engine's text is the expectation, for values of all sizes and shapes, with and without a summary."""
    numbers = np.random.default_rng(0)
    for case in range(200):
        shape = tuple(numbers.integers(0, 9, numbers.integers(0, 5)))
        values = numbers.normal(size=shape) * 10.0 ** numbers.integers(-6, 9)
        values = values * 10.0 ** numbers.integers(-4, 1, size=shape) if case % 2 else np.round(values)
        dtype = ["float32", "float64", "float16", "bfloat16", "int64", "bool"][case // 2 % 6]
        tensor = nx.asarray(values.astype("int64") if dtype == "int64" else values, dtype=dtype)
        assert repr(tensor).startswith(f"tensor({neurenix._printing._values(tensor)}")


def test_a_context_restores_the_settings() -> None:
    before = nx.get_printoptions()
    assert before == {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
    with pytest.raises(KeyError), nx.printoptions(precision=1, sci_mode=True):
        assert repr(X[0, 0]) == "tensor(1.1e+00)"
        raise KeyError
    assert nx.get_printoptions() == before
    nx.set_printoptions(sci_mode=True)
    nx.set_printoptions(precision=3)
    assert nx.get_printoptions()["sci_mode"] is None, "as in PyTorch, sci_mode is not kept"


def test_parameters_and_refusals() -> None:
    nx.set_printoptions(precision=1)
    assert repr(nx.nn.Parameter(X[0, :2])) == "Parameter containing:\ntensor([ 1.1, -2.5], requires_grad=True)"
    for refused in ({"precision": -1}, {"threshold": math.nan}, {"edgeitems": 1.5}, {"profile": "long"}):
        with pytest.raises(ValueError, match="set_printoptions"):
            nx.set_printoptions(**refused)  # type: ignore[arg-type]
