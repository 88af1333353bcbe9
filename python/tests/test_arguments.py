"""Invalid arguments: one class of error, with a message that says what is expected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest

F = nx.nn.functional
X = nx.ones(2, 2, device="cpu")
ARRAY = np.ones((2, 2), np.float32)
LIST = [[1.0, 2.0], [3.0, 4.0]]

CALLS: list[tuple[str, Callable[[Any], Any]]] = [
    ("mean", lambda x: nx.mean(x)),
    ("sum", lambda x: nx.sum(x, axis=0)),
    ("prod", lambda x: nx.prod(x, dim=0)),
    ("max", lambda x: nx.max(x)),
    ("all", lambda x: nx.all(x)),
    ("argmax", lambda x: nx.argmax(x)),
    ("std", lambda x: nx.std(x)),
    ("cumulative_sum", lambda x: nx.cumulative_sum(x, axis=0)),
    ("matmul", lambda x: nx.matmul(x, X)),
    ("matmul", lambda x: nx.matmul(X, x)),
    ("tensordot", lambda x: nx.tensordot(X, x)),
    ("dot", lambda x: nx.dot(x, x)),
    ("vecdot", lambda x: nx.vecdot(X, x)),
    ("einsum", lambda x: nx.einsum("ij,jk->ik", X, x)),
    ("reshape", lambda x: nx.reshape(x, (4,))),
    ("squeeze", lambda x: nx.squeeze(x)),
    ("matrix_transpose", lambda x: nx.matrix_transpose(x)),
    ("permute_dims", lambda x: nx.permute_dims(x, (1, 0))),
    ("concat", lambda x: nx.concat([x, x])),
    ("concat", lambda x: nx.concat([X, x], axis=None)),
    ("concatenate", lambda x: nx.concatenate([x, x])),
    ("cat", lambda x: nx.cat([X, x])),
    ("stack", lambda x: nx.stack([x, X])),
    ("sort", lambda x: nx.sort(x)),
    ("argsort", lambda x: nx.argsort(x)),
    ("topk", lambda x: nx.topk(x, 1)),
    ("take", lambda x: nx.take(x, nx.tensor([0]), axis=0)),
    ("gather", lambda x: nx.gather(X, 0, x)),
    ("where", lambda x: nx.where(x, 1.0, 0.0)),
    ("median", lambda x: nx.median(x)),
    ("broadcast_arrays", lambda x: nx.broadcast_arrays(X, x)),
    ("tril", lambda x: nx.tril(x)),
    ("zeros_like", lambda x: nx.zeros_like(x)),
    ("full_like", lambda x: nx.full_like(x, 2.0)),
    ("bernoulli", lambda x: nx.bernoulli(x)),
    ("multinomial", lambda x: nx.random.multinomial(x, 1)),
    ("det", lambda x: nx.linalg.det(x)),
    ("solve", lambda x: nx.linalg.solve(X, x)),
    ("matrix_power", lambda x: nx.linalg.matrix_power(x, 2)),
    ("relu", lambda x: F.relu(x)),
    ("softmax", lambda x: F.softmax(x, dim=0)),
    ("linear", lambda x: F.linear(x, X)),
    ("linear", lambda x: F.linear(X, x)),
    ("mse_loss", lambda x: F.mse_loss(X, x)),
    ("layer_norm", lambda x: F.layer_norm(x, (2,))),
    ("avg_pool1d", lambda x: F.avg_pool1d(x, 2)),
    ("dropout", lambda x: F.dropout(x)),
    ("Linear", lambda x: nx.nn.Linear(2, 2)(x)),
    ("ReLU", lambda x: nx.nn.ReLU()(x)),
    ("Flatten", lambda x: nx.nn.Flatten()(x)),
    ("LayerNorm", lambda x: nx.nn.LayerNorm(2)(x)),
    ("MSELoss", lambda x: nx.nn.MSELoss()(X, x)),
    ("Linear", lambda x: nx.nn.Sequential(nx.nn.Linear(2, 2))(x)),
    ("LSTM", lambda x: nx.nn.LSTM(2, 2)(x)),
]


EXPECTED = "expected a tensor, got {kind}"


@pytest.mark.parametrize("given", [LIST, ARRAY], ids=["list", "array"])
@pytest.mark.parametrize(("name", "call"), CALLS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(CALLS)])
def test_what_is_no_tensor_is_refused_in_one_way(name: str, call: Callable[[Any], Any], given: Any) -> None:
    kind = type(given).__name__
    with pytest.raises(TypeError, match=rf"^{name}: {EXPECTED.format(kind=kind)}.*nx\.asarray\(x\)"):
        call(given)


def test_functions_of_each_element_take_lists_and_arrays() -> None:
    assert nx.exp([0.0]).tolist() == [1.0] and nx.add(ARRAY, 1).tolist() == [[2.0, 2.0]] * 2
    assert nx.signbit([-1.0, 1.0]).tolist() == [True, False] and nx.real([1.0]).tolist() == [1.0]
    assert nx.clip([1.0, 5.0], 0, 2).tolist() == [1.0, 2.0]
    assert nx.nextafter(0.0, X).shape == (2, 2)
    assert nx.maximum(X, 3).tolist() == [[3.0, 3.0]] * 2 and (X + ARRAY).tolist() == [[2.0, 2.0]] * 2


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(TypeError, match="axis and dim"):
        nx.sum(X, axis=0, dim=0)
    with pytest.raises(TypeError, match="missing|required"):
        nx.reshape(X)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="shape"):
        nx.matmul(X, nx.ones(3, 3))

    class Own(nx.nn.Module):
        def forward(self, x: nx.Tensor) -> Any:
            return x.nothing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="nothing"):
        Own()([1.0])


def test_guarded_functions_are_still_functions() -> None:
    import inspect
    import pickle

    assert list(inspect.signature(nx.mean).parameters)[:2] == ["x", "axis"]
    assert "mean over axes" in (nx.mean.__doc__ or "")
    assert pickle.loads(pickle.dumps(nx.mean)) is nx.mean
    assert nx.Tensor([3.0, 1.0, 2.0]).median().item() == 2.0


def test_tensors_by_name_are_looked_at_no_longer_than_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    from neurenix import _arguments

    def mistake(name: str, *_rest: Any) -> None:
        raise AssertionError(f"{name} is searched for mistakes")

    monkeypatch.setattr(_arguments, "mistake", mistake)
    assert F.relu(input=X).tolist() == F.relu(X).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert F.linear(input=X, weight=X).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert F.avg_pool1d(input=nx.ones(1, 1, 2), kernel_size=2).item() == 1.0
    with pytest.raises(AssertionError, match="^relu is searched"):
        F.relu(input=ARRAY)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float63", '"float64"'),
        ("flaot32", '"float32"'),
        ("Float16", '"float16"'),
        ("torch.int64", '"int64"'),
        ("float8", '"float16" or "float32" or "float64"'),
    ],
)
def test_names_that_are_nearly_those_of_dtypes(name: str, meant: str) -> None:
    model = nx.nn.Linear(2, 2)
    calls: list[Callable[[], Any]] = [
        lambda: nx.dtype(name),
        lambda: nx.zeros(2, dtype=name),
        lambda: X.to(name),
        lambda: X.to(dtype=name),
        lambda: model.to(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f'^unknown dtype "{name}": did you mean {meant}\\? the dtypes are bool, uint8'):
            call()


def test_other_names_are_told_with_what_there_is() -> None:
    with pytest.raises(ValueError, match='^unknown dtype "rational": the dtypes are bool'):
        nx.zeros(2, dtype="rational")
    with pytest.raises(TypeError, match="is not a dtype"):
        nx.zeros(2, dtype=3)
    for call in (lambda: X.to("nonsense"), lambda: nx.nn.Linear(2, 2).to("nonsense"), lambda: nx.Device("nonsense")):
        with pytest.raises(ValueError, match='^no device "nonsense": found here: .*cpu'):
            call()
    assert X.to("cpu") is X and X.to(nx.Device("cpu"), "float64").dtype == nx.float64
    assert nx.nn.Linear(2, 2).to("cpu", nx.float64).weight.dtype == nx.float64


def test_names_of_devices_that_break_a_rule() -> None:
    for call in (lambda: nx.Device("cuda:-1"), lambda: nx.Device("cuda", -1), lambda: X.to("cuda:-1"), lambda: X.cuda(-1)):
        with pytest.raises(ValueError, match='^no device "cuda:-1": devices are counted from 0; ') as raised:
            call()
        assert "did you mean" not in str(raised.value)
    with pytest.raises(ValueError, match='"gpu:77": GPUs are named by their drivers, such as "[a-z0-9]+:0"; .*found here: '):
        nx.Device("gpu:77")


def test_numbers_that_cannot_be_counts_are_value_errors() -> None:
    images = nx.ones(1, 2, 4, 4)
    calls: list[Callable[[], Any]] = [
        lambda: nx.Device("cpu").set_memory_limit(-1),
        lambda: nx.Device("cpu").set_memory_limit(2**70),
        lambda: nx.set_num_threads(-1),
        lambda: X.topk(-1),
        lambda: X.kthvalue(-1),
        lambda: X.kthvalue(2**70),
        lambda: X.chunk(-1),
        lambda: X.narrow(0, 0, -1),
        lambda: X.repeat_interleave(-1),
        lambda: X.long().one_hot(-1),
        lambda: nx.eye(-1),
        lambda: F.group_norm(images, -1),
        lambda: F.conv2d(images, images, groups=-1),
        lambda: nx.CustomKernel(
            "k", inputs=[("x", "float32", "n")], outputs=[("y", "float32", "n")], cpu=abs, work_group_size=(-1, 1, 1)
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="expected an integer of at least 0"):
            call()


@pytest.mark.parametrize(("value", "told"), [("77", "a number counts accelerators"), ("nonsense", "found here: ")])
def test_the_variable_that_names_the_device_is_told_with_its_value(value: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import neurenix as nx; nx.ones(2)"],
        capture_output=True,
        text=True,
        env={**os.environ, "RNN_GPU_DEVICE": value},
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f'ValueError: the environment variable RNN_GPU_DEVICE names no device: "{value}"; ') and told in last, done.stderr
    assert "found here: " in last and "cpu" in last


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: nx.zeros(2, 3, **options),
        lambda **options: nx.ones((2, 3), **options),
        lambda **options: nx.empty(2, **options),
        lambda **options: nx.full((2,), 3.0, **options),
        lambda **options: nx.arange(0.0, 3.0, **options),
        lambda **options: nx.eye(3, **options),
        lambda **options: nx.eye(3, 4, k=1, **options),
        lambda **options: nx.linspace(0, 1, 5, **options),
        lambda **options: nx.linspace(0, 1, 5, endpoint=False, **options),
        lambda **options: nx.zeros_like(X, **options),
        lambda **options: nx.ones_like(X, **options),
        lambda **options: nx.empty_like(X, **options),
        lambda **options: nx.full_like(X, 2.0, **options),
        lambda **options: nx.rand(3, **options),
        lambda **options: nx.randn(3, **options),
        lambda **options: nx.random.rand_like(X, **options),
        lambda **options: nx.random.randn_like(X, **options),
        lambda **options: nx.tensor([1.0, 2.0], **options),
        lambda **options: X.new_zeros(2, **options),
        lambda **options: X.new_ones(2, **options),
        lambda **options: X.new_empty(2, **options),
        lambda **options: X.new_full((2,), 3.0, **options),
        lambda **options: X.new_tensor([1.0], **options),
    ],
)
def test_new_tensors_may_require_gradients(make: Callable[..., nx.Tensor]) -> None:
    x = make(requires_grad=True)
    assert x.requires_grad and x.is_leaf and not make().requires_grad
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == (2 * x.detach()).tolist()
