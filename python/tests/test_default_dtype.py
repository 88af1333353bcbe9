"""``set_default_dtype``: the dtypes of results are those of PyTorch 2.15."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest
from neurenix import _engine
from neurenix.torch import nn, optim
from neurenix.torch.nn import functional as F

DEFAULT = """
torch.tensor(1.5) | torch.tensor([[1, 2.5]]) | torch.tensor([]) | torch.tensor([torch.tensor(1), 2.5])
torch.as_tensor([1.5]) | torch.Tensor(2, 3) | torch.zeros(2) | torch.ones(2, 3) | torch.empty(2)
torch.rand(2) | torch.randn(2) | torch.full((2,), 1.5) | torch.linspace(0, 1, 3) | torch.logspace(0, 1, 3)
torch.arange(0, 1, 0.5) | torch.range(0, 3) | torch.eye(3) | torch.scalar_tensor(1) | torch.hann_window(4)
torch.fft.fftfreq(4) | torch.fft.rfftfreq(4) | torch.normal(0.0, 1.0, (2,)) | i / 2 | i / i | i * 2.5
0.5 - i | 2.5 // i | i % 2.5 | i ** 0.5 | 2.0 ** i | u / 3 | b * 1.5 | b / b | i.sum() / 3 | i.sqrt()
torch.log10(i + 1) | torch.sigmoid(i) | torch.erfc(i) | torch.erfinv(i) | torch.lgamma(i)
torch.polygamma(1, i) | torch.special.ndtr(i) | torch.special.xlogy(2, i) | torch.special.zeta(i, 2)
torch.special.i1e(i) | torch.copysign(i, i) | torch.deg2rad(i) | torch.angle(i) | torch.where(b, 1.5, 2.5)
torch.where(b, i, 2.5) | torch.cov(i) | torch.logsumexp(i, 0) | torch.clamp(i, 0.5, 1.5) | torch.ldexp(i, i)
torch.div(i, 2.5, rounding_mode='trunc') | torch.result_type(i, 1.5) | nn.Linear(2, 3).weight
nn.Conv2d(1, 2, 3).weight | nn.Embedding(3, 2).weight | nn.LayerNorm(3).weight
nn.BatchNorm1d(3).running_mean | nn.LSTM(2, 3).weight_ih_l0 | nn.MultiheadAttention(4, 2).in_proj_weight
nn.PReLU().weight | nn.Transformer.generate_square_subsequent_mask(3)
torch.distributions.Normal(0.0, 1.0).sample() | torch.distributions.Bernoulli(0.5).mean
torch.get_default_dtype()
"""
"""Expressions of the default dtype: ``i`` has integers, ``u`` of 8 bits, ``b`` truth values, ``f``, ``h`` and ``d`` floats of
32, 16 and 64 bits, ``c`` complex numbers of 64."""

KEPT = {
    "int64": """
torch.tensor(1) | torch.randint(3, (2,)) | torch.full((2,), 1) | torch.arange(3) | i * 2
torch.div(i, 2, rounding_mode='trunc') | i.new_full((2,), 1)
""",
    "float32": """
torch.tensor(np.float32(1.5)) | torch.tensor(np.array([1.5], np.float32))
torch.from_numpy(np.zeros(2, np.float32)) | torch.FloatTensor([1.0]) | torch.where(b, f, 2.5)
torch.ldexp(f, i) | torch.result_type(f, 1.5) | f + 1.5 | f * i | f * b | f.softmax(0) | f.new_tensor([1.5])
F.interpolate(f.reshape(1, 1, 3), scale_factor=2.0) | F.gelu(f) | F.dropout(f, 0.5) | F.normalize(f, dim=0)
nn.Linear(2, 3, dtype=torch.float32).weight | torch.distributions.Normal(f, f.abs() + 1).sample()
""",
    "float64": """
torch.tensor(np.array([1.5])) | torch.float_power(i, 2) | d + 1.5
""",
    "bool": """
i > 0.5
""",
    "float16": """
h * 1.5
""",
}
"""Expressions of the same dtype whatever the default."""

COMPLEX = """
torch.tensor(1j) | torch.tensor([1, 2j]) | torch.full((2,), 1j) | i * 1j | torch.fft.fft(i)
torch.fft.rfft(i)
"""
"""Expressions of complex numbers of the default precision."""

COMPLEX64 = """
torch.tensor(np.array([1j], np.complex64)) | c * i | i + c | c / i | c * 1.5 | c + 1j | f * 1j | c * f
torch.fft.fft(f) | torch.promote_types(torch.int64, torch.complex64)
"""
"""Expressions of ``complex64`` whatever the default."""


def expressions(table: str) -> list[str]:
    return [part.strip() for row in table.strip().split("\n") for part in row.split(" | ")]


@pytest.fixture(autouse=True)
def pytorch_promotes() -> Iterator[None]:
    _engine.set_promotion("pytorch")
    yield
    nx.set_default_dtype(nx.float32)


def operands() -> dict[str, Any]:
    i = torch.tensor([0, 1, 2])
    f = torch.tensor([0.25, 1.0, 2.0], dtype=torch.float32)
    b = torch.tensor([True, False, True])
    c = torch.tensor([1, 2j, 3], dtype=torch.complex64)
    return {"i": i, "u": i.to(torch.uint8), "b": b, "f": f, "h": f.half(), "d": f.double(), "c": c}


def dtypes(table: str) -> dict[str, str]:
    names = {"torch": torch, "nn": nn, "F": F, "np": np, **operands()}
    found = {each: eval(each, names) for each in expressions(table)}  # noqa: S307
    return {each: getattr(value, "dtype", value).name for each, value in found.items()}


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_dtypes_are_those_of_pytorch(name: str) -> None:
    torch.set_default_dtype(getattr(torch, name))
    assert dtypes(DEFAULT) == dict.fromkeys(expressions(DEFAULT), name)
    for expected, table in KEPT.items():
        assert dtypes(table) == dict.fromkeys(expressions(table), expected)


@pytest.mark.parametrize("name, expected", [("float64", "complex128"), ("float32", "complex64"), ("float16", "complex64")])
def test_complex_numbers_have_parts_of_the_default_precision(name: str, expected: str) -> None:
    torch.set_default_dtype(getattr(torch, name))
    assert dtypes(COMPLEX) == dict.fromkeys(expressions(COMPLEX), expected)
    assert dtypes(COMPLEX64) == dict.fromkeys(expressions(COMPLEX64), "complex64")
    assert nx.zeros(2, dtype=complex).dtype.name == expected


def test_numbers_have_the_default_precision() -> None:
    torch.set_default_dtype(torch.float64)
    assert torch.tensor(0.1).item() == 0.1 and (torch.tensor([1]) / 3).item() == 1 / 3
    assert torch.special.erfcx(torch.tensor([3])).item() == pytest.approx(0.17900115118138998, rel=1e-14)
    assert torch.lgamma(torch.tensor([7])).item() == pytest.approx(6.579251212010101, rel=1e-14)
    assert torch.linspace(0, 1, 4)[1].item() == 1 / 3
    torch.set_default_dtype(torch.float16)
    assert (torch.tensor([1]) / 3).item() == 0.333251953125
    # Quotients of integers that are rounded towards zero do not depend on it.
    big = torch.tensor([2**53 + 1, -7, 7, -8])
    assert torch.div(big, torch.tensor([1, 2, -2, 2]), rounding_mode="trunc").tolist() == [2**53 + 1, -3, -3, -4]
    assert torch.div(big, 2, rounding_mode="trunc").tolist() == [2**52, -3, 3, -4]
    assert torch.ldexp(torch.tensor([2.0**-20]), torch.tensor([20])).item() == 1.0
    assert torch.ldexp(torch.tensor([1.0], dtype=torch.float64), torch.tensor([200])).item() == 2.0**200


def test_training_in_the_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = optim.NAdam(model.parameters(), lr=0.1)
    model(torch.rand(4, 2)).square().mean().backward()
    optimizer.step()
    kinds = {value.dtype.name for state in optimizer.state_dict()["state"].values() for value in state.values()}
    assert kinds == {"float64"} == {value.grad.dtype.name for value in model.parameters()}  # type: ignore[union-attr]
    # The step count is float64 for a default of float64 only.
    torch.set_default_dtype(torch.float16)
    weight = nn.Parameter(torch.ones(2))
    adam = optim.Adam([weight], lr=0.1)
    weight.sum().backward()
    adam.step()
    state = adam.state_dict()["state"][0]
    assert (state["step"].dtype, state["exp_avg"].dtype) == (nx.float32, nx.float16)


def test_a_compiled_function_sees_a_change() -> None:
    compiled = nx.compile(lambda x: x / 2)
    x = nx.tensor([1, 2])
    assert compiled(x).dtype == nx.float32
    nx.set_default_dtype(nx.float64)
    assert compiled(x).dtype == nx.float64


def test_what_can_be_the_default() -> None:
    assert nx.get_default_dtype() == nx.float32
    for dtype in (nx.int64, nx.bool, nx.complex64, nx.float8_e5m2):
        with pytest.raises(TypeError, match="set_default_dtype"):
            nx.set_default_dtype(dtype)
    for kind in (torch.DoubleTensor, "torch.DoubleTensor"):
        torch.set_default_tensor_type(kind)
        assert torch.get_default_dtype() == torch.float64 and nx.zeros(2, dtype=float).dtype == nx.float64
        torch.set_default_tensor_type(torch.FloatTensor)
    assert nx.get_default_dtype() == nx.float32
    with pytest.raises(TypeError, match="only floating-point types"):
        torch.set_default_tensor_type(torch.LongTensor)
    info = nx.__array_namespace_info__().default_dtypes()
    assert info["real floating"] == nx.float32 and info["complex floating"] == nx.complex64


@pytest.mark.parametrize("kind", ["torch.cuda.FloatTensor", torch.cuda.FloatTensor])
def test_a_default_type_has_a_device(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="cuda"):
            torch.set_default_tensor_type(kind)
        assert torch.get_default_dtype() == torch.float32 and torch.get_default_device().type == "cpu"
    current = ["cpu"]
    monkeypatch.setattr(nx, "set_default_device", current.append)
    monkeypatch.setattr(nx, "get_default_device", lambda: current[-1])
    torch.set_default_tensor_type(kind)
    assert current[-1] == "cuda"
    torch.set_default_tensor_type("torch.FloatTensor")
    assert current[-1] == "cpu"
    current.append("vulkan")
    torch.set_default_tensor_type(torch.FloatTensor)
    assert current[-1] == "vulkan"
