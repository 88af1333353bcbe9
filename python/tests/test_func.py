"""``neurenix.func``: derivatives with closed formulas, and modules as functions."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import func, nn
from neurenix.autograd import forward_ad, functional

X, V = nx.tensor([0.5, -1.5, 2.0], dtype=nx.float64), nx.tensor([1.0, 2.0, -3.0], dtype=nx.float64)


def close(found: Any, expected: Any) -> None:
    assert np.allclose(found.tolist(), expected.tolist() if hasattr(expected, "tolist") else expected, rtol=1e-12)


def test_gradients_of_nested_arguments() -> None:
    found = func.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": X, "b": (V,)})
    close(found["a"], V)
    close(found["b"][0], X)
    gradient, (value, aux) = func.grad_and_value(lambda x: ((x * x).sum(), x + 1), has_aux=True)(X)
    close(gradient, X * 2)
    assert value.item() == pytest.approx(6.5) and not value.requires_grad and not aux.requires_grad
    close(func.grad(lambda x, y: (x * 2).sum(), argnums=1)(X, V), [0.0, 0.0, 0.0])
    first, second = func.grad(lambda x, y: (x * y).sum(), argnums=(1, 0))(X, V)
    close(first, X)
    close(second, V)
    with pytest.raises(RuntimeError, match="scalar"):
        func.grad(lambda x: x)(X)
    with pytest.raises(RuntimeError, match="argnums"):
        func.grad(lambda x: x.sum(), argnums=1)(X)


def test_results_are_tracked_only_for_others() -> None:
    assert not func.grad(lambda x: (x * x).sum())(X).requires_grad
    weight = V.clone().requires_grad_()
    gradient = func.grad(lambda x: (x * x * weight).sum())(X)
    gradient.sum().backward()
    close(weight.grad, X * 2)
    leaf = X.clone().requires_grad_()
    func.grad(lambda x: (x**3).sum())(leaf).sum().backward()
    close(leaf.grad, X * 6)


def test_products() -> None:
    value, pull = func.vjp(lambda x, y: {"a": x * y, "b": y.sin()}, X, V)
    close(value["a"], X * V)
    to_x, to_y = pull({"a": X, "b": V})
    close(to_x, X * V)
    close(to_y, X * X + V * V.cos())
    (value, tangent), aux = func.jvp(lambda x: (x.exp(), x), (X,), (V,), has_aux=True)[:2], X
    close(value, X.exp())
    close(tangent, X.exp() * V)
    assert not tangent.requires_grad and aux is X
    close(func.jvp(lambda x: nx.ones(2), (X,), (V,))[1], [0.0, 0.0])
    with pytest.raises(RuntimeError, match="strict"):
        func.jvp(lambda x: nx.ones(2), (X,), (V,), strict=True)
    value, push = func.linearize(lambda x: (x * x).sum(), X)
    assert push(V).item() == pytest.approx((X * V * 2).sum().item())
    close(func.vmap(push)(nx.eye(3, dtype=nx.float64)), X * 2)
    with pytest.raises(RuntimeError, match="shapes"):
        func.jvp(lambda x: x, (X,), (V[:2],))


def test_jacobians_and_hessians() -> None:
    expected = nx.linalg.diag(3 * X * X) if hasattr(nx.linalg, "diag") else (3 * X * X).diag()
    for transform in (func.jacrev, func.jacfwd):
        close(transform(lambda x: x**3)(X), expected)
        both = transform(lambda x, y: {"a": x[:2] * y.sum()}, argnums=(0, 1))(X, V)
        assert both["a"][0].shape == (2, 3) and both["a"][1].shape == (2, 3)
        close(both["a"][1], [[0.5] * 3, [-1.5] * 3])
        jacobian, aux = transform(lambda x: (x * x, x.sum()), has_aux=True)(X)
        close(jacobian, (2 * X).diag())
        assert aux.item() == 1.0
        assert transform(lambda x: x[:0])(X).shape == (0, 3)
    close(func.jacrev(lambda x: x**3, chunk_size=2)(X), expected)
    (xx, xy), (yx, yy) = func.hessian(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(X, V)
    close(xx, (2 * V).diag())
    close(xy, (2 * X).diag())
    close(yx, (2 * X).diag())
    close(yy, np.zeros((3, 3)))


def test_functional() -> None:
    both = lambda x, y: (x.exp() * y, (x * y).sum())  # noqa: E731
    (first, second), (to_x, to_y) = functional.vjp(both, (X, V), (V, nx.tensor(2.0, dtype=nx.float64)))
    close(first, X.exp() * V)
    close(to_x, X.exp() * V * V + 2 * V)
    close(to_y, X.exp() * V + 2 * X)
    close(functional.jvp(both, (X, V), (V, X))[1][0], X.exp() * (V * V + X))
    table = functional.jacobian(both, (X, V))
    close(table[0][1], X.exp().diag())
    close(functional.jacobian(both, (X, V), vectorize=True, strategy="forward-mode")[1][0], V)
    close(functional.hessian(lambda x: (x**3).sum(), X), (6 * X).diag())
    for product in (functional.hvp, functional.vhp):
        close(product(lambda x: (x**3).sum(), X, V)[1], 6 * X * V)
    kept = functional.jacobian(lambda x: x**2, X.clone().requires_grad_(), create_graph=True)
    assert kept.requires_grad and not functional.jacobian(lambda x: x**2, X).requires_grad
    with pytest.raises(RuntimeError, match="strict"):
        functional.jacobian(lambda x, y: x * 2, (X, V), strict=True)
    with pytest.raises(RuntimeError, match="v is needed"):
        functional.vjp(lambda x: x, X)


def test_forward_mode() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, V)
        primal, tangent = forward_ad.unpack_dual(x.sin() * X)
        close(primal, X.sin() * X)
        close(tangent, X.cos() * X * V)
        assert forward_ad.unpack_dual(X * 2).tangent is None
        with pytest.raises(RuntimeError, match="nested"):
            forward_ad.enter_dual_level()
    with pytest.raises(RuntimeError, match="level"):
        forward_ad.make_dual(X, V)


def models(count: int) -> list[nn.Module]:
    nx.manual_seed(4)
    return [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(count)]


def test_an_ensemble_of_modules() -> None:
    ensemble, x = models(3), nx.randn(5, 3)
    parameters, buffers = func.stack_module_state(ensemble)
    assert parameters["0.weight"].shape == (3, 4, 3) and parameters["0.weight"].requires_grad and not buffers

    def run(parameters: Any, x: nx.Tensor) -> Any:
        return func.functional_call(ensemble[0], parameters, x)

    found = func.vmap(run, in_dims=(0, None))(parameters, x)
    assert np.allclose(found.tolist(), [model(x).tolist() for model in ensemble], atol=1e-6)
    found.sum().backward()
    ensemble[1](x).sum().backward()
    assert np.allclose(parameters["2.weight"].grad[1].tolist(), ensemble[1]._modules["2"].weight.grad.tolist(), atol=1e-5)
    # Gradients of each sample.
    own = {name: tensor.detach() for name, tensor in ensemble[0].named_parameters()}
    each = func.vmap(func.grad(lambda p, x: run(p, x).sin().sum()), in_dims=(None, 0))(own, x)
    whole = func.grad(lambda p: run(p, x).sin().sum())(own)
    for name in own:
        assert np.allclose(each[name].sum(0).tolist(), whole[name].tolist(), atol=1e-5)


def test_functional_call_restores_the_module() -> None:
    model = models(1)[0]
    former = dict(model.named_parameters())
    zeros = {name: nx.zeros(*tensor.shape) for name, tensor in former.items()}
    assert func.functional_call(model, zeros, (nx.ones(1, 3),)).tolist() == [[0.0, 0.0]]
    with pytest.raises(TypeError):
        func.functional_call(model, zeros, (nx.ones(1, 3), 1, 2))
    assert all(now is former[name] for name, now in model.named_parameters())
    with pytest.raises(RuntimeError, match="no parameter or buffer"):
        func.functional_call(model, {"9.weight": nx.ones(1)}, nx.ones(1, 3))
    with pytest.raises(RuntimeError, match="missing"):
        func.functional_call(model, {"0.bias": zeros["0.bias"]}, nx.ones(1, 3), strict=True)
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    assert func.functional_call(tied, {"0.weight": nx.eye(2) * 3}, nx.ones(1, 2)).tolist() == [[9.0, 9.0]]
    norm = func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    assert norm.eval()(nx.tensor([[0.0, 1.0], [2.0, 3.0]])).abs().max().item() == pytest.approx(1.0, abs=1e-4)
