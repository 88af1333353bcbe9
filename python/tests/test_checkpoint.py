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
    nested = lambda model, x: checkpoint(lambda x: model(checkpoint(model, x, use_reentrant=False) * x), x).square().sum()
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


def test_gradients_of_gradients_are_refused():
    x = nx.Tensor([3.0]).requires_grad_()
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        nx.grad(checkpoint(lambda x: x**3, x).sum(), [x], create_graph=True)


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
        loss = checkpoint(model, x, preserve_rng_state=False).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    start = {key: value.clone() for key, value in model.state_dict().items()}
    x = nx.ones(3, 4)
    expected = [step(x).item() for _ in range(4)]
    model.load_state_dict(start)
    compiled = nx.compile(step)
    assert [compiled(x).item() for _ in range(4)] == expected


def test_less_memory():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()) for _ in range(8)))
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
