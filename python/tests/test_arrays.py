"""Conversion of other libraries' arrays to tensors, with each protocol."""

from __future__ import annotations

import tracemalloc
from typing import Any

import neurenix as nx
import numpy as np
import pytest


class Exchanged:
    """An array that supports only DLPack."""

    def __init__(self, tensor: nx.Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)


class Refusing(Exchanged):
    """Like PyTorch's GPU or bfloat16 tensors: conversion to NumPy raises TypeError."""

    @property
    def dtype(self) -> str:
        return "torch.bfloat16"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def detach(self) -> Refusing:
        return self

    def cpu(self) -> Refusing:
        return self

    def numpy(self) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")

    def __array__(self, *_arguments: Any, **_options: Any) -> Any:
        return self.numpy()


@pytest.mark.parametrize("kind", [Exchanged, Refusing])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int64", "bool"])
def test_tensors_come_by_dlpack(kind: type[Exchanged], dtype: str) -> None:
    x = nx.tensor([[1.0, 0.0], [3.0, -2.0]]).to(dtype)
    functions: list[Any] = [nx.Tensor, nx.tensor, nx.asarray]
    for function in functions:
        found = function(kind(x.T))
        assert found.dtype == x.dtype and found.tolist() == x.T.tolist()
        assert function(kind(x), dtype=nx.float64).tolist() == x.to("float64").tolist()


def test_numpys_arrays_are_refused_as_such() -> None:
    with pytest.raises(TypeError, match="an array of datetime64"):
        nx.tensor(np.ones(2, "datetime64[s]"))


def test_states_of_bfloat16_are_loaded() -> None:
    model = nx.nn.Linear(2, 1)
    weight, bias = nx.tensor([[1.5, -2.0]]).bfloat16(), nx.tensor([0.25]).bfloat16()
    model.load_state_dict({"weight": Refusing(weight), "bias": Refusing(bias)})
    assert model.weight.tolist() == [[1.5, -2.0]] and model.bias.tolist() == [0.25]
    assert model.weight.dtype == nx.float32


def test_states_of_pytorch_are_loaded() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        theirs, model = torch.nn.Linear(3, 2).to(dtype), nx.nn.Linear(3, 2)
        model.load_state_dict(theirs.state_dict())
        assert model.weight.tolist() == theirs.weight.float().tolist()


def test_an_array_comes_in_without_a_copy_of_pythons() -> None:
    array = np.arange(1 << 20, dtype=np.float64)
    array.flags.writeable = False
    tracemalloc.start()
    try:
        x = nx.tensor(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes // 4
    assert np.array_equal(x.numpy(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.array(5.0),
        np.zeros((0, 3), np.int32),
        np.arange(24.0).reshape(2, 3, 4)[:, ::-1, ::2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(6, dtype=">i4"),
        np.array([True, False]),
        np.frombuffer(b"\x01\x02\x03\x04", np.uint16),
    ],
    ids=["number", "empty", "view", "columns", "big endian", "bool", "buffer"],
)
def test_arrays_of_every_layout_come_in(array: Any) -> None:
    x = nx.tensor(array)
    assert x.shape == array.shape and x.dtype.name == array.dtype.name and x.tolist() == array.tolist()
