"""Calls in PyTorch's style: argument names, sizes, lists of tensors, pairs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neurenix as nx
import numpy as np
import pytest

A, B = nx.Tensor([[1.0, 4.0], [3.0, 2.0]]), nx.Tensor([[2.0, 3.0], [5.0, 1.0]])
V, W = nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 4.0])

CALLS: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: nx.add(input=A, other=B, alpha=2), lambda: A + 2 * B),
    (lambda: nx.add(nx.tensor([1]), 2, alpha=3), lambda: nx.tensor([7])),
    (lambda: nx.sub(A, B, alpha=2), lambda: A - 2 * B),
    (lambda: nx.mul(input=A, other=2), lambda: A * 2),
    (lambda: nx.div(input=A, other=B, rounding_mode="floor"), lambda: A // B),
    (lambda: nx.pow(input=A, exponent=2), lambda: A**2),
    (lambda: nx.maximum(input=A, other=B), lambda: A.maximum(B)),
    (lambda: nx.eq(input=A, other=B), lambda: A == B),
    (lambda: nx.logical_and(input=A, other=B), lambda: A.logical_and(B)),
    (lambda: nx.exp(input=A), lambda: A.exp()),
    (lambda: nx.clamp(input=A, min=2.0, max=3.0), lambda: A.clamp(2.0, 3.0)),
    (lambda: nx.round(input=A / 3, decimals=1), lambda: (A / 3).round(1)),
    (lambda: nx.where(condition=A > B, input=A, other=B), lambda: A.maximum(B)),
    (lambda: nx.where(A > B, input=A, other=B), lambda: A.maximum(B)),
    (lambda: nx.cat(tensors=(A, B), dim=1), lambda: nx.cat((A, B), 1)),
    (lambda: nx.concat(tensors=(A, B), dim=1), lambda: nx.cat((A, B), 1)),
    (lambda: nx.stack(tensors=(A, B), dim=0), lambda: nx.stack((A, B))),
    (lambda: nx.sum(input=A, dim=1), lambda: A.sum(1)),
    (lambda: nx.mean(input=A, dim=1, keepdim=True), lambda: A.mean(1, True)),
    (lambda: nx.var(input=A, dim=1), lambda: A.var(1)),
    (lambda: nx.argmax(input=A, dim=1), lambda: A.argmax(1)),
    (lambda: nx.amax(input=A, dim=1), lambda: A.amax(1)),
    (lambda: nx.cumsum(input=A, dim=1), lambda: A.cumsum(1)),
    (lambda: nx.matmul(input=A, other=B), lambda: A @ B),
    (lambda: nx.mm(input=A, mat2=B), lambda: A @ B),
    (lambda: nx.bmm(input=A[None], mat2=B[None]), lambda: (A @ B)[None]),
    (lambda: nx.dot(input=V, tensor=W), lambda: V.dot(W)),
    (lambda: nx.outer(input=V, vec2=W), lambda: V.outer(W)),
    (lambda: nx.tensordot(a=A, b=B, dims=1), lambda: A @ B),
    (lambda: nx.gather(input=A, dim=1, index=nx.tensor([[1], [0]])), lambda: nx.Tensor([[4.0], [3.0]])),
    (lambda: nx.take(V, index=nx.tensor([1, 1])), lambda: nx.Tensor([2.0, 2.0])),
    (lambda: nx.reshape(input=A, shape=(4,)), lambda: A.reshape(4)),
    (lambda: nx.permute(input=A, dims=(1, 0)), lambda: A.T),
    (lambda: nx.transpose(input=A, dim0=0, dim1=1), lambda: A.T),
    (lambda: nx.unsqueeze(input=A, dim=0), lambda: A[None]),
    (lambda: nx.roll(input=V, shifts=1), lambda: nx.Tensor([2.0, 1.0])),
    (lambda: nx.flip(input=V, dims=(0,)), lambda: nx.Tensor([2.0, 1.0])),
    (lambda: nx.tile(input=V, dims=(2,)), lambda: nx.Tensor([1.0, 2.0, 1.0, 2.0])),
    (lambda: nx.split(tensor=V, split_size_or_sections=1)[1], lambda: nx.Tensor([2.0])),
    (lambda: nx.searchsorted(sorted_sequence=V, input=W, right=True), lambda: nx.tensor([2, 2])),
    (lambda: nx.isclose(input=V, other=V), lambda: V == V),
    (lambda: nx.tril(input=A, diagonal=-1), lambda: A.tril(-1)),
    (lambda: nx.zeros_like(input=A), lambda: A * 0),
    (lambda: nx.trapezoid(y=V, x=W), lambda: nx.tensor(1.5)),
    (lambda: nx.softmax(input=V, dim=0), lambda: V.softmax(0)),
    (lambda: nx.sign(input=V), lambda: nx.Tensor([1.0, 1.0])),
]


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_pytorchs_names_of_arguments(call: Callable[[], nx.Tensor], expected: Callable[[], nx.Tensor]) -> None:
    found, wanted = call(), expected()
    assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()


def test_wrong_names_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        nx.sum(A, output=B)
    with pytest.raises(TypeError):
        nx.add(A, input=B)
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        nx.matmul(input=[1.0], other=V)


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_pairs_of_max_and_min(name: str) -> None:
    function, place = getattr(nx, name), {"max": [1, 0], "min": [0, 1]}[name]
    for found in (
        function(A, 1, keepdim=True),
        function(A, 1, True),
        function(A, dim=1, keepdim=True),
        function(input=A, dim=1, keepdim=True),
    ):
        assert found[1].tolist() == [[index] for index in place] == found.indices.tolist()
        assert found[0].shape == (2, 1)
    assert function(A, 1, keepdim=False)[1].tolist() == place == function(A, dim=1)[1].tolist()
    for one in (np.int64(1), np.uint8(1), np.array(1)):
        values, indices = function(A, dim=one)
        assert indices.tolist() == place and values.tolist() == function(A, dim=1).values.tolist()
        assert function(A, one, keepdim=True).indices.shape == (2, 1)
        assert function(A, axis=one).tolist() == values.tolist()
    # The argument names of the array API standard and of NumPy.
    assert function(A, axis=1, keepdims=True).shape == (2, 1) and function(A, axis=(0, 1)).shape == ()
    for found in (function(A, B), function(A, other=B), function(input=A, other=B)):
        assert found.tolist() == getattr(A, name + "imum")(B).tolist()


def test_whole_numbers_are_sizes() -> None:
    assert nx.Tensor(3).shape == (3,) and nx.Tensor(2, 3).shape == (2, 3) and nx.Tensor(0).shape == (0,)
    assert nx.Tensor(2, 3).dtype == nx.float32 and nx.Tensor(2, dtype="int64").dtype == nx.int64
    assert nx.Tensor(2, requires_grad=True).requires_grad and nx.Tensor().shape == (0,)
    assert nx.Tensor([3]).tolist() == [3] and nx.Tensor(data=3).item() == 3 and nx.tensor(3).shape == ()
    assert nx.Tensor(3.5).shape == () and nx.Tensor(True).shape == () and nx.Tensor(nx.tensor(3)).item() == 3
    assert nx.Tensor([1.0, 2.0], (2, 1)).shape == (2, 1) == nx.Tensor([1.0, 2.0], shape=(2, 1)).shape
    assert nx.Tensor(shape=(2, 3)).shape == (2, 3)
    for wrong in (lambda: nx.Tensor(-1), lambda: nx.Tensor(2, 3.0), lambda: nx.Tensor([1], [1], "int64")):
        with pytest.raises((TypeError, ValueError)):
            wrong()
    with pytest.raises(TypeError, match="given twice"):
        nx.Tensor([1.0], data=[1.0])


def test_lists_of_tensors() -> None:
    one = nx.ones(1)
    assert nx.tensor([one, one]).shape == (2,) and nx.tensor([[one], [nx.tensor(2.0)]]).shape == (2, 1)
    assert nx.tensor([nx.ones(1, 1, dtype="float64")] * 3).shape == (3,)
    mixed = nx.tensor([nx.tensor(3), 1.5])
    assert mixed.tolist() == [3.0, 1.5] and mixed.dtype == nx.float32
    assert nx.tensor([1, nx.tensor(3)]).dtype == nx.int64
    assert nx.tensor([[1, nx.tensor(2.0), 3], [one, 5, 6]]).tolist() == [[1.0, 2.0, 3.0], [1.0, 5.0, 6.0]]
    assert nx.tensor([1, nx.ones(1, dtype="float64")]).dtype == nx.float64
    assert nx.tensor([True, nx.tensor(7)]).tolist() == [1, 7]
    # Tensors with several elements, which PyTorch refuses.
    assert nx.tensor([nx.ones(2), nx.zeros(2)]).shape == (2, 2)
    assert nx.tensor([np.ones(1), np.ones(1)]).shape == (2, 1)
    with pytest.raises(ValueError, match="with tensors of several elements"):
        nx.tensor([1.0, nx.ones(2)])


def test_ranges_and_tuples_are_indices() -> None:
    x, y = nx.arange(12).reshape(3, 4), nx.tensor([3, 0, 1])
    assert x[range(3), y].tolist() == [3, 4, 9] == x[(0, 1, 2), y].tolist()
    assert x[range(1, 3)].tolist() == x[1:].tolist() and x[range(0)].shape == (0, 4)
    x[range(3), y] = 0
    assert x.sum().item() == 66 - 16


def test_a_list_of_modules_has_room_for_none() -> None:
    layers = nx.nn.ModuleList([None, nx.nn.Linear(2, 3)])
    layers.append(None)
    assert len(layers) == 3 and layers[0] is None and list(layers.state_dict()) == ["1.weight", "1.bias"]
    layers[1] = None
    assert "(0): None" in repr(layers) and not layers.parameters() and layers.eval() is layers
    with pytest.raises(TypeError, match="expected Module, got int"):
        layers.extend([None, 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected Module, got NoneType"):
        nx.nn.Sequential(nx.nn.ReLU(), None)


class Momentum(nx.optim.Optimizer):
    """Written as for PyTorch."""

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @nx.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                if "buffer" not in state:
                    state["buffer"] = nx.zeros_like(p)
                state["buffer"].mul_(group["momentum"]).add_(p.grad)
                p.add_(state["buffer"], alpha=-group["lr"])


def test_an_optimizer_of_ones_own() -> None:
    w, v, u = (nx.nn.Parameter([1.0, 2.0]) for _ in range(3))

    def steps(optimizer: nx.optim.Optimizer, p: nx.Tensor, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()

    ours, theirs = Momentum([w]), nx.optim.SGD([v], lr=0.1, momentum=0.9)
    schedule = nx.optim.lr_scheduler.StepLR(ours, 2, 0.5)
    steps(ours, w, 3)
    steps(theirs, v, 3)
    np.testing.assert_allclose(w.detach().numpy(), v.detach().numpy(), rtol=1e-6)
    state = ours.state_dict()
    assert state["state"][0]["count"] == 3 and state["param_groups"][0]["params"] == [0]
    with nx.no_grad():
        u.copy_(w)
    other = Momentum([u])
    other.load_state_dict(state)
    steps(other, u, 1)
    steps(ours, w, 1)
    assert u.tolist() == w.tolist() and other.state[u]["count"] == 4
    schedule.step()
    schedule.step()
    assert ours.param_groups[0]["lr"] == 0.05
    ours.add_param_group({"params": [v], "lr": 1.0})
    assert len(ours.param_groups) == 2 and list(ours.state) == [w]
    with pytest.raises(NotImplementedError, match=r"Optimizer does not implement step\(\)"):
        nx.optim.Optimizer([w], {"lr": 0.1}).step()


def test_arrays_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "arrays.safetensors"
    mean, step = np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::2], np.float32(0.5)
    nx.save({"mean": mean, "step": step, "count": np.int64(3), "w": nx.ones(2)}, path)
    back = nx.load(path)
    assert isinstance(back["mean"], np.ndarray) and back["mean"].dtype == np.float64
    assert back["mean"].tolist() == mean.tolist() and back["step"] == 0.5 and back["count"] == 3
    back["mean"][0, 0] = 1.0  # The loaded array does not share memory.
    with pytest.raises(TypeError, match="cannot be converted to a tensor"):
        nx.save({"names": np.array(["a"])}, path)


def test_an_unknown_type_leaves_the_other_tensors_readable(tmp_path: Path) -> None:
    path = tmp_path / "mixed.safetensors"
    header = (
        b'{"scale":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},'
        b'"w":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}'
    )
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes([1, 2, 3, 4]))
    with pytest.warns(UserWarning, match=r"skipping tensors of unsupported types: scale \(F8_E8M0\)"):
        assert {name: value.tolist() for name, value in nx.load(path).items()} == {"w": [3, 4]}


@pytest.mark.parametrize("start", [b"PK\x03\x04\0\0\x08\x08", b"\x80\x02\x8a\nl\xfc\x9cF"])
def test_a_broken_file_of_pytorch_is_named(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(start + bytes(100))
    with pytest.raises(pickle.UnpicklingError, match=r"model\.pt"):
        nx.load(path)
