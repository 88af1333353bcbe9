"""`Size`, and the dtype of results of a tensor with dimensions and one without."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import neurenix as nx
import pytest
from neurenix import _engine


def test_shapes_are_tuples_with_a_number_of_elements() -> None:
    shape = nx.zeros(2, 3).shape
    assert isinstance(shape, tuple) and isinstance(shape, nx.Size) and shape == (2, 3) and hash(shape) == hash((2, 3))
    assert repr(shape) == "torch.Size([2, 3])" == repr(nx.zeros(2, 3).size()) and shape.numel() == 6
    assert nx.zeros(()).shape.numel() == 1 and repr(nx.zeros(()).shape) == "torch.Size([])"
    for kept in (shape[:1], shape + (4,), (4,) + shape, shape * 2, 2 * shape, nx.Size([5])):
        assert type(kept) is nx.Size
    assert shape[1] == 3 and shape[-2:] == shape and (1,) + shape[1:] == (1, 3)
    assert pickle.loads(pickle.dumps(shape)) == shape and nx.zeros(shape).shape == nx.zeros(shape[:1] + shape[1:]).shape
    with pytest.raises(TypeError):
        [1] + shape
    for count in range(200):
        # More shapes than are remembered.
        assert nx.zeros(count, 0).shape == (count, 0)
    assert nx.zeros(2, 3).size == 6 and nx.zeros(2, 3).size(1) == 3


def test_parts_are_tuples() -> None:
    x = nx.arange(6)
    for parts in (x.split(2), x.split([1, 5]), x.chunk(2), x.unbind(), nx.split(x, 3), nx.chunk(x, 2), nx.unbind(x)):
        assert type(parts) is tuple


NAMES = {
    "b1": nx.bool, "u1": nx.uint8, "i1": nx.int8, "i2": nx.int16, "i4": nx.int32, "i8": nx.int64, "f2": nx.float16,
    "bf": nx.bfloat16, "f4": nx.float32, "f8": nx.float64,
}  # fmt: skip

PYTORCH = {
    "b1": "b1 u1 i1 i2 i4 i8 f2 bf f4 f8",
    "u1": "u1 u1 u1 u1 u1 u1 f2 bf f4 f8",
    "i1": "i1 i1 i1 i1 i1 i1 f2 bf f4 f8",
    "i2": "i2 i2 i2 i2 i2 i2 f2 bf f4 f8",
    "i4": "i4 i4 i4 i4 i4 i4 f2 bf f4 f8",
    "i8": "i8 i8 i8 i8 i8 i8 f2 bf f4 f8",
    "f2": "f2 f2 f2 f2 f2 f2 f2 f2 f2 f2",
    "bf": "bf bf bf bf bf bf bf bf bf bf",
    "f4": "f4 f4 f4 f4 f4 f4 f4 f4 f4 f4",
    "f8": "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8",
}
"""The results of PyTorch 2.15: for each dtype of a tensor with dimensions, those with each dtype of one without."""


@pytest.fixture
def like_pytorch() -> Iterator[None]:
    _engine.set_promotion("pytorch")
    try:
        yield
    finally:
        _engine.set_promotion("standard")


@pytest.mark.parametrize("name", PYTORCH)
def test_a_tensor_without_dimensions_promotes_as_in_pytorch(name: str, like_pytorch: None) -> None:
    assert _engine.get_promotion() == "pytorch"
    for other, expected in zip(NAMES, PYTORCH[name].split(), strict=True):
        x, y = nx.ones(2, dtype=NAMES[name]), nx.ones((), dtype=NAMES[other])
        condition = nx.tensor([True, False])
        results = [x + y, y * x, x.add(y), x.maximum(y), nx.where(condition, x, y), nx.where(condition, y, x)]
        assert {result.dtype for result in results} == {NAMES[expected]}, other
        assert (x == y).tolist() == [True, True]
        if expected == name and name != "b1":
            x += y
            x.mul_(y)
            assert x.dtype == NAMES[name]
    assert (nx.ones(2, dtype=nx.float32) + nx.ones(2, dtype=nx.float64)).dtype == nx.float64
    assert (nx.ones((), dtype=nx.float32) + nx.ones((), dtype=nx.float64)).dtype == nx.float64


def test_the_standard_treats_all_tensors_alike() -> None:
    assert _engine.get_promotion() == "standard"
    x = nx.ones(2)
    y = nx.ones((), dtype=nx.float64)
    assert (x + y).dtype == nx.float64 == nx.where(x > 0, x, y).dtype
    with pytest.raises(ValueError, match="unknown promotion 'numpy'|unknown promotion \"numpy\""):
        _engine.set_promotion("numpy")
