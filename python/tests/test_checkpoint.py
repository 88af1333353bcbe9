"""Checkpoints: gradients equal those of the function itself, and less is kept."""

import pytest

import neurenix as nx
from neurenix import nn
from neurenix.utils.checkpoint import checkpoint, checkpoint_sequential


def block():
    nx.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, 6))


def gradients(run, *inputs):
    """The result of a loss, and the gradients of inputs and parameters."""
    model = block()
    given = [nx.Tensor(value).requires_grad_() for value in inputs]
    nx.manual_seed(9)
    loss = run(model, *given)
    loss.backward()
    # What is drawn afterwards does not depend on the second call.
    return [loss.item(), nx.rand(3).tolist(), *(x.grad.tolist() for x in [*given, *model.parameters()])]


X = [[0.1 * i - 0.2 * j for i in range(6)] for j in range(4)]


def plain(model, x):
    return model(model(x) * x).square().sum()


def test_gradients_and_random_numbers_are_those_of_the_function():
    twice = lambda model, x: checkpoint(model, checkpoint(model, x) * x).square().sum()
    assert gradients(twice, X) == gradients(plain, X)
    inner = lambda model, x: model(checkpoint(model, x, use_reentrant=False) * x)
    nested = lambda model, x: checkpoint(lambda x: inner(model, x), x).square().sum()
    assert gradients(nested, X) == gradients(plain, X)


def test_results_and_arguments_of_any_shape():
    def several(model, x, scale, *, flags):
        y = model(x)
        return {"first": y * scale, "rest": [y.sum(), flags["add"] + y.detach(), None, 3]}

    def use(found):
        assert found["rest"][2:] == [None, 3] and not found["rest"][1].requires_grad
        return (found["first"] * found["rest"][0]).sum()

    flags = {"add": nx.Tensor([1, 2, 3, 4, 5, 6])}
    direct = lambda model, x, scale: use(several(model, x, scale, flags=flags))
    kept = lambda model, x, scale: use(checkpoint(several, model, x, scale, flags=flags))
    expected, found = gradients(direct, X, [2.0]), gradients(kept, X, [2.0])
    assert found[0] == expected[0] and found[1] == expected[1]
    for a, b in zip(found[2:], expected[2:]):
        assert nx.allclose(nx.Tensor(a), nx.Tensor(b), rtol=1e-5, atol=1e-6)


def test_an_output_without_gradient_and_an_input_twice():
    x = nx.Tensor([1.0, 2.0]).requires_grad_()
    first, second = checkpoint(lambda a, b: (a * b, a + b), x, x)
    first.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0] and second.tolist() == [2.0, 4.0]


def test_autocast_is_that_of_the_first_call():
    model = nn.Linear(4, 4)
    seen = []

    def function(x):
        y = model(x)
        seen.append(y.dtype.name)
        return y

    with nx.autocast(dtype=nx.bfloat16):
        y = checkpoint(function, nx.ones(2, 4))
    y.sum().backward()
    assert seen == ["bfloat16", "bfloat16"] and y.dtype.name == "bfloat16"
    assert model.weight.grad.dtype.name == "float32"


def test_without_gradients_it_is_a_call():
    calls = []
    with nx.no_grad():
        assert checkpoint(lambda x: calls.append(1) or x * 2, nx.ones(2)).tolist() == [2.0, 2.0]
    y = checkpoint(lambda x: x * 2, nx.ones(2))
    assert calls == [1] and not y.requires_grad


def test_a_second_pass_through_a_kept_graph():
    x = nx.Tensor([3.0]).requires_grad_()
    y = checkpoint(lambda x: x**3, x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [54.0]


def test_gradients_as_functions_and_of_gradients():
    p = nx.Tensor([0.5, 1.5]).requires_grad_()
    f = lambda x: (x * x * p).sin()
    x = nx.Tensor([3.0, 0.7])
    value, gradient = nx.value_and_grad(lambda x: checkpoint(f, x).sum())(x)
    expected, other = nx.value_and_grad(lambda x: f(x).sum())(x)
    assert value.item() == expected.item() and gradient.tolist() == other.tolist()
    second = [nx.grad(lambda x: nx.grad(lambda x: g(x).sum())(x).sum())(x) for g in (f, lambda x: checkpoint(f, x))]
    assert nx.allclose(second[0], second[1], rtol=1e-5)
    x.requires_grad_()
    for g in (f, lambda x: checkpoint(f, x)):
        p.grad = None
        nx.grad(g(x).sum(), [x], create_graph=True)[0].sum().backward()
        second.append(p.grad)
    assert nx.allclose(second[2], second[3], rtol=1e-5)


def test_hooks_are_called_once():
    p = nx.Tensor([1.0]).requires_grad_()
    p.register_hook(lambda g: g / 2)
    checkpoint(lambda x: x * checkpoint(lambda x: x * p, x), nx.Tensor([1.0])).sum().backward()
    assert p.grad.tolist() == [0.5]
    x = nx.Tensor([1.0]).requires_grad_()
    y = checkpoint(lambda x: x * 3, x)
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert x.grad.tolist() == [30.0]


def test_the_values_of_arguments_are_kept():
    x = nx.Tensor([2.0]).requires_grad_()
    h = x * 2
    y = checkpoint(lambda h: h * h, h)
    h.mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [16.0]


def test_tensors_of_the_caller_that_are_no_arguments():
    x = nx.Tensor([2.0]).requires_grad_()
    h = x * x
    y = checkpoint(lambda a: a * h, x)
    (y + h).sum().backward()
    assert x.grad.tolist() == [12.0 + 4.0]


def test_a_pass_that_does_not_reach_the_inputs_and_an_error():
    x = nx.Tensor([1.0]).requires_grad_()
    fails = []

    def function(x):
        if fails:
            raise ValueError("no")
        return x * 10, x * 3

    y, z = checkpoint(function, x)
    nx.grad(y.sum(), [y])
    fails.append(1)
    with pytest.raises(ValueError, match="no"):
        y.sum().backward(retain_graph=True)
    fails.clear()
    z.sum().backward()
    assert x.grad.tolist() == [3.0]


def test_nothing_stays_after_a_backward_pass():
    device = nx.zeros(1).device
    p = nx.Tensor([2.0]).requires_grad_()
    before, losses = device.memory()["allocated"], []
    for _ in range(4):
        losses.append(checkpoint(lambda x: (x * p).sum(), nx.randn(1 << 18).evaluate()))
        losses[-1].backward()
        nx.evaluate([losses[-1], p.grad])
    assert device.memory()["allocated"] - before < 1 << 18


def test_zeros_keep_their_sign_and_misuse_is_named():
    x = nx.Tensor([0.0]).requires_grad_()
    assert (1 / checkpoint(lambda x: x * -1.0, x)).tolist() == [-float("inf")]
    with pytest.raises(TypeError, match="returned a object"):
        checkpoint(lambda x: object(), x)
    with pytest.raises(TypeError, match="expected a function, got int"):
        checkpoint(3, x)
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(lambda x: x, x, context_fn=lambda: None)


def test_segments_of_a_sequence():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))
    x = nx.ones(2, 4)
    model(x).sum().backward()
    expected = [p.grad.tolist() for p in model.parameters()]
    for segments in (1, 2, 5):
        for p in model.parameters():
            p.grad = None
        checkpoint_sequential(model, segments, x).sum().backward()
        assert [p.grad.tolist() for p in model.parameters()] == expected
    with pytest.raises(ValueError, match="from 1 to 5"):
        checkpoint_sequential(model, 6, x)


def test_a_compiled_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = nx.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = checkpoint(model, x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    start = {key: value.clone() for key, value in model.state_dict().items()}
    x = nx.ones(3, 4)
    expected = [step(x).item() for _ in range(4)]
    model.load_state_dict(start)
    compiled = nx.compile(step)
    assert [compiled(x).item() for _ in range(4)] == expected
    model.append(nn.Dropout(0.5))
    with pytest.raises(RuntimeError, match="draws random numbers"):
        nx.compile(step)(x)


def test_less_memory():
    layer = lambda: nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
    model = nn.Sequential(*(layer() for _ in range(8)))
    x = nx.randn(2048, 256).evaluate()
    device = x.device

    def peak(run):
        for p in model.parameters():
            p.grad = None
        device.reset_peak_memory()
        run().sum().backward()
        nx.evaluate([p.grad for p in model.parameters()])
        return device.memory()["peak"]

    def kept():
        y = x
        for layer in model:
            y = checkpoint(layer, y)
        return y

    plain = peak(lambda: model(x))
    assert peak(kept) < 0.75 * plain
