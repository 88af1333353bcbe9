"""Gradients against finite differences, and PyTorch's rules for accumulating them."""

from __future__ import annotations

from collections.abc import Callable

import neurenix as nx
import numpy as np
import pytest

FUNCTIONS: dict[str, Callable[[nx.Tensor], nx.Tensor]] = {
    "product": lambda x: (x * x * 3).sum(),
    "matmul": lambda x: (x @ x.T).sin().sum(),
    "softmax": lambda x: (x.softmax(-1) * nx.arange(3)).sum(),
    "division": lambda x: (1 / (x * x + 1)).sum(),
    "power": lambda x: ((x.abs() + 0.5) ** 1.7).mean(),
    "index": lambda x: (x[:, 1:] * x[0, 0]).sum(),
    "mask": lambda x: nx.where(x > 0, x.exp(), x * 2).sum(),
    "reduce": lambda x: (x.std(0) + x.logsumexp(0)).sum(),
    "gelu": lambda x: x.gelu("tanh").sum() + x.gelu().sum(),
    "cumsum": lambda x: (x.cumsum(1) ** 2).sum(),
    "norm": lambda x: x.norm() + x.norm(1, 0).sum(),
    "sort": lambda x: (x.sort(1)[0] * nx.arange(3)).sum(),
    "cat": lambda x: (nx.cat([x, x * 2]) ** 2).sum(),
    "erf": lambda x: x.erf().sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    function = FUNCTIONS[name]
    start = np.random.default_rng(3).normal(size=(2, 3))
    x = nx.Tensor(start, requires_grad=True)
    function(x).backward()
    for i in np.ndindex(start.shape):
        step = np.zeros_like(start)
        step[i] = 1e-6
        derivative = (function(nx.Tensor(start + step)).item() - function(nx.Tensor(start - step)).item()) / 2e-6
        assert x.grad[i].item() == pytest.approx(derivative, rel=1e-5, abs=1e-7)


def test_gradients_add_up_until_they_are_cleared() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    x.grad.zero_()
    assert x.grad.tolist() == [0.0, 0.0]
    x.grad = None
    assert x.grad is None
    x.grad = nx.Tensor([1.0, 1.0])
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError):
        x.grad = nx.ones(3)


def test_descent_by_hand() -> None:
    w = nx.Tensor([5.0], requires_grad=True)
    for _ in range(50):
        loss = ((w - 2) ** 2).sum()
        loss.backward()
        with nx.no_grad():
            w -= 0.1 * w.grad
        assert w.is_leaf and w.requires_grad
        assert w.grad is not None, "an update in place keeps the gradient"
        w.grad.zero_()
    assert abs(w.item() - 2) < 1e-3


def test_modes() -> None:
    x = nx.ones(2, requires_grad=True)
    with nx.no_grad():
        assert not (x * 2).requires_grad
        assert not nx.is_grad_enabled()
        with nx.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad

    @nx.no_grad()
    def inner() -> bool:
        return (x * 2).requires_grad

    assert not inner()
    with nx.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert not x.detach().requires_grad


def test_what_cannot_be_differentiated_is_refused() -> None:
    with pytest.raises(RuntimeError):
        nx.ones(2).sum().backward()
    with pytest.raises(ValueError, match="scalar"):
        nx.ones(2, requires_grad=True).mul(2).backward()
    with pytest.raises(RuntimeError, match="floating"):
        nx.arange(3).requires_grad_()
    x = nx.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no_grad"):
        x += 1
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_gradient_functions() -> None:
    derivative = nx.grad(lambda x: x**3)
    assert derivative(nx.Tensor(2.0)).item() == pytest.approx(12)
    assert nx.grad(derivative)(nx.Tensor(2.0)).item() == pytest.approx(12)
    assert nx.grad(nx.grad(derivative))(nx.Tensor(2.0)).item() == pytest.approx(6)
    assert not derivative(nx.Tensor(2.0)).requires_grad
    value, (da, db) = nx.value_and_grad(lambda a, b: (a * b).sum(), (0, 1))(nx.Tensor([1.0, 2.0]), nx.Tensor([3.0, 4.0]))
    assert value.item() == 11 and da.tolist() == [3.0, 4.0] and db.tolist() == [1.0, 2.0]
    j = nx.jacobian(lambda x: nx.stack([x.sum(), (x * x).sum()]))(nx.Tensor([1.0, 2.0]))
    assert j.tolist() == [[1.0, 1.0], [2.0, 4.0]]
    h = nx.hessian(lambda x: (x[0] ** 2 * x[1]))(nx.Tensor([3.0, 2.0]))
    assert h.tolist() == [[4.0, 6.0], [6.0, 0.0]]
    assert nx.grad(lambda x: nx.ones(1).sum())(nx.Tensor([1.0])).tolist() == [0.0]
    x = nx.ones(2, requires_grad=True)
    assert nx.grad((x * 3).sum(), [x])[0].tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="argument 4"):
        nx.grad(lambda x: x, 4)(nx.Tensor(1.0))


def test_a_long_chain_is_differentiated() -> None:
    x = nx.Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1e-3
    y.backward()
    assert x.grad.item() == 1.0


def test_compiled_functions_agree_with_plain_ones() -> None:
    scale = nx.Tensor([2.0, 3.0])

    def function(x: nx.Tensor, options: dict) -> dict:
        return {"result": (x * scale + options["shift"]).exp(), "same": [x]}

    compiled = nx.compile(function)
    for shape in [(2,), (3, 2), (2,)]:
        x = nx.randn(shape)
        options = {"shift": nx.randn(2)}
        assert nx.allclose(compiled(x, options)["result"], function(x, options)["result"])
    scale.fill_(5)
    x = nx.randn(2)
    assert nx.allclose(compiled(x, options)["result"], function(x, options)["result"]), "what it holds is not frozen"
    w = nx.ones(2, requires_grad=True)
    nx.compile(lambda x: (x * w).sum())(nx.Tensor([1.0, 2.0])).backward()
    assert w.grad.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="value"):
        nx.compile(lambda x: x * x.sum().item())(nx.ones(2))


def test_gradients_reach_what_a_function_closes_over() -> None:
    inner = nx.grad(lambda y: nx.grad(lambda x: x * x * y)(nx.Tensor(3.0)))
    assert inner(nx.Tensor(2.0)).item() == 6.0
    outer = nx.grad(lambda a: nx.jacobian(lambda x: a * x * x)(nx.Tensor([3.0])).sum())
    assert outer(nx.Tensor(2.0)).item() == 6.0
    w = nx.Tensor([2.0, -1.0], requires_grad=True)
    derivative = nx.grad(lambda x: ((w * x) ** 2).sum())(nx.Tensor([1.0, 3.0]))
    (derivative**2).sum().backward()
    assert w.grad.tolist() == [128.0, -144.0], "a penalty on a gradient: d/dw (2 w^2 x)^2 = 16 w^3 x^2"


def test_a_leaf_replaced_after_the_forward_pass_is_not_forgotten_silently() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).sum()
    with nx.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="replaced"):
        y.backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_data_is_the_values_of_the_place() -> None:
    w = nx.Tensor([1.0, 2.0], requires_grad=True)
    w.data.mul_(3)
    assert w.tolist() == [3.0, 6.0] and w.requires_grad and not w.data.requires_grad
    (w * w).sum().backward()
    w.grad.data.clamp_(max=7)
    assert w.grad.tolist() == [6.0, 7.0]
    w.data.fill_(1)
    assert w.tolist() == [1.0, 1.0] and w.grad.tolist() == [6.0, 7.0]
    w.requires_grad_(False)
    assert w.grad.tolist() == [6.0, 7.0]
    with pytest.raises(RuntimeError, match="only for leaves"):
        (nx.ones(1, requires_grad=True) * 2).requires_grad_(False)
    with pytest.raises(TypeError):
        nx.ones(2, requires_grad=True).grad = nx.Tensor([1, 2])


def test_the_mode_can_be_switched_by_a_call() -> None:
    x = nx.ones(1, requires_grad=True)
    nx.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        nx.set_grad_enabled(True)
    assert (x * 2).requires_grad

    @nx.no_grad
    def inner() -> bool:
        return (x * 2).requires_grad

    assert not inner()
    with nx.inference_mode():
        assert not (x * 2).requires_grad


def test_compiled_functions_know_what_they_depend_on() -> None:
    f = nx.compile(lambda x: (x * 2, x.shape[0]))
    assert [f(nx.ones(n))[1] for n in (3, 5, 3)] == [3, 5, 3]
    assert [len(nx.compile(lambda x: list(x))(nx.ones(n))) for n in (3, 2, 3)] == [3, 2, 3]
    g = nx.compile(lambda x, k: x * k)
    whole = nx.arange(3)
    assert [g(whole, k).dtype.name for k in (1, 1.0, 2)] == ["int64", "float32", "int64"]
    drop = nx.nn.Dropout(0.5)
    h = nx.compile(lambda x: drop(x))
    with nx.no_grad():
        drop.eval()
        assert h(nx.ones(100)).sum().item() == 100
        drop.train()
        assert h(nx.ones(100)).sum().item() != 100
    counter = nx.zeros(1)

    def counting(x: nx.Tensor) -> nx.Tensor:
        counter.add_(1)
        return x

    compiled = nx.compile(counting)
    for _ in range(3):
        compiled(nx.ones(1))
    assert counter.item() == 3.0
    with pytest.raises(RuntimeError, match="changes an argument in place"):
        nx.compile(lambda x: x.add_(1))(nx.ones(1))
    nested = nx.compile(lambda x: g(x, 2.0) + 1)
    assert nested(nx.ones(1)).item() == 3.0


def test_a_compiled_network_is_the_network() -> None:
    nn = nx.nn
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = nx.compile(lambda x: model(x).softmax(1).max(1))
    x = nx.randn(5, 3)
    loss = (model(x) ** 2).sum()
    parameters = [(parameter, parameter.clone()) for parameter in model.parameters()]
    with nx.no_grad():
        values, places = compiled(x)
        assert nx.allclose(values, model(x).softmax(1).max(1)[0]) and places.shape == (5,)
    # After recording, the parameters have their values, `requires_grad` and graphs again.
    assert all(parameter.requires_grad and nx.array_equal(parameter, value) for parameter, value in parameters)
    loss.backward()
    assert all(parameter.grad is not None for parameter, _ in parameters)
    nx.optim.SGD(model.parameters(), lr=0.5).step()
    with nx.no_grad():
        assert nx.allclose(compiled(x)[0], model(x).softmax(1).max(1)[0]), "a replay uses the weights as they are now"
        assert not nx.allclose(compiled(x)[0], values)


def test_modes_decorate_functions() -> None:
    x = nx.ones(1, requires_grad=True)

    def records() -> bool:
        return (x * 2).requires_grad

    assert not nx.no_grad(records)() and not nx.no_grad()(records)()
    assert not nx.inference_mode(records)() and not nx.inference_mode()(records)() and nx.inference_mode(False)(records)()
    assert not nx.set_grad_enabled(False)(records)() and records()
    with nx.no_grad():
        assert nx.enable_grad(records)() and nx.enable_grad()(records)() and nx.set_grad_enabled(True)(records)()
        assert not nx.inference_mode(False)(records)()


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(),
        lambda x: x.contiguous(),
        lambda x: x.to(nx.float32, copy=True),
        lambda x: +x,
    ],
)
def test_a_copy_of_a_leaf_that_is_changed_in_place_leaves_the_leaf_alone(copy: Callable[[nx.Tensor], nx.Tensor]) -> None:
    x = nx.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = copy(x)
    y[0] = 5.0
    y *= 2.0
    y.sum().backward()
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert x.grad.tolist() == [[0.0, 0.0], [2.0, 2.0]]


def test_a_frozen_parameter_keeps_its_gradient_until_it_is_cleared() -> None:
    w = nx.nn.Parameter(nx.ones(2))
    optimizer = nx.optim.SGD([w], lr=1.0)
    (w * 3).sum().backward()
    w.requires_grad = False
    assert w.grad is not None and w.grad.tolist() == [3, 3]
    nx.nn.utils.clip_grad_value_([w], 1.0)
    assert w.grad.tolist() == [1, 1]
    optimizer.zero_grad()
    assert w.grad is None
