"""``autograd.Function``, ``autograd.grad`` and ``autograd.backward``, by closed formulas and finite differences."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import autograd
from neurenix.autograd.function import InplaceFunction, once_differentiable

START = [0.5, -1.5, 2.0]


def leaf(values: Any = START) -> nx.Tensor:
    return nx.tensor(values, dtype=nx.float64, requires_grad=True)


class Exp(autograd.Function):
    """Its result is saved."""

    @staticmethod
    def forward(ctx: Any, x: nx.Tensor) -> nx.Tensor:
        ctx.save_for_backward(y := x.exp())
        return y

    @staticmethod
    def backward(ctx: Any, gradient: nx.Tensor) -> nx.Tensor:
        (y,) = ctx.saved_tensors
        return gradient * y


class Mixed(autograd.Function):
    """Of several results, a number and a constant, with ``setup_context``."""

    @staticmethod
    def forward(x: nx.Tensor, factor: float, y: nx.Tensor) -> Any:
        return x * factor * y, x + y, x > 0, "text"

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.factor, y = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, product: nx.Tensor, total: nx.Tensor, *rest: Any) -> Any:
        x, y = ctx.saved_tensors
        assert ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        to_y = product * ctx.factor * x + total if ctx.needs_input_grad[2] else None
        return product * ctx.factor * y + total, None, to_y


def test_gradients_of_all_orders() -> None:
    assert autograd.gradcheck(Exp.apply, leaf(), check_forward_ad=True)
    assert autograd.gradgradcheck(Exp.apply, leaf())
    x = leaf()
    slope = Exp.apply(x * 2).sum()
    for order in range(1, 4):
        (found,) = autograd.grad(slope, x, create_graph=True)
        assert np.allclose(found.tolist(), 2**order * np.exp(2 * np.asarray(START)))
        slope = found.sum()


def test_several_arguments_and_results() -> None:
    x, y = leaf(), leaf([1.0, 2.0, 3.0])
    product, total, positive, text = Mixed.apply(x, 4.0, y)
    assert text == "text" and not positive.requires_grad and positive.tolist() == [True, False, True]
    (product.sum() + (total * total).sum()).backward()
    assert np.allclose(x.grad.tolist(), (4 * y + 2 * (x + y)).tolist())
    assert np.allclose(y.grad.tolist(), (4 * x + 2 * (x + y)).tolist())
    # One result only, and a constant argument.
    x = leaf()
    Mixed.apply(x, 2.0, nx.ones(3, dtype=nx.float64))[1].sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    check = lambda x, y: Mixed.apply(x, 3.0, y)[:2]  # noqa: E731
    assert autograd.gradcheck(check, (leaf(), leaf([1.0, 2.0, 3.0]))) and autograd.gradgradcheck(check, (leaf(), leaf()))


def test_no_gradient_is_none() -> None:
    class First(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
            return x * y

        @staticmethod
        def backward(ctx: Any, gradient: nx.Tensor) -> Any:
            return gradient * 5, None

    x, y = leaf(), leaf()
    First.apply(x, y).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0, 5.0] and y.grad is None
    found = autograd.grad(First.apply(x, y).sum(), [x, y], allow_unused=True)
    assert found[1] is None
    with pytest.raises(RuntimeError, match="not used"):
        autograd.grad(First.apply(x, y).sum(), [x, y])
    (zeros,) = autograd.grad(First.apply(x, y).sum(), [y], materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0, 0.0]


def test_context() -> None:
    class Pair(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor) -> Any:
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(c := x * 3)
            return x * 2, x * 2, c

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            assert b is None and c is None
            return a * 2

    x = leaf()
    a, _, c = Pair.apply(x)
    a.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and not c.requires_grad

    class Triple(InplaceFunction):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor) -> nx.Tensor:
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx: Any, gradient: nx.Tensor) -> nx.Tensor:
            return gradient * 3

    x = leaf()
    y = x * 2
    assert Triple.apply(y) is y and y.tolist() == [3.0, -9.0, 12.0]
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0, 6.0]
    with pytest.raises(RuntimeError, match="leaf"):
        Triple.apply(leaf())
    with nx.no_grad():
        assert not Exp.apply(x).requires_grad
    with pytest.raises(TypeError, match="apply"):
        Exp()


def test_mistakes_in_backward_are_errors() -> None:
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor, result: Any) -> nx.Tensor:
            ctx.result = result
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: nx.Tensor) -> Any:
            return ctx.result() if callable(ctx.result) else ctx.result

    def fail() -> None:
        raise KeyError("own")

    cases: list[tuple[type[Exception], str, Any]] = [
        (KeyError, "own", fail),
        (RuntimeError, "returned 3 gradients", (nx.ones(3), None, nx.ones(3))),
        (RuntimeError, "does not fit", (nx.ones(2), None)),
        (TypeError, "expected a tensor or None", (1.0, None)),
        (RuntimeError, "returned 1 gradients", nx.ones(3)),
    ]
    for kind, message, result in cases:
        with pytest.raises(kind, match=message):
            Wrong.apply(leaf(), result).sum().backward()
    # Broadcast axes are summed.
    x = leaf([[1.0], [2.0]])
    Wrong.apply(x, (nx.ones(4, 2, 3), None)).sum().backward()
    assert x.grad.tolist() == [[12.0], [12.0]]


def test_once_differentiable() -> None:
    class Square(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor) -> nx.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, gradient: nx.Tensor) -> nx.Tensor:
            return gradient * 2 * ctx.saved_tensors[0]

    x = leaf()
    (first,) = autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert first.tolist() == [1.0, -3.0, 4.0] and not first.requires_grad
    y = leaf()
    (first,) = autograd.grad((Square.apply(x) * y).sum(), x, create_graph=True)
    assert np.allclose(first.tolist(), 2 * np.asarray(START) ** 2)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


def test_saved_tensors() -> None:
    x = leaf()
    packed: list[int] = []
    with autograd.graph.saved_tensors_hooks(lambda y: packed.append(1) or (y * 2,), lambda y: y[0]):  # type: ignore[func-returns-value]
        y = Exp.apply(x)
    y.sum().backward()
    assert packed == [1] and np.allclose(x.grad.tolist(), 2 * np.exp(START))
    # Later changes in place are noticed.
    x = leaf()
    z = x * 1
    y = Mixed.apply(z, 1.0, z)[0]
    with nx.no_grad():
        z.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_a_call_saves_is_freed() -> None:
    class Value:
        pass

    class Keeps(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor, value: Value) -> nx.Tensor:
            ctx.value = value
            ctx.save_for_backward(y := x * 2)
            return y

        @staticmethod
        def backward(ctx: Any, gradient: nx.Tensor) -> Any:
            return gradient * 2, None

    gc.disable()
    try:
        value = Value()
        seen = weakref.ref(value)
        y = Keeps.apply(leaf(), value)
        del value
        assert seen() is not None
        del y
        assert seen() is None
    finally:
        gc.enable()


def test_gradients_of_several_tensors() -> None:
    x, y = leaf(), leaf([1.0, 2.0, 3.0])
    weights = nx.tensor([1.0, 10.0, 100.0], dtype=nx.float64)
    found = autograd.grad([x * y, x * x], [x, y], [weights, weights])
    assert np.allclose(found[0].tolist(), (weights * (y + 2 * x)).tolist())
    assert np.allclose(found[1].tolist(), (weights * x).tolist())
    (rows,) = autograd.grad(x * x, x, nx.eye(3, dtype=nx.float64), is_grads_batched=True)
    assert np.allclose(rows.tolist(), np.diag([1.0, -3.0, 4.0]))
    inner = x * 2
    assert autograd.grad((inner * inner).sum(), inner)[0].tolist() == [2.0, -6.0, 8.0]
    # The graph is released, unless it is to be kept.
    loss = (x**3).sum()
    autograd.grad(loss, x, retain_graph=True)
    autograd.grad(loss, x)
    with pytest.raises(RuntimeError, match="released"):
        autograd.grad(loss, x)
    assert x.grad is None
    for wrong in (
        lambda: autograd.grad(x * 2, x),
        lambda: autograd.grad(nx.ones(()), x),
        lambda: autograd.grad((x * 2).sum(), nx.ones(3)),
        lambda: autograd.grad((x * 2).sum(), x, [nx.ones(()), nx.ones(())]),
        lambda: autograd.grad(x * 2, x, nx.ones(2)),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ValueError, match="contradicts"):
        autograd.grad(loss, x, allow_unused=False, materialize_grads=True)


def test_backward_to_some_inputs() -> None:
    x, y = leaf(), leaf([1.0, 2.0, 3.0])
    inner = x * y
    autograd.backward([inner.sum(), x * x], [None, nx.ones(3, dtype=nx.float64)])
    assert np.allclose(x.grad.tolist(), (y + 2 * x).tolist())
    x, y = leaf(), leaf([1.0, 2.0, 3.0])
    inner = x * y
    (inner * inner).sum().backward(inputs=[x])
    assert np.allclose(x.grad.tolist(), (2 * inner * y).tolist()) and y.grad is None
    with pytest.raises(RuntimeError, match="does not require gradients"):
        x.sum().backward(inputs=[nx.ones(1)])
    with pytest.raises(RuntimeError, match="empty"):
        x.sum().backward(inputs=[])


def test_checks_find_wrong_gradients() -> None:
    class Negated(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: nx.Tensor) -> nx.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: nx.Tensor) -> nx.Tensor:
            return -gradient

    with pytest.raises(RuntimeError, match="finite differences"):
        autograd.gradcheck(Negated.apply, leaf())
    assert not autograd.gradcheck(Negated.apply, leaf(), raise_exception=False)
    assert autograd.gradcheck(lambda x, y: (x * y, x @ y), (leaf(), leaf()), check_batched_grad=True, check_forward_ad=True)
    with pytest.raises(ValueError):
        autograd.gradcheck(lambda x: x, nx.ones(2))


def test_anomalies() -> None:
    x = leaf([0.0, 1.0])
    with autograd.detect_anomaly():
        with pytest.raises(RuntimeError, match="the gradient of sqrt contains NaN"):
            (x.sqrt() * 0).sum().backward()
    (x.sqrt() * 0).sum().backward()
    with autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    assert not nx._engine.refuse_anomalies(False)


def test_variables() -> None:
    x = autograd.Variable(nx.ones(2), requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and isinstance(nx.ones(1), autograd.Variable)
    with pytest.raises(ValueError, match="volatile"):
        autograd.Variable(nx.ones(2), volatile=True)
    assert not isinstance(3, autograd.Variable)


def test_functions_in_batches() -> None:
    x = nx.tensor([[0.5, 1.0], [2.0, 3.0]])
    assert np.allclose(nx.func.vmap(nx.func.grad(lambda x: Exp.apply(x).sum()))(x).tolist(), np.exp(x.tolist()))
    assert np.allclose(nx.func.vmap(Exp.apply)(x).tolist(), np.exp(x.tolist()))
    with pytest.raises(ValueError, match="compute them within"):
        nx.func.vmap(Exp.apply)(x.clone().requires_grad_())
