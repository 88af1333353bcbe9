"""Functions of one example for a batch, against the function on each example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import func
from neurenix.nn import functional as F

Function = Callable[..., Any]

FUNCTIONS: dict[str, Function] = {
    "elementwise": lambda x: (x.exp() * 2 + x).gelu(),
    "softmax": lambda x: x.softmax(-1) + x.log_softmax(0),
    "reductions": lambda x: x.var(0) + x.logsumexp(0) + x.amax(0) + x.prod(0),
    "scans": lambda x: x.cumsum(0) * x.cumprod(-1),
    "order": lambda x: x.sort(-1)[0] + x.topk(3, dim=-1)[0],
    "positions": lambda x: x.argmax(-1) + x.argsort(0)[0, 0],
    "movement": lambda x: nx.cat([x.t(), x.t().flip(0)], 1)[1:, ::2],
    "padding": lambda x: F.pad(x, (1, 2), value=3.0).roll(1, 0),
    "matmul": lambda x: x @ x.t(),
    "linear": lambda x: x @ nx.arange(6.0, dtype=nx.float64).reshape(3, 2),
    "einsum": lambda x: nx.einsum("ij,kj->ik", x, x),
    "selection": lambda x: nx.where(x > 0, x, x.abs().sqrt()).masked_fill(x > 1, 5.0),
    "gather": lambda x: x[:, nx.tensor([2, 0])] + x.gather(1, nx.tensor([[0, 1], [2, 0]])),
    "scatter": lambda x: x.index_add(0, nx.tensor([1, 1]), x * 2),
    "normalization": lambda x: F.layer_norm(x, (3,)),
    "linalg": lambda x: nx.linalg.inv(x @ x.t() + nx.eye(2, dtype=nx.float64)),
    "svd": lambda x: nx.linalg.svdvals(x),
    "searchsorted": lambda x: nx.searchsorted(x[0].sort()[0], x[1]),
    "several": lambda x: (x.sum(), [x * 2, x[0]]),
}


def values(result: Any) -> list[np.ndarray]:
    return [np.asarray(each.detach().to(nx.float64).tolist()) for each in nx._trees.flatten(result)[0]]  # type: ignore[attr-defined]


def data(*shape: int, seed: int = 0) -> nx.Tensor:
    return nx.tensor(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_is_what_each_example_gives(name: str) -> None:
    function, x = FUNCTIONS[name], data(4, 2, 3)
    expected = [values(function(each)) for each in x]
    for found in (values(func.vmap(function)(x)), values(func.vmap(function, chunk_size=3)(x))):
        for index, part in enumerate(found):
            assert np.allclose(part, np.stack([each[index] for each in expected]), rtol=1e-10)
    last = values(func.vmap(function, in_dims=2)(nx.stack(list(x), 2)))
    assert all(np.allclose(a, b) for a, b in zip(last, found))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("positions", "searchsorted")])
def test_gradients_within_and_of_a_batch(name: str) -> None:
    function = FUNCTIONS[name]

    def loss(x: nx.Tensor) -> nx.Tensor:
        total: Any = sum(each.sin().sum() for each in nx._trees.flatten(function(x))[0])  # type: ignore[attr-defined]
        return total

    x = data(3, 2, 3)
    expected = np.stack([np.asarray(func.grad(loss)(each).tolist()) for each in x])
    assert np.allclose(func.vmap(func.grad(loss))(x).tolist(), expected)
    leaf = x.clone().requires_grad_()
    func.vmap(loss)(leaf).sum().backward()
    assert np.allclose(leaf.grad.tolist(), expected)


def test_convolutions_with_filters_of_each_example() -> None:
    x, k = data(3, 2, 4, 6, 5), data(3, 6, 2, 3, 3, seed=1)

    def convolved(x: nx.Tensor, k: nx.Tensor) -> nx.Tensor:
        return F.conv2d(x, k, padding=1, stride=2, groups=2)

    for dims, pairs in {
        (0, 0): [(x[i], k[i]) for i in range(3)],
        (0, None): [(x[i], k[0]) for i in range(3)],
        (None, 0): [(x[0], k[i]) for i in range(3)],
    }.items():
        given = [each if dim == 0 else each[0] for each, dim in zip((x, k), dims)]
        found = func.vmap(convolved, in_dims=dims)(*given)
        assert np.allclose(found.tolist(), nx.stack([convolved(a, b) for a, b in pairs]).tolist())
        slopes = func.grad(lambda a, b: convolved(a, b).sin().sum(), (0, 1))
        found = func.vmap(slopes, in_dims=dims)(*given)
        for index in (0, 1):
            expected = nx.stack([slopes(a, b)[index] for a, b in pairs])
            assert np.allclose(found[index].tolist(), expected.tolist())


def test_indices_of_each_example() -> None:
    table, index = data(3, 4, 2), nx.tensor([[0, 3], [-1, 1], [2, 2]])
    found = func.vmap(lambda table, index: table[index])(table, index)
    assert found.tolist() == [table[i][index[i]].tolist() for i in range(3)]
    with pytest.raises(IndexError):
        func.vmap(lambda table, index: table[index])(table, index + 2).tolist()


def test_calls_nest_with_each_other_and_with_gradients() -> None:
    x, y = data(3), data(4, seed=1)
    products = func.vmap(func.vmap(lambda a, b: a * b, (None, 0)), (0, None), out_dims=1)(x, y)
    assert np.allclose(products.tolist(), np.outer(y.tolist(), x.tolist()))
    third = func.vmap(func.grad(func.grad(func.grad(lambda x: x**5))))(x)
    assert np.allclose(third.tolist(), 60 * np.asarray(x.tolist()) ** 2)
    hessians = func.vmap(func.hessian(lambda v: (v**3).prod()))(data(2, 3))
    assert np.allclose(hessians[1].tolist(), func.hessian(lambda v: (v**3).prod())(data(2, 3)[1]).tolist())
    inner = func.jacrev(lambda v: func.vmap(lambda e: e**2)(v).sum())(x)
    assert np.allclose(inner.tolist(), 2 * np.asarray(x.tolist()))
    leaf = nx.tensor(2.0, dtype=nx.float64, requires_grad=True)
    func.vmap(func.grad(lambda a: a * a * leaf))(x).sum().backward()
    assert leaf.grad.item() == pytest.approx(2 * x.sum().item())


def test_nested_arguments_and_results() -> None:
    x, y, z = data(3, 2), data(2, 3), data(5)
    run = func.vmap(
        lambda d, z: {"p": d["x"] * d["rest"][0], "q": (z, d["x"].sum())},
        in_dims=({"x": 0, "rest": (1,)}, None),
        out_dims={"p": 1, "q": (None, 0)},
    )
    result = run({"x": x, "rest": (y,)}, z)
    assert np.allclose(result["p"].tolist(), (x * y.t()).t().tolist())
    assert result["q"][0].tolist() == z.tolist() and result["q"][1].shape == (3,)
    # A result that does not depend on the example is repeated, and keyword arguments have the batch first.
    assert func.vmap(lambda x: z)(x).shape == (3, 5)
    assert func.vmap(lambda x, *, k: x.sum() * k)(x, k=nx.arange(3.0, dtype=nx.float64)).shape == (3,)


def test_what_a_function_must_not_do() -> None:
    x = data(3, 2)
    cases: list[tuple[type[Exception], str, Function]] = [
        (ValueError, "reads the value", lambda: func.vmap(lambda x: x if x.sum() > 0 else -x)(x)),
        (ValueError, "draws random numbers", lambda: func.vmap(lambda x: x + nx.rand(2))(x)),
        (ValueError, "must return tensors", lambda: func.vmap(lambda x: 1.0)(x)),
        (ValueError, "different sizes", lambda: func.vmap(lambda x, y: x)(x, data(4))),
        (ValueError, "no dimensions", lambda: func.vmap(lambda x: x)(x.sum())),
        (ValueError, "out of range", lambda: func.vmap(lambda x: x, in_dims=2)(x)),
        (ValueError, "not nested", lambda: func.vmap(lambda x: x, in_dims=(0, 0))(x)),
        (ValueError, "only tensors", lambda: func.vmap(lambda x, y: x)(x, 2.0)),
        (ValueError, "depends on the example", lambda: func.vmap(lambda x: x, out_dims=None)(x)),
        (ValueError, "all in_dims are None", lambda: func.vmap(lambda x: x, in_dims=(None,))(x)),
        (ValueError, "no examples", lambda: func.vmap(lambda x: x)(x[:0])),
        (RuntimeError, "randomness", lambda: func.vmap(lambda x: x, randomness="other")),
        (TypeError, "expected a function", lambda: func.vmap(3)),  # type: ignore[arg-type]
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()
    with pytest.raises(KeyError, match="own"):
        func.vmap(lambda x: {}["own"])(x)
    # The thread's mode ends with the call.
    assert not nx._engine.is_batching() and x.sum().item() == x.sum().item()
    kept: list[nx.Tensor] = []
    func.vmap(lambda x: kept.append(x * 2) or x)(x)  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="and kept"):
        kept[0].tolist()


def test_random_numbers() -> None:
    x = nx.zeros(4, 8)
    nx.manual_seed(3)
    different = func.vmap(lambda x: x + nx.rand(8), randomness="different")(x)
    assert len({tuple(row) for row in different.tolist()}) == 4
    assert tuple(nx.rand(8).tolist()) not in {tuple(row) for row in different.tolist()}
    same = func.vmap(lambda x: x + nx.rand(8), randomness="same")(x)
    assert len({tuple(row) for row in same.tolist()}) == 1
    dropped = func.vmap(lambda x: F.dropout(x + 1, 0.5, True), randomness="different")(x)
    assert len({tuple(row) for row in dropped.tolist()}) > 1
    nested = func.vmap(func.vmap(lambda x: x + nx.rand(()), randomness="different"), randomness="different")(x)
    assert len(set(nested.flatten().tolist())) == 32


def test_within_a_compiled_function() -> None:
    x = data(3, 2)
    run = nx.compile(lambda x: func.vmap(func.grad(lambda v: (v**3).sum()))(x))
    for each in (x, x + 1):
        assert np.allclose(run(each).tolist(), 3 * np.asarray(each.tolist()) ** 2)
