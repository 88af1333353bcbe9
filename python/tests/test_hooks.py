"""Gradient hooks, gradients of non-leaf tensors, and gradients of gradients."""

from __future__ import annotations

import gc

import neurenix as nx
import pytest


def test_a_hook_sees_and_replaces_the_gradient() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    seen: list[list[float]] = []

    def see(gradient: nx.Tensor) -> None:
        seen.append(gradient.tolist())

    first = y.register_hook(see)
    y.register_hook(lambda gradient: gradient * 10)
    (y * y).sum().backward()
    assert seen == [[6.0, 12.0]]
    assert x.grad.tolist() == [180.0, 360.0]
    first.remove()
    x.grad = None
    z = x * 3
    z.sum().backward()
    assert seen == [[6.0, 12.0]] and x.grad.tolist() == [3.0, 3.0]


def test_a_leafs_hook_outlives_its_updates() -> None:
    x = nx.nn.Parameter(nx.Tensor([1.0]))
    optimizer = nx.optim.SGD([x], lr=0.5)
    with x.register_hook(lambda gradient: gradient * 2):
        for _ in range(3):
            optimizer.zero_grad()
            (x * 1.0).sum().backward()
            assert x.grad.tolist() == [2.0]
            optimizer.step()
        assert x.tolist() == [-2.0]
    optimizer.zero_grad()
    (x * 1.0).sum().backward()
    assert x.grad.tolist() == [1.0]


def test_what_a_hook_raises_keeps_its_class() -> None:
    class Mine(Exception):
        pass

    def fail(gradient: nx.Tensor) -> None:
        raise Mine("no")

    x = nx.Tensor([1.0], requires_grad=True)
    x.register_hook(fail)
    with pytest.raises(Mine, match="no"):
        (x * 2).sum().backward()
    assert x.grad is None


def test_a_hooks_gradient_has_the_shape() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: nx.ones(3))
    with pytest.raises(ValueError, match="shape"):
        y.sum().backward()
    y = x * 2
    y.register_hook(lambda gradient: 3)
    with pytest.raises(TypeError, match="a tensor or None"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        nx.ones(2).register_hook(lambda gradient: None)


def test_retain_grad() -> None:
    x = nx.Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    assert not y.retains_grad and y.grad is None
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * y).sum().backward()
    assert y.grad.tolist() == [6.0, 12.0] and x.grad.tolist() == [18.0, 36.0]
    with pytest.raises(RuntimeError, match="retain_grad"):
        nx.ones(2).retain_grad()


def test_create_graph() -> None:
    x = nx.Tensor([2.0, 3.0], requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    gradient = x.grad
    assert gradient.tolist() == [12.0, 27.0] and gradient.requires_grad
    x.grad = None
    gradient.sum().backward()
    assert x.grad.tolist() == [12.0, 18.0] and not x.grad.requires_grad
    x.grad = None
    with pytest.raises(RuntimeError, match="create_graph"):
        (x**2).sum().backward(retain_graph=False, create_graph=True)


def test_a_penalty_on_gradients() -> None:
    weight = nx.Tensor([[0.5, -1.0]], requires_grad=True)
    x = nx.Tensor([[1.0, 2.0]], requires_grad=True)
    out = nx.tanh(x @ weight.T).sum()
    out.backward(create_graph=True)
    penalty = (x.grad**2).sum()
    x.grad, weight.grad = None, None
    penalty.backward()

    def analytic(w: list[float]) -> float:
        import math

        y = math.tanh(w[0] + 2 * w[1])
        return ((1 - y * y) ** 2) * (w[0] ** 2 + w[1] ** 2)

    for index in range(2):
        low, high = [0.5, -1.0], [0.5, -1.0]
        low[index] -= 1e-5
        high[index] += 1e-5
        assert weight.grad[0, index].item() == pytest.approx((analytic(high) - analytic(low)) / 2e-5, rel=1e-3)


def test_hooks_do_not_leak() -> None:
    import weakref

    class Witness:
        def __call__(self, gradient: nx.Tensor) -> None:
            return None

    witness = Witness()
    gone = weakref.ref(witness)
    x = nx.Tensor([1.0], requires_grad=True)
    y = x * 2
    y.register_hook(witness)
    y.sum().backward()
    del x, y, witness
    gc.collect()
    assert gone() is None


def test_a_hook_stays_with_its_place() -> None:
    weight = nx.Tensor([1.0, 2.0], requires_grad=True)
    weight.register_hook(lambda gradient: gradient * 10)
    given = nx.Tensor([3.0, 4.0])
    with nx.no_grad():
        weight.copy_(given)
    given.requires_grad_()
    (given * 1.0).sum().backward()
    assert given.grad.tolist() == [1.0, 1.0], "the tensor that was copied has no hook"
    (weight * 1.0).sum().backward()
    assert weight.grad.tolist() == [10.0, 10.0] and weight.tolist() == [3.0, 4.0]
    # The parameter gets several values in turn; the graph of the old value stays valid.
    before = (weight * 2.0).sum()
    weight.grad = None
    with nx.no_grad():
        weight.copy_(given.detach() + 1)
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="replaced"):
        before.backward()
    (weight * 1.0).sum().backward()
    assert weight.grad.tolist() == [10.0, 10.0]
